"""The device to compute on."""

from __future__ import annotations

from typing import Any

from lancelet.torch.required import require_torch


def preferred_device(device: Any = None) -> Any:
    """Return the requested device, or the best one of this machine."""
    torch = require_torch()
    if device is not None:
        return torch.device(device) if isinstance(device, str) else device
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
