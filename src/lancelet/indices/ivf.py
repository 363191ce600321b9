"""Trained IVF centroids, stored between the steps of a distributed build."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import pyarrow as pa

from lancelet.file import LanceFileReader, LanceFileWriter


class IvfModel:
    """Trained IVF centroids.

    Attributes:
        centroids: The centroid of each partition.
        distance_type: The distance type used for training.
    """

    def __init__(self, centroids: pa.FixedSizeListArray, distance_type: str) -> None:
        """Create a model from centroids."""
        self.centroids = centroids
        self.distance_type = distance_type

    @property
    def num_partitions(self) -> int:
        """Number of partitions."""
        return len(self.centroids)

    def save(self, uri: str, *, storage_options: Mapping[str, str] | None = None) -> None:
        """Write the centroids to a Lance file."""
        field = pa.field("centroids", self.centroids.type)
        schema = pa.schema([field], metadata={"distance_type": self.distance_type})
        with LanceFileWriter(uri, schema, storage_options=storage_options) as writer:
            writer.write_batch(pa.table([self.centroids], names=["centroids"]))

    @classmethod
    def load(cls, uri: str, *, storage_options: Mapping[str, str] | None = None) -> Self:
        """Load a model written by `save`."""
        reader = LanceFileReader(uri, storage_options=storage_options)
        metadata = reader.metadata().schema.metadata
        table = reader.read_all().to_table()
        return cls(table.column("centroids").combine_chunks(), metadata[b"distance_type"].decode())
