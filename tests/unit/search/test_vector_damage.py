"""Damaged files of vector indices: searches fall back to all rows, with a warning.

Each file of an index is removed, truncated, and changed by bit flips. Results equal those of exact
search, and `check` reports the damage.
"""

import random
import shutil
import tracemalloc
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import CorruptDataError
from lancelet.format.fragment_list import FragmentList
from lancelet.format.manifest_file import render_manifest_file
from lancelet.scan.indexing.segments import IndexUnusableWarning
from lancelet.upkeep.check import Severity

KINDS = {
    "IVF_FLAT": {},
    "IVF_PQ": {"num_sub_vectors": 4},
    "IVF_SQ": {},
    "IVF_RQ": {"num_bits": 3},
    "IVF_HNSW_SQ": {},
}
QUERY = np.random.default_rng(9).normal(size=16).astype(np.float32)


@pytest.fixture(scope="module", params=KINDS)
def sound(tmp_path_factory, request):
    path = tmp_path_factory.mktemp("sound") / "table.lance"
    vectors = np.random.default_rng(3).normal(size=(3000, 16)).astype(np.float32)
    column = pa.FixedSizeListArray.from_arrays(vectors.reshape(-1), 16)
    column = pa.concat_arrays([column, pa.array([None] * 5, column.type)])
    dataset = lancelet.write_dataset(pa.table({"id": range(3005), "v": column}), str(path))
    dataset.create_index("v", request.param, num_partitions=3, **KINDS[request.param])
    return path, nearest(path, use_index=False)


def nearest(path, **options):
    wanted = {"column": "v", "q": QUERY, "k": 8, "nprobes": 3, "refine_factor": 20, **options}
    return lancelet.dataset(str(path)).to_table(columns=["id"], nearest=wanted)["id"].to_pylist()


def errors_of(path):
    findings = lancelet.dataset(str(path)).check("indices")
    return [each for each in findings if each.severity is Severity.ERROR]


def test_a_sound_index_has_no_findings(sound):
    path, exact = sound
    assert nearest(path) == exact
    assert errors_of(path) == []


@pytest.mark.parametrize("name", ["index.idx", "auxiliary.idx"])
@pytest.mark.parametrize("seed", range(6))
def test_damage_never_changes_search_results(sound, tmp_path, name, seed):
    path, exact = sound
    damaged = tmp_path / "table.lance"
    shutil.copytree(path, damaged)
    (file,) = damaged.rglob(f"_indices/*/{name}")
    chance = random.Random(seed)
    content = bytearray(file.read_bytes())
    if seed == 0:
        file.unlink()
    elif seed == 1:
        file.write_bytes(content[: len(content) // 2])
    else:
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        file.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IndexUnusableWarning)
        assert nearest(damaged) == exact
    errors = errors_of(damaged)
    assert errors
    assert all(each.index == "v_idx" for each in errors)


@pytest.mark.parametrize("name", ["index.idx", "auxiliary.idx"])
def test_a_scan_instead_compares_as_the_index_did_and_names_the_file(tmp_path, name):
    vectors = np.random.default_rng(3).normal(size=(300, 16)).astype(np.float32)
    vectors *= np.random.default_rng(4).uniform(0.1, 9, (300, 1)).astype(np.float32)
    column = pa.FixedSizeListArray.from_arrays(vectors.reshape(-1), 16)
    path = tmp_path / "table.lance"
    dataset = lancelet.write_dataset(pa.table({"id": range(300), "v": column}), str(path))
    dataset.create_index("v", "IVF_FLAT", metric="cosine", num_partitions=2)
    exact = nearest(path, metric="cosine", use_index=False)
    assert nearest(path) == exact
    (file,) = path.rglob(f"_indices/*/{name}")
    file.unlink()
    with pytest.warns(IndexUnusableWarning, match=name):
        assert nearest(path) == exact
    lancelet.dataset(str(path)).repair(rebuild_indices=["v_idx"], dry_run=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", IndexUnusableWarning)
        assert nearest(path) == exact


def test_rows_in_wrong_places_are_found_by_checking(tmp_path):
    vectors = np.random.default_rng(3).normal(size=(2000, 16)).astype(np.float32)
    column = pa.FixedSizeListArray.from_arrays(vectors.reshape(-1), 16)
    dataset = lancelet.write_dataset(pa.table({"id": range(2000), "v": column}), str(tmp_path))
    dataset.create_index("v", "IVF_FLAT", num_partitions=4)
    other = np.random.default_rng(4).normal(size=(2000, 16)).astype(np.float32)
    moved = pa.FixedSizeListArray.from_arrays(other.reshape(-1), 16)
    fresh = tmp_path / "other"
    table = lancelet.write_dataset(pa.table({"id": range(2000), "v": moved}), str(fresh))
    table.create_index("v", "IVF_FLAT", num_partitions=4)
    (own,), (foreign,) = (
        [each for each in root.glob("_indices/*") if each.is_dir()] for root in (tmp_path, fresh)
    )
    for file in foreign.iterdir():
        shutil.copy(file, own / file.name)
    found = [each.what for each in errors_of(tmp_path)]
    said = ("codes that are not those", "partition", "written under another name")
    assert any(part in each for part in said for each in found), found


@pytest.mark.filterwarnings("ignore::lancelet.scan.indexing.segments.IndexUnusableWarning")
def test_rows_that_a_manifest_claims_cost_nothing(tmp_path):
    """A manifest may claim any number of rows of a fragment, and a search used a byte for each."""
    uri = str(tmp_path / "t")
    vectors = np.random.default_rng(3).normal(size=(600, 4)).astype(np.float32)
    column = pa.FixedSizeListArray.from_arrays(vectors.reshape(-1), 4)
    dataset = lancelet.write_dataset(pa.table({"id": range(600), "v": column}), uri)
    dataset.create_index("v", "IVF_FLAT", num_partitions=2)
    dataset.delete("id = 1")
    here = dataset.snapshot
    claimed = FragmentList.of([replace(here.fragments[0], physical_rows=1 << 28)])
    manifest = render_manifest_file(replace(here.manifest, fragments=claimed), here.indices, None)
    (Path(uri) / here.entry.path).write_bytes(manifest)
    damaged = lancelet.dataset(uri)
    tracemalloc.start(1)
    try:
        with pytest.raises(CorruptDataError, match="differs from its fragment"):
            damaged.to_table(nearest={"column": "v", "q": vectors[0], "k": 3})
        assert tracemalloc.get_traced_memory()[1] < 48 << 20
    finally:
        tracemalloc.stop()
