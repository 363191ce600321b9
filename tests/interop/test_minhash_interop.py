"""Texts that are nearly the same: files and answers of both implementations.

Goal: an index of either is searched, appended to and merged by the other, with equal answers.
Method: texts of few words, so that many are alike; the same searches through every step of a life.
"""

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.dataset import ScannerBuilder as ReferenceBuilder
from lance.query import MinHashQuery as ReferenceQuery

import lancelet
from lancelet.dataset.scan.builder import ScannerBuilder
from lancelet.index.scalar.minhash.signatures import Settings
from lancelet.query import MinHashQuery

pytestmark = pytest.mark.interop

WORDS = [f"Wört{number}" for number in range(60)]


def texts(first, count):
    """Return texts, most of them a few words away from one of five."""
    rng = np.random.default_rng(first)
    found = []
    for number in range(count):
        words = [WORDS[(number % 5) * 7 + place] for place in range(25)]
        for place in rng.integers(0, 25, int(rng.integers(0, 9))):
            words[place] = str(rng.choice(WORDS))
        found.append(" ".join(words[: 2 + number % 25] if number % 4 == 3 else words))
    found[:3] = [None, "", "one"]
    return found


def rows(first, count):
    return pa.table({"id": range(first, first + count), "t": texts(first, count)})


def found(dataset, query, text, **options):
    table = dataset.to_table(
        columns=["id", "_distance"], nearest=query(text, "t"), limit=40, **options
    )
    return list(zip(table["_distance"].to_pylist(), table["id"].to_pylist(), strict=True))


def check(path, step):
    ours, theirs = lancelet.dataset(path), lance.dataset(path)
    for text in (texts(0, 20)[5], texts(0, 20)[16], texts(900, 20)[8].upper(), "one", "", "!"):
        for options in ({}, {"filter": "id % 3 = 1", "prefilter": True}, {"fast_search": True}):
            expected = sorted(found(theirs, ReferenceQuery, text, **options))
            assert sorted(found(ours, MinHashQuery, text, **options)) == expected, (step, text)


@pytest.mark.parametrize("first", [lance, lancelet])
@pytest.mark.parametrize("stable", [False, True])
def test_both_find_the_same_through_the_life_of_an_index(tmp_path, first, stable):
    path = str(tmp_path / "t.lance")
    ours = lancelet.write_dataset(
        rows(0, 120), path, max_rows_per_file=50, enable_stable_row_ids=stable
    )
    first.dataset(path).create_scalar_index("t", "MINHASHLSH")
    check(path, "created")
    ours = lancelet.dataset(path)
    ours.delete("id % 9 = 2")
    ours.insert(rows(200, 60))
    check(path, "changed")
    lancelet.dataset(path).optimize.optimize_indices(num_indices_to_merge=0)
    assert len(lancelet.dataset(path).describe_indices()[0].segments) == 2
    check(path, "extended")
    lancelet.dataset(path).update({"t": "'one'"}, where="id % 50 = 7")
    check(path, "updated")
    lance.dataset(path).optimize.optimize_indices(num_indices_to_merge=2)
    check(path, "merged by the reference")
    lance.write_dataset(rows(300, 30), path, mode="append")
    lancelet.dataset(path).optimize.optimize_indices(num_indices_to_merge=4)
    assert len(lancelet.dataset(path).describe_indices()[0].segments) == 1
    check(path, "merged")
    lancelet.dataset(path).optimize.compact_files(target_rows_per_fragment=500)
    check(path, "compacted")
    lancelet.dataset(path).optimize.optimize_indices(retrain=True)
    check(path, "built anew")


@pytest.mark.parametrize(
    "parameters", [{}, {"num_hashes": 60, "num_bands": 20, "shingle_size": 1}, {"num_bands": 1}]
)
def test_files_are_those_of_the_reference(tmp_path, parameters):
    path = str(tmp_path / "t.lance")
    lancelet.write_dataset(rows(0, 400), path)
    for module, name in ((lance, "theirs"), (lancelet, "ours")):
        config = module.indices.IndexConfig(index_type="minhashlsh", parameters=parameters)
        module.dataset(path).create_scalar_index("t", config, name=name)
    described = lancelet.dataset(path).describe_indices()
    folders = {each.name: each.segments[0].uuid for each in described}
    for file in ("signatures.lance", "bands.lance"):
        one, other = (
            lance.file.LanceFileReader(f"{path}/_indices/{folders[name]}/{file}")
            for name in ("theirs", "ours")
        )
        assert one.read_all().to_table().equals(other.read_all().to_table(), check_metadata=True)
        assert one.metadata().schema.metadata == other.metadata().schema.metadata
    assert one.read_global_buffer(1) == other.read_global_buffer(1)
    theirs, ours = (lancelet.dataset(path).stats.index_stats(name) for name in ("theirs", "ours"))
    assert theirs["indices"] == ours["indices"]


def test_the_limit_counts_before_a_filter_that_comes_after(tmp_path):
    path = str(tmp_path / "t.lance")
    ours = lancelet.write_dataset(pa.table({"id": range(5), "t": ["a b c d"] * 5}), path)
    ours.create_scalar_index("t", "MINHASHLSH")
    theirs = lance.dataset(path)
    for options in ({"filter": "id > 0"}, {"filter": "id > 0", "prefilter": True}):
        for limit in (1, 3, 20):
            own = ours.to_table(nearest=MinHashQuery("a b c d", "t"), limit=limit, **options)
            other = theirs.to_table(nearest=ReferenceQuery("a b c d", "t"), limit=limit, **options)
            assert own.to_pylist() == other.to_pylist()
            assert own.schema.names == other.schema.names


@pytest.mark.parametrize(
    "parameters",
    [
        {"num_hashes": 100, "num_bands": 8},
        {"num_hashes": 0},
        {"num_bands": 0},
        {"num_bands": 300, "num_hashes": 600},
        {"shingle_size": 0},
        {"foo": 1},
        {"num_hashes": "64"},
        {"tokenizer": "whitespace"},
    ],
)
def test_parameters_that_mean_nothing_are_rejected_by_both(tmp_path, parameters):
    path = str(tmp_path / "t.lance")
    lancelet.write_dataset(rows(0, 5), path)
    for module in (lance, lancelet):
        config = module.indices.IndexConfig(index_type="minhashlsh", parameters=parameters)
        with pytest.raises(ValueError, match="MinHash LSH index"):
            module.dataset(path).create_scalar_index("t", config)


def test_searches_that_cannot_be_are_rejected_by_both(tmp_path):
    path = str(tmp_path / "t.lance")
    ours = lancelet.write_dataset(rows(0, 5), path)
    with pytest.raises(ValueError, match="No MinHash LSH index found for column t"):
        lance.dataset(path).to_table(nearest=ReferenceQuery("a", "t"))
    for column in ("t", "zz"):
        with pytest.raises(ValueError, match=f"No MinHash LSH index found for column {column}"):
            ours.to_table(nearest=MinHashQuery("a", column))
    for builder in (ReferenceBuilder, ScannerBuilder):
        dataset = lance.dataset(path) if builder is ReferenceBuilder else ours
        with pytest.raises(TypeError, match="minhash_search expects a MinHashQuery"):
            builder(dataset).minhash_search("a")
    with pytest.raises((ValueError, TypeError), match="string column"):
        lance.dataset(path).create_scalar_index("id", "MINHASHLSH")
    with pytest.raises((ValueError, TypeError), match="string column"):
        ours.create_scalar_index("id", "MINHASHLSH")


def test_settings_come_back_from_their_details():
    settings = Settings.from_parameters(
        {"num_hashes": 32, "tokenizer": {"base_tokenizer": "whitespace"}}
    )
    assert Settings.parse(settings.render()) == settings
