"""Datasets for PyTorch with the names of pylance; tensors require the extra `torch`."""

from lancelet.torch.device import preferred_device

__all__ = ["preferred_device"]
