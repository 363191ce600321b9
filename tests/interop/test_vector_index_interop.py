"""Vector indices both ways: each searches what the other wrote, with the same distances.

Vectors lie in clusters. Recall is the share of the ten nearest rows that a search finds, over a few
queries. What one index returns does not depend on who searches it, so the two recalls of one index
are equal; those of two indices are near each other, since models are found by chance.
"""

import shutil
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.arrow import bfloat16_array

import lancelet
from lancelet.errors import LanceletError, UnsupportedError
from lancelet.index.folder import SegmentFolder
from lancelet.index.vector.legacy_file import LegacyFile, write_legacy_file
from lancelet.index.vector.vectors import prepare
from lancelet.io.local import LocalStore
from lancelet.scan.indexing.segments import table_segment

pytestmark = pytest.mark.interop
HISTORICAL = Path(__file__).parents[1] / "golden" / "historical"
DIMENSION = 32
ROWS = 2000
KINDS = (
    "IVF_FLAT",
    "IVF_PQ",
    "IVF_SQ",
    "IVF_RQ",
    "IVF_HNSW_FLAT",
    "IVF_HNSW_PQ",
    "IVF_HNSW_SQ",
)
BFLOAT16 = bfloat16_array([0.0]).type
ELEMENTS = (pa.float16(), pa.float32(), pa.float64(), pa.uint8(), pa.int8(), BFLOAT16)
CASES = [(kind, element) for kind in KINDS for element in ELEMENTS[:3]]
NEAREST = 10


def clustered(seed, rows=ROWS):
    random = np.random.default_rng(7)
    centers = random.normal(size=(30, DIMENSION)) * 3
    random = np.random.default_rng(seed)
    return centers[random.integers(0, 30, rows)] + random.normal(size=(rows, DIMENSION))


def table_of(vectors, element, first=0):
    values = pa.array(vectors.astype(element.to_pandas_dtype()).reshape(-1), element)
    array = pa.FixedSizeListArray.from_arrays(values, vectors.shape[1])
    return pa.table({"id": range(first, first + len(vectors)), "v": array})


def arguments(kind, **others):
    """Return options with which partitions of kinds with graphs are too large to be scanned."""
    own = {"num_sub_vectors": 8} if "PQ" in kind else {}
    return {"num_partitions": 1 if "HNSW" in kind else 3, **own, **others}


def found(dataset, query, **options):
    result = dataset.to_table(
        nearest={"column": "v", "q": query, "k": NEAREST, "nprobes": 3, **options},
        columns=["id", "_distance"],
    )
    return dict(zip(result["id"].to_pylist(), result["_distance"].to_pylist(), strict=True))


def queries_of(element, count=16):
    random = np.random.default_rng(3)
    near = clustered(1)[:count] + random.normal(size=(count, DIMENSION)) * 0.2
    return near.astype(element.to_pandas_dtype())


def compare(path, kind, element, metric):
    """Return the recall of each on the index there is, after comparing distances.

    The reference rounds its tables of RQ codes, so its estimates are a little off the formula.
    """
    theirs, ours = lance.dataset(path), lancelet.dataset(path)
    hits = {"theirs": 0, "ours": 0}
    tolerance = 3e-2 if element == pa.float16() else 1e-3
    if kind == "IVF_RQ":
        tolerance = {"l2": 5.0, "cosine": 0.03, "dot": 5.0}[metric]
    for query in queries_of(element):
        exact = set(found(ours, query, use_index=False, metric=metric))
        one, other = found(theirs, query), found(ours, query)
        assert len(other) == NEAREST
        common = one.keys() & other.keys()
        assert len(common) >= NEAREST - 3
        for row in common:
            assert other[row] == pytest.approx(one[row], rel=tolerance, abs=tolerance)
        hits["theirs"] += len(exact & one.keys())
        hits["ours"] += len(exact & other.keys())
    total = NEAREST * len(queries_of(element))
    return {name: count / total for name, count in hits.items()}


@pytest.mark.parametrize("metric", ["l2", "cosine", pytest.param("dot", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("kind", "element"), CASES, ids=str)
def test_each_searches_what_the_other_wrote(tmp_path, kind, element, metric):
    recalls = {}
    for writer in (lance, lancelet):
        path = str(tmp_path / f"{writer.__name__}.lance")
        lance.write_dataset(table_of(clustered(1), element), path, max_rows_per_file=2000)
        writer.dataset(path).create_index("v", kind, metric=metric, **arguments(kind))
        recalls[writer.__name__] = compare(path, kind, element, metric)
    for own in recalls.values():
        assert own["ours"] >= own["theirs"] - 0.04
    assert recalls["lancelet"]["ours"] >= recalls["lance"]["ours"] - 0.1


@pytest.mark.parametrize("kind", ["IVF_FLAT", "IVF_HNSW_FLAT"])
@pytest.mark.parametrize("writer", [lance, lancelet])
def test_hamming_finds_bytes_by_their_bits(tmp_path, writer, kind):
    random = np.random.default_rng(5)
    centers = random.integers(0, 2, (40, 128))
    bits = centers[random.integers(0, 40, 4000)] ^ (random.random((4000, 128)) < 0.1)
    vectors = np.packbits(bits, axis=1)
    path = str(tmp_path / "bits.lance")
    lance.write_dataset(table_of(vectors, pa.uint8()), path)
    writer.dataset(path).create_index("v", kind, metric="hamming", num_partitions=2)
    hits = {lance: 0, lancelet: 0}
    queries = vectors[:10] ^ np.uint8(1)
    for query in queries:
        exact = np.unpackbits(vectors ^ query, axis=1).sum(axis=1)
        farthest = np.sort(exact)[NEAREST - 1]
        for reader in hits:
            answer = found(reader.dataset(path), query)
            assert answer == {row: exact[row] for row in answer}
            hits[reader] += sum(distance <= farthest for distance in answer.values())
    assert hits[lancelet] >= 0.95 * NEAREST * len(queries)
    assert hits[lance] >= 0.95 * NEAREST * len(queries)


def is_supported(kind, element, metric):
    if metric == "hamming":
        return element == pa.uint8() and kind.endswith("FLAT")
    return element in ELEMENTS[:3]


@pytest.mark.parametrize("element", ELEMENTS, ids=str)
@pytest.mark.parametrize("metric", ["l2", "cosine", "dot", "hamming"])
def test_the_same_combinations_are_rejected(tmp_path, metric, element):
    numbers = np.arange(300 * 8) % 7
    values = (
        bfloat16_array(numbers.tolist()) if element == BFLOAT16 else pa.array(numbers).cast(element)
    )
    vectors = pa.FixedSizeListArray.from_arrays(values, 8)
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"v": vectors}), path)
    for kind in KINDS:
        options = arguments(kind, metric=metric, replace=True) | {"num_partitions": 1}
        for library in (lance, lancelet):
            dataset = library.dataset(path)
            if is_supported(kind, element, metric):
                dataset.create_index("v", kind, **options)
                continue
            with pytest.raises(LanceletError if library is lancelet else Exception):
                dataset.create_index("v", kind, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_the_reference_appends_to_and_optimises_what_is_written_here(tmp_path, kind):
    path = str(tmp_path / "life.lance")
    lancelet.write_dataset(table_of(clustered(1), pa.float32()), path)
    lancelet.dataset(path).create_index("v", kind, **arguments(kind))
    for count in (0, 1):
        first = lance.dataset(path).count_rows()
        lance.write_dataset(table_of(clustered(9, 500), pa.float32(), first), path, mode="append")
        lance.dataset(path).optimize.optimize_indices(num_indices_to_merge=count)
    ours, theirs = lancelet.dataset(path), lance.dataset(path)
    assert ours.stats.index_stats("v_idx")["num_unindexed_rows"] == 0
    for query in clustered(9, 5).astype(np.float32):
        exact = set(found(ours, query, use_index=False))
        for dataset in (ours, theirs):
            own = found(dataset, query, refine_factor=10)
            assert len(exact & own.keys()) >= NEAREST - 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stable", [False, True])
def test_indices_of_the_reference_can_be_updated(tmp_path, kind, stable):
    path = str(tmp_path / "life.lance")
    lance.write_dataset(
        table_of(clustered(1), pa.float32()),
        path,
        max_rows_per_file=1000,
        enable_stable_row_ids=stable,
    )
    lance.dataset(path).create_index("v", kind, **arguments(kind))
    ours = lancelet.dataset(path)
    ours.delete("id % 3 = 0")
    ours.optimize.compact_files()
    ours = lancelet.write_dataset(
        table_of(clustered(9, 500), pa.float32(), ROWS), path, mode="append"
    )
    ours.optimize.optimize_indices()
    assert ours.stats.index_stats("v_idx")["num_unindexed_rows"] == 0
    theirs = lance.dataset(path)
    for query in clustered(4, 5).astype(np.float32):
        exact = set(found(ours, query, use_index=False))
        for dataset in (ours, theirs):
            own = found(dataset, query, refine_factor=10)
            assert len(own) == NEAREST
            assert all(row % 3 or row >= ROWS for row in own)
            assert len(exact & own.keys()) >= NEAREST - 2


def test_statistics_have_the_names_of_the_reference(tmp_path):
    path = str(tmp_path / "statistics.lance")
    lance.write_dataset(table_of(clustered(1), pa.float32()), path)
    lance.dataset(path).create_index("v", "IVF_PQ", **arguments("IVF_PQ"))
    theirs = lance.dataset(path).stats.index_stats("v_idx")
    ours = lancelet.dataset(path).stats.index_stats("v_idx")
    own, other = ours["indices"][0], theirs["indices"][0]
    for key in ("index_type", "metric_type", "num_partitions", "partitions", "loss"):
        assert own[key] == other[key], key
    assert own["sub_index"]["num_sub_vectors"] == other["sub_index"]["num_sub_vectors"]
    assert ours["index_type"] == theirs["index_type"]


def files_of(path):
    return sorted(file.name for file in Path(path).glob("_indices/*/*"))


@pytest.mark.parametrize("writer", [lance, lancelet])
@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
@pytest.mark.parametrize("element", [pa.float16(), pa.float32(), pa.float64()])
def test_an_index_in_one_file_is_searched_identically(tmp_path, writer, metric, element):
    path = str(tmp_path / "one.lance")
    lance.write_dataset(table_of(clustered(1), element), path)
    writer.dataset(path).create_index(
        "v",
        "IVF_PQ",
        metric=metric,
        index_file_version="LEGACY",
        **arguments("IVF_PQ"),
    )
    assert files_of(path) == ["index.idx"]
    for query in clustered(4, 3).astype(element.to_pandas_dtype()):
        theirs, ours = (
            found(module.dataset(path), query, nprobes=3) for module in (lance, lancelet)
        )
        assert list(ours.values()) == pytest.approx(list(theirs.values()), rel=2e-3, abs=2e-3)
        assert len(ours.keys() & theirs.keys()) >= NEAREST - 1
    own, other = (
        module.dataset(path).stats.index_stats("v_idx")["indices"][0]
        for module in (lancelet, lance)
    )
    assert own["index_file_version"] == other["index_file_version"] == "Legacy"
    assert own["partitions"] == other["partitions"]
    assert own["sub_index"] == other["sub_index"]
    assert not lancelet.dataset(path).check()


def test_words_of_four_bits_are_read_from_one_file_and_not_written(tmp_path):
    """The reference writes such files and cannot read them, so nobody is given another one."""
    path = str(tmp_path / "one.lance")
    lance.write_dataset(table_of(clustered(1), pa.float32()), path)
    wanted = arguments("IVF_PQ", num_bits=4, index_file_version="LEGACY")
    lance.dataset(path).create_index("v", "IVF_PQ", **wanted)
    query = clustered(4, 1)[0].astype(np.float32)
    with pytest.raises(pa.ArrowInvalid):
        found(lance.dataset(path), query)
    ours = lancelet.dataset(path)
    exact = set(found(ours, query, use_index=False))
    assert set(found(ours, query, refine_factor=20)) == exact
    with pytest.raises(UnsupportedError, match="8-bit codes"):
        ours.create_index("v", "IVF_PQ", replace=True, **wanted)


def test_the_layout_in_one_file_is_that_of_the_reference_to_the_byte(tmp_path):
    """Written again from what was read, a file of the reference has the same bytes."""
    path = str(tmp_path / "one.lance")
    lance.write_dataset(table_of(clustered(1), pa.float32()), path)
    lance.dataset(path).create_index(
        "v", "IVF_PQ", index_file_version="LEGACY", **arguments("IVF_PQ")
    )
    (stored,) = Path(path).glob("_indices/*/index.idx")
    read = LegacyFile(SegmentFolder(LocalStore(stored.parent.parent), stored.parent.name))
    folder = SegmentFolder(LocalStore(tmp_path), "again")
    parts = (read.read(number) for number in range(read.model.partitions))
    write_legacy_file(folder, read.model, read.quantizer, parts, read.origin)
    assert (tmp_path / "again" / "index.idx").read_bytes() == stored.read_bytes()


def test_kinds_without_that_layout_are_written_in_two_files(tmp_path):
    for number, module in enumerate((lance, lancelet)):
        path = str(tmp_path / str(number))
        dataset = module.write_dataset(table_of(clustered(1), pa.float32()), path)
        dataset.create_index("v", "IVF_SQ", index_file_version="LEGACY", num_partitions=2)
        assert files_of(path) == ["auxiliary.idx", "index.idx"]
        with pytest.raises(ValueError, match="FOO"):
            dataset.create_index("v", "IVF_PQ", index_file_version="FOO", **arguments("IVF_PQ"))


def test_an_index_in_one_file_is_updated(tmp_path):
    path = str(tmp_path / "one.lance")
    table = table_of(clustered(1), pa.float32())
    theirs = lance.write_dataset(table, path, max_rows_per_file=len(table) // 2)
    theirs.create_index("v", "IVF_PQ", index_file_version="LEGACY", **arguments("IVF_PQ"))
    ours = lancelet.dataset(path)
    ours.delete("id % 5 = 0")
    ours.optimize.compact_files()
    assert files_of(path)[-1] == "index.idx"
    ours.insert(table.slice(0, 5))
    query = clustered(4, 1)[0].astype(np.float32)

    def nearest(module):
        return set(found(module.dataset(path), query, nprobes=16, refine_factor=20))

    exact = set(found(ours, query, use_index=False))
    assert nearest(lance) == nearest(lancelet) == exact
    ours.optimize.optimize_indices()
    assert ours.stats.index_stats("v_idx")["num_unindexed_rows"] == 0
    assert nearest(lance) == nearest(lancelet) == exact


def test_indices_of_the_first_releases_are_searched():
    """Two segments in one file each, without details, whose fragments overlap."""
    path = str(HISTORICAL / "v0.21.0" / "bad_index_fragment_bitmap")
    ours, theirs = lancelet.dataset(path), lance.dataset(path)
    query = np.asarray(ours.to_table()["vector"][7].as_py(), np.float32)
    wanted = {"column": "vector", "q": query, "k": 5}
    assert "ANNSubIndex" in ours.scanner(nearest=wanted).explain_plan()
    own, other = (each.to_table(nearest=wanted)["_distance"].to_pylist() for each in (ours, theirs))
    assert own == pytest.approx(other, rel=1e-4)


@pytest.mark.parametrize("writer", [lance, lancelet])
@pytest.mark.parametrize("options", [{}, {"num_indices_to_merge": 0}, {"num_indices_to_merge": 5}])
def test_an_index_that_was_only_announced_is_trained_in_its_place(tmp_path, writer, options):
    path = str(tmp_path)
    writer.write_dataset(table_of(clustered(1, 300), pa.float32()), path)
    writer.dataset(path).create_index("v", "IVF_FLAT", train=False, **arguments("IVF_FLAT"))
    lancelet.dataset(path).optimize.optimize_indices(**options)
    query = clustered(4, 1)[0].astype(np.float32)
    exact = set(found(lancelet.dataset(path), query, use_index=False))
    for module in (lance, lancelet):
        assert set(found(module.dataset(path), query)) == exact
    assert lancelet.dataset(path).stats.index_stats("v_idx")["num_segments"] == 1


def test_an_index_of_an_old_release_is_searched_and_brought_up_to_date(tmp_path):
    source = HISTORICAL / "v0.27.1" / "pq_in_schema"
    path = str(tmp_path / "old.lance")
    shutil.copytree(source, path)
    query = np.asarray(lancelet.dataset(path).to_table(columns=["vec"])["vec"][5].as_py())
    wanted = {"column": "vec", "q": query.astype(np.float32), "k": 5}

    def distances(module):
        return module.dataset(path).to_table(nearest=wanted)["_distance"].to_pylist()

    assert "ANNSubIndex" in lancelet.dataset(path).scanner(nearest=wanted).explain_plan()
    assert distances(lancelet) == pytest.approx(distances(lance), rel=1e-5)
    ours = lancelet.dataset(path)
    ours.insert(ours.to_table().slice(0, 40))
    ours.optimize.optimize_indices()
    assert ours.stats.index_stats("vec_idx")["num_unindexed_rows"] == 0
    assert distances(lancelet) == pytest.approx(distances(lance), rel=1e-5)


@pytest.mark.parametrize("writer", [lance, lancelet])
def test_lists_of_vectors_are_searched(tmp_path, writer):
    random = np.random.default_rng(2)
    lists = [clustered(row, int(random.integers(1, 4))).tolist() for row in range(600)]
    column = pa.array(lists, pa.list_(pa.list_(pa.float32(), DIMENSION)))
    path = str(tmp_path / "lists.lance")
    lance.write_dataset(pa.table({"id": range(600), "v": column}), path)
    writer.dataset(path).create_index("v", "IVF_FLAT", metric="cosine", num_partitions=1)
    query = np.array(lists[17], np.float32)
    for dataset in (lance.dataset(path), lancelet.dataset(path)):
        assert next(iter(found(dataset, query))) == 17
    ours = lancelet.dataset(path)
    exact = found(ours, query, use_index=False, metric="cosine")
    own = found(ours, query)
    assert own.keys() == exact.keys()
    assert list(own.values()) == pytest.approx(list(exact.values()), abs=1e-4)


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6, 7, 8, 9])
@pytest.mark.parametrize("metric", ["l2", "dot"])
def test_codes_of_rq_follow_from_the_model(tmp_path, bits, metric):
    """Rows the reference encoded are encoded again: same signs, factors, and nearly all codes."""
    path = str(tmp_path / "codes.lance")
    vectors = clustered(1, 600).astype(np.float32)
    lance.write_dataset(table_of(vectors, pa.float32()), path)
    lance.dataset(path).create_index("v", "IVF_RQ", metric=metric, num_partitions=2, num_bits=bits)
    segment = opened(path)
    for number in range(segment.model.partitions):
        rows, stored = segment.codes(number)
        labels = np.full(len(rows), number)
        own = segment.quantizer.encode(
            vectors[rows.astype(np.int64)], labels, segment.model.centroids
        )
        is_other = own["values"] >> (bits - 1) != stored["values"] >> (bits - 1)
        assert is_other.mean() < 1e-3  # the sign of what is nearly zero is up to rounding
        same = ~is_other.any(axis=1)
        for name in ("__add_factors", "__scale_factors"):
            np.testing.assert_allclose(own[name][same], stored[name][same], rtol=2e-3, atol=2e-2)
        again = segment.quantizer.load(segment.quantizer.store(stored))
        np.testing.assert_array_equal(again["values"], stored["values"])


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
@pytest.mark.parametrize("skip", [False, True])
def test_codes_of_pq_follow_from_the_model(tmp_path, bits, metric, skip):
    path = str(tmp_path / "codes.lance")
    vectors = clustered(1, 600).astype(np.float32)
    lance.write_dataset(table_of(vectors, pa.float32()), path)
    lance.dataset(path).create_index(
        "v",
        "IVF_PQ",
        metric=metric,
        num_partitions=2,
        num_sub_vectors=8,
        num_bits=bits,
        skip_transpose=skip,
    )
    assert_same_codes(path, vectors, "code")


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_codes_of_sq_follow_from_the_model(tmp_path, metric):
    path = str(tmp_path / "codes.lance")
    vectors = clustered(1, 600).astype(np.float32)
    lance.write_dataset(table_of(vectors, pa.float32()), path)
    lance.dataset(path).create_index("v", "IVF_SQ", metric=metric, num_partitions=2)
    assert_same_codes(path, vectors, "code")


def opened(path):
    snapshot = lancelet.dataset(path)._handle.snapshot
    return table_segment(snapshot, snapshot.indices.indices[0]).open()


def assert_same_codes(path, vectors, name):
    segment = opened(path)
    prepared, _ = prepare(vectors, segment.model.metric)
    different, total, astray = 0, 0, 0
    for number in range(segment.model.partitions):
        rows, stored = segment.codes(number)
        chosen = prepared[rows.astype(np.int64)]
        astray += int((segment.model.assign(chosen) != number).sum())
        own = segment.quantizer.encode(chosen, np.full(len(rows), number), segment.model.centroids)
        different += int((own[name] != stored[name]).sum())
        total += stored[name].size
    # A vector halfway between two words, or two centroids, may be rounded to either.
    assert different <= total * 1e-3
    assert astray <= 2
