"""A search for a vector, taken apart for tasks: what they find together is what one scan finds."""

import lance
import numpy as np
import pyarrow as pa
import pytest

from lancelet.query.execute import execute_to_table
from lancelet.query.plan import plan_scan
from lancelet.spark.search_functions import plan_vector_search
from lancelet.spark.sql.search_calls import parts_of

RANDOM = np.random.default_rng(7)
VECTORS = RANDOM.normal(size=(2000, 8)).astype(np.float32)
QUERY = VECTORS[17] + 0.01


def rows(first, stop):
    vectors = pa.FixedSizeListArray.from_arrays(VECTORS[first:stop].reshape(-1), 8)
    return pa.table({"id": range(first, stop), "v": vectors})


@pytest.fixture
def uri(tmp_path):
    made = str(tmp_path / "t.lance")
    lance.write_dataset(rows(0, 1000), made, max_rows_per_file=250)
    return made


def found(uri, **options):
    _, plan = plan_vector_search(uri, "v", QUERY, {"k": 20, "columns": "id", **options})
    parts = parts_of(plan)
    tables = [execute_to_table(plan_scan(plan.snapshot, each)) for each in parts]
    together = pa.concat_tables(tables).sort_by("_distance").slice(0, 20)
    return len(parts), together, execute_to_table(plan)


@pytest.mark.parametrize("options", [{}, {"filter": "id % 3 = 0"}, {"metric": "cosine"}])
def test_fragments_that_no_index_covers_are_searched_apart(uri, options, monkeypatch):
    monkeypatch.setattr("lancelet.ops.jobs.split._target", lambda _: 1)
    count, together, whole = found(uri, **options)
    assert count == 4
    assert together == whole


def test_segments_and_other_fragments_are_searched_apart(uri, monkeypatch):
    monkeypatch.setattr("lancelet.ops.jobs.split._target", lambda _: 1)
    made = lance.dataset(uri)
    made.create_index("v", "IVF_PQ", num_partitions=2, num_sub_vectors=4)
    lance.write_dataset(rows(1000, 1500), uri, mode="append")
    made = lance.dataset(uri)
    made.optimize.optimize_indices(num_indices_to_merge=0)
    lance.write_dataset(rows(1500, 2000), uri, mode="append", max_rows_per_file=250)
    lance.dataset(uri).delete("id = 17")
    for options in ({}, {"filter": "id % 3 = 0"}, {"refine_factor": 4}, {"metric": "cosine"}):
        count, together, whole = found(uri, nprobes=2, **options)
        assert count == (7 if options == {"metric": "cosine"} else 4)
        assert len(together) == 20
        near = np.linalg.norm(VECTORS[together["id"].to_numpy()] - QUERY, axis=1) ** 2
        if "metric" not in options:
            assert np.allclose(near, together["_distance"], rtol=1e-4)
        # Each part may find a row that is not among the best of all by the estimates of an index.
        assert np.all(together["_distance"].to_numpy() <= whole["_distance"].to_numpy() + 1e-5)
    count, together, whole = found(uri, nprobes=2, fast_search=True)
    assert (count, together["id"]) == (2, whole["id"])


def test_what_depends_on_other_rows_is_one_search(uri):
    assert found(uri, filter="id < 500", prefilter=False)[0] == 1
