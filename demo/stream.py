"""A stream from one table into another, exactly once; as a program, so that it can be killed.

python demo/stream.py FOLDER SOURCE TARGET CHECKPOINT ROWS_PER_BATCH
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def stream(spark: SparkSession, source: str, target: str, checkpoint: str, rows: int) -> int:
    """Take everything that is in the source and not yet in the target; return the batches run."""
    query = (
        spark.readStream.format("lance")
        .option("max_rows_per_batch", rows)
        .load(source)
        .writeStream.format("lance")
        .option("path", target)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return len(query.recentProgress)


def main() -> None:
    folder, source, target, checkpoint, rows = sys.argv[1:]
    spark = open_session(Path(folder))
    stream(spark, source, target, checkpoint, int(rows))
    spark.stop()


if __name__ == "__main__":
    main()
