"""The Spark data source `lance`, with deferred imports.

Spark imports every package named `pyspark_...` in a short-lived process when a session first uses
any format. Therefore this module imports lancelet only when the format is used, and is pickled by
reference.
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
    """The data source for reads, writes and streams of the format `lance`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "lance"

    def schema(self) -> StructType:
        """Return the schema for the given options."""
        # Spark does not indicate streaming, but change feeds and logs exist only for streams.
        if {"change_feed", "log"} & {name.lower() for name in self.options}:
            from lancelet.spark.stream_reader import stream_schema  # noqa: PLC0415 - see above

            return stream_schema(self.options)
        from lancelet.spark.reader import read_schema  # noqa: PLC0415 - see above

        return read_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch; pins the version."""
        from lancelet.spark.reader import LanceReader  # noqa: PLC0415 - see above

        return LanceReader.plan(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch: tasks write rows, the driver commits once."""
        from lancelet.spark.writer import LanceWriter  # noqa: PLC0415 - see above

        return LanceWriter.prepare(self.options, schema, overwrite=overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a stream of new versions."""
        from lancelet.spark.stream_reader import LanceStreamReader  # noqa: PLC0415 - see above

        return LanceStreamReader.prepare(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """Return the writer of a stream; each batch is committed exactly once."""
        from lancelet.spark.stream_writer import LanceStreamWriter  # noqa: PLC0415 - see above

        return LanceStreamWriter.prepare(self.options, schema, overwrite=overwrite)
