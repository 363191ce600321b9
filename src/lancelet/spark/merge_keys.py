"""The keys of a small merge source, as a filter of the table.

    source   id 7, 9, 12             computed once, by the driver
    table    id IN (7, 9, 12)        an index or zone statistics find the rows

Without the filter, the join reads the key columns of all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import FractionalType, IntegralType, StringType

from lancelet.jobs.split import estimate_bytes
from lancelet.spark.small_reads import is_plain, local_frame
from lancelet.spark.sql.analysis import TableColumns
from lancelet.spark.sql.predicates import joined, membership
from lancelet.spark.types import spark_type
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_ROWS_MAX: Final = 100_000
_BYTES_MAX: Final = 16 * 1024 * 1024
TABLE_BYTES_MIN: Final = 2 * 1024 * 1024
"""Minimum size of the key columns of a table to read a source for, in bytes."""

Keys = Sequence[tuple[str, str]]
"""Pairs of table and source columns that are equal in matching rows."""


@dataclass(frozen=True, slots=True)
class SmallSource:
    """A source that the driver has read: its rows as a data frame, and as a table."""

    frame: DataFrame
    rows: pa.Table

    @staticmethod
    def read(frame: DataFrame, snapshot: Snapshot, keys: Keys) -> SmallSource | None:
        """Read a source, or return None if it is not small or the table is."""
        names = {name for name, _ in keys}
        fields = [each for each in snapshot.schema.fields if each.name in names]
        if not fields or estimate_bytes(snapshot, fields=fields) < TABLE_BYTES_MIN:
            return None
        if not is_plain(frame.schema) or len(set(frame.columns)) < len(frame.columns):
            return None
        rows = frame.limit(_ROWS_MAX + 1).toArrow()
        if rows.num_rows > _ROWS_MAX or rows.nbytes > _BYTES_MAX:
            return None
        return SmallSource(local_frame(frame.sparkSession, rows, frame.schema), rows)

    def compares_bytes(self, columns: Sequence[str]) -> bool:
        """Return whether values of columns are equal exactly if their bytes are."""
        types = [self.frame.schema[name].dataType for name in columns]
        return all(isinstance(each, IntegralType) or each == StringType() for each in types)

    def repeats(self, columns: Sequence[str]) -> bool:
        """Return whether several rows without nulls have the same values in columns."""
        rows = self.rows.select(list(columns)).drop_null()
        return bool(rows.group_by(list(columns)).aggregate([]).num_rows < rows.num_rows)

    def filter_of(self, snapshot: Snapshot, keys: Keys) -> str | None:
        """Return a filter for the table rows that may match a row of the source."""
        columns = TableColumns.of(snapshot.schema)
        filters = []
        for mine, theirs in keys:
            field = columns.find(mine)
            if field is None or pa.types.is_null(field.type):
                continue
            own, other = spark_type(field.type), self.frame.schema[theirs].dataType
            is_whole = isinstance(own, IntegralType) and isinstance(other, IntegralType)
            if (own != other and not is_whole) or isinstance(own, FractionalType):
                continue
            values = pc.unique(self.rows.column(theirs)).drop_null().to_pylist()
            found = membership(field, values)
            if found is not None:
                filters.append(found)
        return joined(filters) if filters else None
