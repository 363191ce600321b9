"""Rank and world size of this process, including the workers of a data loader.

For example:

    2 machines, 3 workers each      machine 1, worker 2      rank 5 of 6
"""

from __future__ import annotations

import sys
from typing import Any

from lancelet.torch.required import torch_if_installed


def get_dist_world_size() -> int:
    """Return the number of distributed processes; 1 without a process group."""
    processes = _processes()
    return 1 if processes is None else int(processes.get_world_size())


def get_dist_rank() -> int:
    """Return the rank among distributed processes; 0 without a process group."""
    processes = _processes()
    return 0 if processes is None else int(processes.get_rank())


def get_mp_world_size() -> int:
    """Return the number of workers of the data loader; 1 outside of a worker."""
    worker = _worker()
    return 1 if worker is None else int(worker.num_workers)


def get_mp_rank() -> int:
    """Return the worker id; 0 outside of a worker."""
    worker = _worker()
    return 0 if worker is None else int(worker.id)


def get_global_world_size() -> int:
    """Return the number of reading processes: distributed processes times workers."""
    return get_dist_world_size() * get_mp_world_size()


def get_global_rank() -> int:
    """Return the rank among all reading processes."""
    return get_dist_rank() * get_mp_world_size() + get_mp_rank()


def divides_batches(dataset: Any) -> bool:
    """Return whether accelerate is dividing the batches of a dataset among processes."""
    accelerate = sys.modules.get("accelerate.data_loader")
    if accelerate is None or accelerate.PartialState().num_processes == 1:
        return False
    loader = accelerate.GradientState().active_dataloader
    found = getattr(loader, "dataset", None)
    if isinstance(found, accelerate.IterableDatasetShard):
        return found.dataset is dataset
    return found is dataset and isinstance(loader, accelerate.DataLoaderDispatcher)


def _processes() -> Any:
    torch = torch_if_installed()
    if torch is None or not torch.distributed.is_available():
        return None
    return torch.distributed if torch.distributed.is_initialized() else None


def _worker() -> Any:
    torch = torch_if_installed()
    return None if torch is None else torch.utils.data.get_worker_info()
