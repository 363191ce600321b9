"""Datasets for PyTorch, under pylance's names; needs the extra `torch` where tensors are made."""

from lancelet.torch.device import preferred_device

__all__ = ["preferred_device"]
