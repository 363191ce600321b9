"""Listings and statistics of indices match pylance for the same files."""

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancelet

pytestmark = pytest.mark.interop


BOUNDED = {
    "int": pa.array([3, 1, 2]),
    "nulls": pa.array([None, 2, None]),
    "only nulls": pa.array([None, None], pa.string()),
    "text": pa.array(["b", None, "a"]),
    "float": pa.array([1.5, -2.0, 1e20]),
    "small float": pa.array([0.1, 1e-7, float("inf")], pa.float32()),
    "nan": pa.array([float("nan"), 1.0]),
    "half": pa.array([1.5, 3.0]).cast(pa.float16()),
    "bool": pa.array([True, False]),
    "date": pa.array([19_000, 0], pa.int32()).cast(pa.date32()),
    "timestamp": pa.array([1_600_000_000_000_001, 5]).cast(pa.timestamp("us")),
    "zoned": pa.array([1_600_000_000_000, 5]).cast(pa.timestamp("ms", "UTC")),
    "time": pa.array([61, 5], pa.int32()).cast(pa.time32("s")),
    "duration": pa.array([61, 5]).cast(pa.duration("s")),
    "decimal": pa.array(["1.50", "-2.25"]).cast(pa.decimal128(9, 2)),
    "bytes": pa.array([b"ab\x00\xff", b""]),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_the_bounds_of_a_btree_are_shown_as_the_reference_does(tmp_path, name):
    path = str(tmp_path / "t.lance")
    lancelet.write_dataset(pa.table({"v": BOUNDED[name]}), path)
    lancelet.dataset(path).create_scalar_index("v", "BTREE")
    own, other = (side.dataset(path).stats.index_stats("v_idx") for side in (lancelet, lance))
    assert own["segments"] == other["segments"]


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "ZONEMAP", "NGRAM", "INVERTED", "IVF_FLAT"])
@pytest.mark.parametrize("writer", [lance, lancelet])
def test_an_index_covers_the_fragments_that_a_deferred_compaction_wrote(tmp_path, kind, writer):
    path = str(tmp_path / "t.lance")
    vectors = pa.array(np.random.default_rng(0).random(600 * 4).astype(np.float32))
    columns = {
        "n": range(600),
        "s": [f"word{number}" for number in range(600)],
        "v": pa.FixedSizeListArray.from_arrays(vectors, 4),
    }
    dataset = writer.write_dataset(pa.table(columns), path, max_rows_per_file=100)
    if kind == "IVF_FLAT":
        dataset.create_index("v", kind, num_partitions=1, name="i")
    else:
        column = "s" if kind in {"NGRAM", "INVERTED"} else "n"
        dataset.create_scalar_index(column, kind, name="i")
    dataset.delete("n = 7")
    dataset.optimize.compact_files(defer_index_remap=True)

    def described(side):
        found = side.dataset(path)
        (index,) = [each for each in found.describe_indices() if each.name == "i"]
        numbers = found.stats.index_stats("i")
        return (
            index.num_rows_indexed,
            [sorted(each.fragment_ids) for each in index.segments],
            [numbers[key] for key in ("num_indexed_rows", "num_unindexed_rows")],
            [numbers[key] for key in ("num_indexed_fragments", "num_unindexed_fragments")],
        )

    assert described(lancelet) == described(lance)
    assert described(lancelet)[0] == 599
