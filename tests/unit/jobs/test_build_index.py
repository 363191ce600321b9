"""Indices built in tasks find what those built at once find, here and in the reference."""

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lancelet
from lancelet.errors import LanceletError
from lancelet.index.vector.train import IvfRequest
from lancelet.jobs.build_index import (
    BuildOptions,
    create_index,
    optimize_indices,
    sample_row_indices,
)
from lancelet.jobs.engine import Job
from lancelet.jobs.local import LocalEngine
from lancelet.jobs.table_ref import TableRef
from lancelet.upkeep.indexing.build import IndexRequest
from lancelet.upkeep.indexing.optimize import OptimizeIndices
from lancelet.upkeep.indexing.vectors import VectorIndexRequest

ROWS, DIMENSION = 1200, 16
seeds = st.integers(0, 9)
WORDS = ("fox", "dog", "river", "stone", "hill")


def rows(first, count):
    random = np.random.default_rng(first)
    vectors = random.standard_normal((count, DIMENSION)).astype(np.float32)
    texts = [" ".join(random.choice(WORDS, 3)) for _ in range(count)]
    return pa.table(
        {
            "id": pa.array(range(first, first + count), pa.int64()),
            "text": pa.array(texts, pa.string()),
            "v": pa.FixedSizeListArray.from_arrays(vectors.ravel(), DIMENSION),
        }
    )


@pytest.fixture(params=[False, True], ids=["addresses", "stable-ids"])
def uri(tmp_path, request):
    path = str(tmp_path / "t.lance")
    lance.write_dataset(
        rows(0, ROWS), path, max_rows_per_file=400, enable_stable_row_ids=request.param
    )
    return path


@pytest.fixture
def job():
    return Job(LocalEngine(1))


def segments(uri, name):
    found = {each.name: each.segments for each in lancelet.dataset(uri).describe_indices()}
    return len(found[name])


@pytest.mark.parametrize("merges", [False, True], ids=["segments", "merged"])
def test_scalar_segments_are_one_index(uri, job, merges):
    table, options = TableRef.of(uri), BuildOptions(bytes_per_task=1, merges=merges)
    create_index(job, table, IndexRequest("id", "BTREE"), options)
    create_index(job, table, IndexRequest("text", "INVERTED"), options)
    assert {segments(uri, name) for name in ("id_idx", "text_idx")} == {1 if merges else 3}
    for ds in (lance.dataset(uri), lancelet.dataset(uri)):
        assert ds.to_table(["id"], filter="id in (3, 700, 1100)")["id"].to_pylist() == [
            3,
            700,
            1100,
        ]
        assert "ScalarIndexQuery" in lance.dataset(uri).scanner(filter="id = 3").explain_plan()
        expected = ds.to_table(["id"], filter="text like '%fox%'")["id"].to_pylist()
        found = ds.to_table(["id", "_score"], full_text_query="fox")
        assert sorted(found["id"].to_pylist()) == expected
    phases = [phase.name for phase in job.report.phases]
    assert phases == (["build", "merge"] if merges else ["build"]) * 2
    assert job.report.phases[0].tasks == 3


@pytest.mark.parametrize("merges", [False, True], ids=["segments", "merged"])
@pytest.mark.parametrize("kind", ["IVF_PQ", "IVF_SQ", "IVF_RQ", "IVF_HNSW_FLAT"])
def test_segments_of_vectors_share_a_model(uri, job, kind, merges):
    asked = VectorIndexRequest("v", IvfRequest(kind, partitions=4, sample_rate=64))
    create_index(job, TableRef.of(uri), asked, BuildOptions(bytes_per_task=1, merges=merges))
    assert segments(uri, "v_idx") == (1 if merges else 3)
    assert [phase.name for phase in job.report.phases][:2] == ["train", "build"]
    query = rows(0, ROWS)["v"][500].as_py()
    for ds in (lance.dataset(uri), lancelet.dataset(uri)):
        wish = {"column": "v", "q": query, "k": 5, "nprobes": 4, "refine_factor": 20}
        found = ds.to_table(["id", "_distance"], nearest=wish)
        exact = ds.to_table(["id", "_distance"], nearest={**wish, "use_index": False})
        assert found["id"][0].as_py() == 500
        assert len(set(found["id"].to_pylist()) & set(exact["id"].to_pylist())) >= 4


def test_models_are_found_from_a_sample(uri, job):
    asked = VectorIndexRequest("v", IvfRequest("IVF_SQ", partitions=2, sample_rate=2))
    create_index(job, TableRef.of(uri), asked)
    train, build = job.report.phases
    assert (train.work.rows, build.work.rows) == (512, ROWS)


def test_an_index_is_replaced_only_on_request(uri, job):
    table, small = TableRef.of(uri), BuildOptions(bytes_per_task=1)
    create_index(job, table, IndexRequest("id", "BTREE"), small)
    create_index(job, table, IndexRequest("id", "BTREE"))
    assert segments(uri, "id_idx") == 1
    with pytest.raises(LanceletError, match="already exists"):
        create_index(job, table, IndexRequest("id", "BTREE", replaces=False))
    with pytest.raises(LanceletError):
        create_index(job, table, IndexRequest("nothing", "BTREE"))
    with pytest.raises(LanceletError):
        create_index(job, table, VectorIndexRequest("id", IvfRequest("IVF_FLAT")))


def test_an_index_of_nothing_waits_for_rows(tmp_path, job):
    uri = str(tmp_path / "t.lance")
    lancelet.write_dataset(rows(0, 0), uri)
    table = TableRef.of(uri)
    create_index(job, table, IndexRequest("id", "BTREE"))
    create_index(job, table, VectorIndexRequest("v", IvfRequest("IVF_FLAT")))
    lancelet.write_dataset(rows(0, 600), uri, mode="append")
    optimize_indices(job, table, OptimizeIndices())
    found = {each.name: each.num_rows_indexed for each in lancelet.dataset(uri).describe_indices()}
    assert found == {"id_idx": 600, "v_idx": 600}


def test_new_rows_are_indexed_in_a_task_for_each_index(uri, job):
    table, small = TableRef.of(uri), BuildOptions(bytes_per_task=1)
    create_index(job, table, IndexRequest("id", "BTREE"), small)
    create_index(job, table, VectorIndexRequest("v", IvfRequest("IVF_FLAT", partitions=2)), small)
    before = lancelet.write_dataset(rows(ROWS, 300), uri, mode="append").version
    done = optimize_indices(job, table, OptimizeIndices())
    assert (job.report.phases[-1].name, job.report.phases[-1].tasks) == ("optimize", 2)
    assert done.version == before + 1
    for each in lance.dataset(uri).describe_indices():
        assert each.num_rows_indexed == ROWS + 300
    assert optimize_indices(job, table, OptimizeIndices()).version == done.version


@pytest.mark.parametrize("merges", [None, 0, 2])
def test_many_new_rows_are_indexed_in_several_tasks_for_each_index(uri, job, merges):
    table, small = TableRef.of(uri), BuildOptions(bytes_per_task=1)
    create_index(job, table, IndexRequest("id", "BTREE"), BuildOptions())
    create_index(job, table, IndexRequest("text", "INVERTED"), small)
    create_index(job, table, VectorIndexRequest("v", IvfRequest("IVF_FLAT", partitions=2)))
    for start in range(ROWS, ROWS + 900, 300):
        lancelet.write_dataset(rows(start, 300), uri, mode="append")
    done = optimize_indices(job, table, OptimizeIndices(merges=merges), bytes_per_task=1)
    assert [(phase.name, phase.tasks) for phase in job.report.phases[-2:]] == [
        ("build", 9),
        ("optimize", 3),
    ]
    assert job.report.phases[-2].work.rows == 3 * 900
    old = {"id_idx": 1, "text_idx": 3, "v_idx": 1}
    for name, count in old.items():
        merged = 1 if merges is None else min(merges, count)
        assert segments(uri, name) == count - merged + (1 if merged else 3)
    for ds in (lance.dataset(uri), lancelet.dataset(uri)):
        assert {each.num_rows_indexed for each in ds.describe_indices()} == {ROWS + 900}
        wanted = [5, ROWS + 5, ROWS + 805]
        found = ds.to_table(["id"], filter=f"id in {tuple(wanted)}")["id"].to_pylist()
        assert sorted(found) == wanted
        words = ds.to_table(["id"], full_text_query="fox")["id"].to_pylist()
        assert sorted(words) == ds.to_table(["id"], "text like '%fox%'")["id"].to_pylist()
        query = ds.take([ROWS + 805], ["v"])["v"][0].as_py()
        wish = {"column": "v", "q": query, "k": 1, "nprobes": 2}
        assert ds.to_table(["id"], nearest=wish)["id"].to_pylist() == [ROWS + 805]
    assert optimize_indices(job, table, OptimizeIndices()).version == done.version


def test_a_sample_is_read_in_few_requests(tmp_path, job):
    uri = str(tmp_path / "t.lance")
    lancelet.write_dataset(rows(0, 40_000), uri)
    asked = VectorIndexRequest("v", IvfRequest("IVF_SQ", partitions=32, sample_rate=64))
    create_index(job, TableRef.of(uri), asked)
    train = job.report.phases[0].work
    assert train.rows == 16_384
    assert train.requests < 300


@given(total=st.integers(1, 5000), count=st.integers(1, 5000), run=st.integers(1, 600), seed=seeds)
def test_a_sample_has_so_many_different_rows_in_order(total, count, run, seed):
    places = sample_row_indices(total, count, run=run, seed=seed)
    assert len(places) == min(total, count)
    assert (np.diff(places) > 0).all()
    assert places[0] >= 0
    assert places[-1] < total
