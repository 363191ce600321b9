"""Functions of pylance's native module."""

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
from lancelet.memwal.sstable import KEYS_FOLDER, write_keys


def manifest_needs_migration(dataset: LanceDataset) -> bool:
    """Return whether the manifest lacks row counts, as in releases before 0.8.1."""
    return any(fragment.physical_rows is None for fragment in dataset.snapshot.fragments)


def register_lance_metrics_recorder() -> bool:
    """Start to count requests of stores; see `lancelet.otel`."""
    return REQUEST_METRICS.install()


def lance_metrics_catalog() -> list[MetricDescription]:
    """Return the descriptions of the metrics; empty before a recorder is registered."""
    return list(CATALOG) if REQUEST_METRICS.is_installed else []


def snapshot_lance_metrics() -> list[MetricPoint]:
    """Return the current values of the metrics."""
    return REQUEST_METRICS.points()


def write_pk_sidecar(
    gen_path: str | os.PathLike[str], data: pa.Table, pk_columns: Sequence[str]
) -> None:
    """Write the key index of a manually created SSTable next to it."""
    folder = SegmentFolder(open_folder(gen_path), KEYS_FOLDER)
    write_keys(folder, data.select(list(pk_columns)))
