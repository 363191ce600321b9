"""A stream from one table into another, exactly once; as a program it goes on until it is killed.

python demo/stream.py FOLDER SOURCE TARGET CHECKPOINT ROWS_PER_BATCH
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

WAIT_SECONDS = 1


def stream(
    spark: SparkSession,
    source: str,
    target: str,
    checkpoint: str,
    rows: int,
    *,
    is_endless: bool = False,
) -> StreamingQuery:
    """Start to take what is in the source and not yet in the target, and then end or go on."""
    writer = (
        spark.readStream.format("lance")
        .option("max_rows_per_batch", rows)
        .load(source)
        .writeStream.format("lance")
        .option("path", target)
        .option("checkpointLocation", checkpoint)
    )
    return (writer if is_endless else writer.trigger(availableNow=True)).start()


def main() -> None:
    folder, source, target, checkpoint, rows = sys.argv[1:]
    parent = os.getppid()
    spark = open_session(Path(folder))
    query = stream(spark, source, target, checkpoint, int(rows), is_endless=True)
    # Without the one who was to kill it, it ends by itself.
    while os.getppid() == parent and not query.awaitTermination(WAIT_SECONDS):
        pass


if __name__ == "__main__":
    main()
