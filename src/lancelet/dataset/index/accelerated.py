"""Centroids and PQ codebooks trained on an accelerator, if one is available.

An index needs none: without PyTorch, or on a machine that does not have the device, the log says
so and the models are found as ever. They differ by what chance chose, not in how good they are.
Words are found for `L2` and `cosine`, whose codes are of residuals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lancelet.errors import UnsupportedError
from lancelet.log import LOGGER
from lancelet.torch.device import preferred_device

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset

_WORD_BITS = 8
_ITERATIONS = 50
_SAMPLE_RATE = 256


def models_on(
    accelerator: Any, table: LanceDataset, column: str, index_type: str, values: Mapping[str, Any]
) -> tuple[Any, Any]:
    """Return centroids and words as `create_index` takes them, None for what is found without.

    Args:
        accelerator: The device.
        table: Where the vectors are.
        column: Their column.
        index_type: What is to be built.
        values: The parameters of the index, its metric among them.
    """
    partitions, metric = values.get("num_partitions"), str(values["metric"])
    if not partitions or metric.lower() == "hamming" or not _has(accelerator):
        return None, None
    from lancelet.torch.training import (  # noqa: PLC0415 - PyTorch is slow to load
        one_pass_train_ivf_pq_on_accelerator,
        train_ivf_centroids_on_accelerator,
    )

    options: dict[str, Any] = {
        "sample_rate": values.get("sample_rate") or _SAMPLE_RATE,
        "max_iters": values.get("max_iters") or _ITERATIONS,
    }
    has_words = index_type.upper().endswith("PQ") and values.get("num_bits") in (None, _WORD_BITS)
    if not has_words or not values.get("num_sub_vectors") or metric.lower() == "dot":
        found = train_ivf_centroids_on_accelerator(
            table, column, partitions, metric, accelerator, **options
        )
        return found[0], None
    centroids, _, words, _ = one_pass_train_ivf_pq_on_accelerator(
        table, column, partitions, metric, accelerator, values["num_sub_vectors"], **options
    )
    return centroids, words


def _has(accelerator: Any) -> bool:
    try:
        import torch  # noqa: PLC0415 - an extra

        torch.empty(1, device=preferred_device(accelerator))
    except (ImportError, UnsupportedError, RuntimeError, AssertionError) as error:
        LOGGER.warning(
            "this machine does not support GPU acceleration; falling back to CPU (%s: %s)",
            accelerator,
            error,
        )
        return False
    return True
