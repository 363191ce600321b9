"""Functions that pylance has in native code alone."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pyarrow as pa

from lancelet.dataset.dataset import LanceDataset
from lancelet.index.folder import SegmentFolder
from lancelet.io.open import open_folder
from lancelet.io.request_metrics import (
    CATALOG,
    REQUEST_METRICS,
    MetricDescription,
    MetricPoint,
)
from lancelet.ops.mem_wal.sstable import KEYS_FOLDER, write_keys


def manifest_needs_migration(dataset: LanceDataset) -> bool:
    """Whether the manifest lacks counts of rows, which releases before 0.8.1 left out."""
    return any(fragment.physical_rows is None for fragment in dataset.snapshot.fragments)


def register_lance_metrics_recorder() -> bool:
    """Begin to count requests of stores; see `lancelet.otel`."""
    return REQUEST_METRICS.install()


def lance_metrics_catalog() -> list[MetricDescription]:
    """Return what is counted; nothing is before a recorder is registered."""
    return list(CATALOG) if REQUEST_METRICS.is_installed else []


def snapshot_lance_metrics() -> list[MetricPoint]:
    """Return what was counted so far."""
    return REQUEST_METRICS.points()


def write_pk_sidecar(
    gen_path: str | os.PathLike[str], data: pa.Table, pk_columns: Sequence[str]
) -> None:
    """Write where each key is beside a table of flushed rows that was put there by hand."""
    folder = SegmentFolder(open_folder(gen_path), KEYS_FOLDER)
    write_keys(folder, data.select(list(pk_columns)))
