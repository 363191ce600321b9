"""Batches in memory that is shared with the process that started a loader worker.

PyTorch sends a file descriptor per storage, which takes longer than copying small tensors. All
tensors of a batch are therefore copied to one storage:

    values, offsets, labels    3 storages    ->    1 storage, 3 views    ->    1 descriptor
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lancelet.torch.required import require_torch

_ALIGNMENT: Final = 64


def to_shared_storage(batch: Any) -> Any:
    """Return a batch whose tensors are in one shared storage; other values are unchanged."""
    tensors: list[Any] = []
    _map_tensors(batch, tensors.append)
    if not tensors:
        return batch
    torch = require_torch()
    starts, end = [], 0
    for tensor in tensors:
        starts.append(end)
        end += -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
    if not end:
        return batch
    storage = torch.UntypedStorage._new_shared(end)  # noqa: SLF001 - as in PyTorch's `collate`
    views = iter([_copied(torch, *each, storage) for each in zip(tensors, starts, strict=True)])
    return _map_tensors(batch, lambda _: next(views))


def _copied(torch: Any, tensor: Any, start: int, storage: Any) -> Any:
    view = torch.empty(0, dtype=tensor.dtype)
    # Channels-last images keep their layout; views of larger tensors become dense.
    strides = torch.empty_like(tensor, device="meta").stride()
    view.set_(storage, start // tensor.element_size(), tensor.shape, strides)
    view.copy_(tensor)
    return view


def _map_tensors(value: Any, function: Callable[[Any], Any]) -> Any:
    """Apply a function to the tensors of a batch, in order."""
    torch = require_torch()
    if type(value) is torch.Tensor:
        is_plain = value.device.type == "cpu" and value.layout == torch.strided
        is_plain = is_plain and not (value.requires_grad or value.is_nested or value.is_quantized)
        return function(value) if is_plain else value
    if type(value) is dict:
        return {name: _map_tensors(each, function) for name, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[_map_tensors(each, function) for each in value])
    if type(value) in (list, tuple):
        return type(value)(_map_tensors(each, function) for each in value)
    return value
