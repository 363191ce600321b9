"""Optional import of PyTorch.

PyTorch data loaders distinguish datasets by their base classes. Without PyTorch, datasets have
placeholder base classes, and calls that require tensors raise `UnsupportedError`.
"""

from __future__ import annotations

from typing import Any

from lancelet.errors import UnsupportedError

try:
    from torch.utils.data import Dataset, IterableDataset
except ImportError:

    class Dataset:  # type: ignore[no-redef]
        """A placeholder base class."""

    class IterableDataset:  # type: ignore[no-redef]
        """A placeholder base class."""


def require_torch() -> Any:
    """Return the module, or raise if it is not installed."""
    try:
        import torch  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UnsupportedError("PyTorch is required; install `lancelet[torch]`") from error
    return torch


def torch_if_installed() -> Any:
    """Return the module, or None."""
    try:
        import torch  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    return torch


__all__ = ["Dataset", "IterableDataset", "require_torch", "torch_if_installed"]
