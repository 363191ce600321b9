"""Rank and world size of this process, in a distributed run and among the workers of a loader.

2 machines, 3 workers each      machine 1, worker 2      rank 5 of 6
"""

from __future__ import annotations

from typing import Any

from lancelet.torch.required import torch_if_installed


def get_dist_world_size() -> int:
    """Return the world size of the distributed run, 1 without one."""
    processes = _processes()
    return 1 if processes is None else int(processes.get_world_size())


def get_dist_rank() -> int:
    """Return which of them this is."""
    processes = _processes()
    return 0 if processes is None else int(processes.get_rank())


def get_mp_world_size() -> int:
    """Return the number of workers of the loader, 1 outside of one."""
    worker = _worker()
    return 1 if worker is None else int(worker.num_workers)


def get_mp_rank() -> int:
    """Return which of them this is."""
    worker = _worker()
    return 0 if worker is None else int(worker.id)


def get_global_world_size() -> int:
    """Return the number of processes that read."""
    return get_dist_world_size() * get_mp_world_size()


def get_global_rank() -> int:
    """Return which of them this is."""
    return get_dist_rank() * get_mp_world_size() + get_mp_rank()


def _processes() -> Any:
    torch = torch_if_installed()
    if torch is None or not torch.distributed.is_available():
        return None
    return torch.distributed if torch.distributed.is_initialized() else None


def _worker() -> Any:
    torch = torch_if_installed()
    return None if torch is None else torch.utils.data.get_worker_info()
