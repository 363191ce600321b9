"""The format `lance`, without anything that is not needed before it is used.

Spark imports every package called `pyspark_...` in a short-lived process when a session first
looks for any format, used or not. So this module imports nothing of lancelet until the format is
used, and pickles as a reference that workers resolve by the same name.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """The format `lance` of Spark's readers, writers and streams."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "lance"

    def schema(self) -> StructType:
        """Return the schema of what the options ask for."""
        # Spark does not say whether it is for a stream, but only streams have changes and logs.
        if {"change_feed", "log"} & {name.lower() for name in self.options}:
            from lancelet.spark.stream_reader import stream_schema  # noqa: PLC0415 - see above

            return stream_schema(self.options)
        from lancelet.spark.reader import read_schema  # noqa: PLC0415 - see above

        return read_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what plans and runs a batch read; the version is pinned here."""
        from lancelet.spark.reader import LanceReader  # noqa: PLC0415 - see above

        return LanceReader.plan(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return what writes rows in tasks and commits them once."""
        from lancelet.spark.writer import LanceWriter  # noqa: PLC0415 - see above

        return LanceWriter.prepare(self.options, schema, overwrite=overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return what reads new rows as versions appear."""
        from lancelet.spark.stream_reader import LanceStreamReader  # noqa: PLC0415 - see above

        return LanceStreamReader.prepare(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """Return what writes the batches of a stream, each exactly once."""
        from lancelet.spark.stream_writer import LanceStreamWriter  # noqa: PLC0415 - see above

        return LanceStreamWriter.prepare(self.options, schema, overwrite=overwrite)
