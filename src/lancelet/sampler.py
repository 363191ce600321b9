"""Samplers for training. Mirrors the pylance module of this name."""

from lancelet.dataset.scan.random_rows import PrioritizedItem, maybe_sample, reservoir_sampling
from lancelet.dataset.scan.sampling import (
    FragmentSampler,
    FullScanSampler,
    Sampler,
    ShardedBatchSampler,
    ShardedFixedBatchSampler,
    ShardedFragmentSampler,
)

__all__ = [
    "FragmentSampler",
    "FullScanSampler",
    "PrioritizedItem",
    "Sampler",
    "ShardedBatchSampler",
    "ShardedFixedBatchSampler",
    "ShardedFragmentSampler",
    "maybe_sample",
    "reservoir_sampling",
]
