"""PyTorch, where it is installed.

Its loader tells datasets apart by their base classes. Without PyTorch they have plain ones, so that
everything but the tensors works, and calls that need tensors say what to install.
"""

from __future__ import annotations

from typing import Any

from lancelet.errors import UnsupportedError

try:
    from torch.utils.data import Dataset, IterableDataset
except ImportError:

    class Dataset:  # type: ignore[no-redef]
        """Takes the place of a class that is not installed."""

    class IterableDataset:  # type: ignore[no-redef]
        """Takes the place of a class that is not installed."""


def require_torch() -> Any:
    """Return the module, or raise if it is not installed."""
    try:
        import torch  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UnsupportedError("this needs PyTorch; install `lancelet[torch]`") from error
    return torch


def torch_if_installed() -> Any:
    """Return the module, or None."""
    try:
        import torch  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    return torch


__all__ = ["Dataset", "IterableDataset", "require_torch", "torch_if_installed"]
