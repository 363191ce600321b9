"""The write-ahead log of datasets. Mirrors the pylance module of this name."""

from lancelet.dataset.mem_wal.methods import (
    CompactedSsTable,
    ShardWriter,
    evaluate_sharding_spec,
)
from lancelet.dataset.mem_wal.readers import (
    ExecutionPlan,
    LsmPointLookupPlanner,
    LsmReader,
    LsmScanner,
    LsmVectorSearchPlanner,
    ShardSnapshot,
)
from lancelet.memwal.sharding import ShardingField, ShardingSpec

__all__ = [
    "CompactedSsTable",
    "ExecutionPlan",
    "LsmPointLookupPlanner",
    "LsmReader",
    "LsmScanner",
    "LsmVectorSearchPlanner",
    "ShardSnapshot",
    "ShardWriter",
    "ShardingField",
    "ShardingSpec",
    "evaluate_sharding_spec",
]
