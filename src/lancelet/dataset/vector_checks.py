"""Looking whether a vector index finds what it has: each vector is nearest to itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lancelet.errors import InvalidInputError

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset

_NOTHING: Final = 1e-6


class IndexFailedError(InvalidInputError):
    """An index does not find vectors that it has."""


def validate_vector_index(
    dataset: LanceDataset,
    column: str,
    refine_factor: int = 5,
    sample_size: int | None = None,
    pass_threshold: float = 1.0,
) -> None:
    """Raise unless vectors of a table are found by themselves in the nearest partition.

    Args:
        dataset: The table.
        column: The path of the column.
        refine_factor: How many candidates are compared exactly for the one that is wanted.
        sample_size: How many vectors to look for, by default all.
        pass_threshold: The part of them that must be found.
    """
    chosen = (
        dataset.to_table(columns=[column])
        if sample_size is None
        else dataset.sample(sample_size, columns=[column])
    )
    vectors = chosen[column].drop_null().to_numpy(zero_copy_only=False)
    total = passed = 0
    for vector in vectors:
        if not np.isfinite(vector).all():
            continue
        total += 1
        nearest = {
            "column": column,
            "q": vector,
            "k": 1,
            "nprobes": 1,
            "refine_factor": refine_factor,
        }
        found = dataset.to_table(columns=["_distance"], nearest=nearest)["_distance"].to_pylist()
        passed += bool(found) and abs(found[0]) < _NOTHING
    if passed < pass_threshold * total:
        raise IndexFailedError(f"Vector index failed sanity check, only {passed}/{total} passed")
