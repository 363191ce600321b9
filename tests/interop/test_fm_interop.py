"""FM indices: files of each of the two implementations are searched and kept up by the other."""

import lance
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import UnsupportedError
from lancelet.indices import IndexConfig

pytestmark = pytest.mark.interop

LIBRARIES = {"lancelet": lancelet, "lance": lance}
TEXTS = [
    None if number % 11 == 3 else f"Wört {number % 37} of {number} {'ab' * (number % 5)}"
    for number in range(900)
]
PARTS = ("ört 3", "of 77", "abab", "b", "Wört 36 of 880 ", "é", "nothing", "7 ab")


def rows():
    return pa.table({"id": range(len(TEXTS)), "s": TEXTS})


def build(library, path, column="s"):
    config = library.indices.IndexConfig("fm", {})
    library.dataset(path).create_scalar_index(column, config)


def ids(dataset, text, **options):
    return sorted(dataset.to_table(columns=["id"], filter=text, **options)["id"].to_pylist())


def check(path):
    """Both answer from the index as plain Python does."""
    kept = ids(lancelet.dataset(path), "true")
    for part in PARTS:
        expected = [at for at in kept if TEXTS[at] is not None and part in TEXTS[at]]
        text = f"contains(s, '{part}')"
        for library in LIBRARIES.values():
            assert ids(library.dataset(path), text) == expected, (library.__name__, part)


@pytest.fixture(params=LIBRARIES)
def path(request, tmp_path):
    path = str(tmp_path / "t.lance")
    lancelet.write_dataset(rows(), path, max_rows_per_file=300)
    build(LIBRARIES[request.param], path)
    return path


def test_both_search_the_files_of_each(path):
    check(path)
    text = "contains(s, 'ört 3')"
    lines = [
        next(line for line in plan.splitlines() if "ScalarIndexQuery" in line).strip()
        for plan in (
            library.dataset(path).scanner(filter=text).explain_plan()
            for library in LIBRARIES.values()
        )
    ]
    assert lines[0].startswith(lines[1])
    ours, reference = (library.dataset(path) for library in LIBRARIES.values())
    names = ("index_type", "indices", "num_indexed_rows")
    for name in names:
        assert ours.stats.index_stats("s_idx")[name] == reference.stats.index_stats("s_idx")[name]
    described = ours.describe_indices()[0]
    assert described.index_type == reference.describe_indices()[0].index_type == "Fm"
    assert described.type_url == reference.describe_indices()[0].type_url
    assert ours.check(level="indices") == []


@pytest.mark.parametrize("keeper", LIBRARIES)
def test_each_implementation_updates_indices_of_either(path, keeper):
    library = LIBRARIES[keeper]
    lancelet.dataset(path).delete("id % 7 = 2")
    library.dataset(path).optimize.compact_files(target_rows_per_fragment=2000)
    check(path)
    library.dataset(path).optimize.optimize_indices()
    check(path)
    statistics = lancelet.dataset(path).stats.index_stats("s_idx")
    assert (statistics["num_unindexed_rows"], statistics["num_segments"]) == (0, 1)
    assert lancelet.dataset(path).check(level="indices") == []


def test_compaction_moves_rows_and_cannot_put_it_off(path):
    dataset = lancelet.dataset(path)
    with pytest.raises(UnsupportedError, match="FM"):
        dataset.optimize.compact_files(defer_index_remap=True)
    dataset.optimize.compact_files()
    assert dataset.stats.index_stats("s_idx")["num_unindexed_rows"] == 0
    check(path)


def test_questions_that_the_reference_gets_wrong_are_right_here(tmp_path):
    path = str(tmp_path / "t.lance")
    texts = ["ab", None, "a\0b", "a b", "", "xyz"]
    lancelet.write_dataset(pa.table({"id": range(6), "s": texts}), path)
    build(lance, path)
    dataset = lancelet.dataset(path)
    for text, expected in {
        "NOT contains(s, 'b')": [4, 5],
        "contains(s, '')": [0, 2, 3, 4, 5],
        "contains(s, 'a b')": [3],
        "contains(s, '\0')": [2],
        "contains(s, 'b') OR s IS NULL": [0, 1, 2, 3],
        "s LIKE '%a%b'": [0, 2, 3],
    }.items():
        assert ids(dataset, text) == ids(dataset, text, use_scalar_index=False) == expected, text


@pytest.mark.parametrize("data_type", [pa.large_string(), pa.binary(), pa.large_binary()])
def test_other_types_are_built_identically(tmp_path, data_type):
    found = []
    for name, library in LIBRARIES.items():
        path = str(tmp_path / name)
        values = pa.array(TEXTS).cast(data_type)
        lancelet.write_dataset(pa.table({"s": values}), path)
        build(library, path)
        found.append(lance.dataset(path).stats.index_stats("s_idx")["indices"])
    assert found[0] == found[1]


def test_other_columns_are_rejected(tmp_path):
    dataset = lancelet.write_dataset(rows(), tmp_path / "t")
    with pytest.raises(TypeError, match="strings or binary values"):
        dataset.create_scalar_index("id", IndexConfig("fm", {}))


def test_an_index_of_no_rows_is_read_by_both(tmp_path):
    path = str(tmp_path / "t.lance")
    lancelet.write_dataset(rows().slice(0, 0), path)
    build(lancelet, path)
    lancelet.dataset(path).insert(rows())
    check(path)
    lance.dataset(path).optimize.optimize_indices()
    check(path)
