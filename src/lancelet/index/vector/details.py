"""Details of a vector index in the table metadata. Indices without details are supported.

metric L2, target 8192 rows, pq {8 bits, 16 sub-vectors}, hints {"lance.ivf.max_iters": "50", ...}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from lancelet.format.protos import index_pb
from lancelet.format.wire import parse_message, render_message
from lancelet.index.kernels import Metric
from lancelet.index.vector.quantizers.registry import GRAPH, quantizer_name
from lancelet.values import dataclass

TYPE_URL: Final = "/lance.index.pb.VectorIndexDetails"
CONNECTIONS: Final = 20
CANDIDATES: Final = 150
LEVELS: Final = 7


_TITLES: Final = {
    Metric.L2: "L2",
    Metric.COSINE: "COSINE",
    Metric.DOT: "DOT",
    Metric.HAMMING: "HAMMING",
}
_CODE_VALUES: Final = ("num_bits", "num_sub_vectors", "rotation_type")


@dataclass(frozen=True, slots=True)
class IvfDetails:
    """Parameters recorded for an index. `name` is None if the metadata contain no details."""

    name: str | None = None
    metric: Metric = Metric.L2
    target_rows: int = 0
    values: Mapping[str, Any] = field(default_factory=dict, hash=False)
    hints: Mapping[str, str] = field(default_factory=dict, hash=False)
    partitions: int = 0

    @staticmethod
    def parse(data: bytes) -> IvfDetails:
        """Parse the details from the metadata."""
        message = parse_message(index_pb.VectorIndexDetails, data)
        if not data:
            return IvfDetails()
        values: dict[str, Any] = {}
        kind = message.WhichOneof("quantizer") or "flat"
        if kind == "pq":
            values = {
                "num_bits": message.pq.num_bits,
                "num_sub_vectors": message.pq.num_sub_vectors,
            }
        elif kind == "sq":
            values = {"num_bits": message.sq.num_bits}
        elif kind == "rq":
            rotation = "matrix" if message.rq.rotation_type else "fast"
            values = {"num_bits": message.rq.num_bits, "rotation_type": rotation}
        if message.HasField("hnsw"):
            config = message.hnsw
            values["m"], values["max_level"] = config.max_connections, config.max_level
            values["ef_construction"] = config.construction_ef
        name = ("IVF_HNSW_" if "m" in values else "IVF_") + kind.upper()
        return IvfDetails(
            name,
            Metric(message.metric_type),
            message.target_partition_size,
            values,
            dict(message.runtime_hints),
            message.target_num_partitions,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the recorded parameters under the names used by pylance."""
        if self.name is None:
            return {}
        result: dict[str, Any] = {"metric_type": _TITLES[self.metric]}
        if self.target_rows:
            result["target_partition_size"] = self.target_rows
        if self.name.startswith(GRAPH):
            names = {"max_connections": "m", "construction_ef": "ef_construction"}
            names["max_level"] = "max_level"
            result["hnsw"] = {key: self.values.get(parameters) for key, parameters in names.items()}
        kind = quantizer_name(self.name)
        if kind != "FLAT":
            parameters = {key: self.values[key] for key in _CODE_VALUES if key in self.values}
            result["compression"] = {"type": kind.lower(), **parameters}
        return {**result, "runtime_hints": dict(self.hints)}

    def render(self) -> bytes:
        """Encode the details for the metadata."""
        if self.name is None:
            return b""
        message = index_pb.VectorIndexDetails(
            metric_type=index_pb.VectorMetricType.Name(int(self.metric)),
            target_partition_size=self.target_rows,
            runtime_hints=dict(self.hints),
            target_num_partitions=self.partitions,
        )
        bits = int(self.values.get("num_bits", 8))
        match quantizer_name(self.name):
            case "PQ":
                message.pq.num_bits = bits
                message.pq.num_sub_vectors = int(self.values["num_sub_vectors"])
            case "SQ":
                message.sq.num_bits = bits
            case "RQ":
                message.rq.num_bits = bits
            case _:
                message.flat.SetInParent()
        if self.name.startswith(GRAPH):
            config = message.hnsw
            config.max_connections = int(self.values.get("m", CONNECTIONS))
            config.construction_ef = int(self.values.get("ef_construction", CANDIDATES))
            config.max_level = int(self.values.get("max_level", LEVELS))
        return render_message(message)
