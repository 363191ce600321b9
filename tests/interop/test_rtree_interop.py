"""Indices of points, which this release does not search, come through all that it does.

Goal: an index that the reference built is carried along, and never made to answer wrongly. Method:
after every change of ours the reference asks with its index and without; both answers are the same,
and the index is used as long as it covers anything.
"""

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancelet

pytestmark = pytest.mark.interop

NEAR = "st_intersects(g, st_geomfromtext('POLYGON ((3 3, 60 3, 60 60, 3 60, 3 3))'))"
POINT = pa.struct([pa.field("x", pa.float64(), False), pa.field("y", pa.float64(), False)])


def rows(first, count):
    numbers = np.arange(first, first + count, dtype=np.float64)
    points = pa.StructArray.from_arrays([numbers % 70, numbers * 7 % 70], fields=list(POINT))
    extension = {"ARROW:extension:name": "geoarrow.point", "ARROW:extension:metadata": "{}"}
    schema = pa.schema(
        [
            pa.field("id", pa.int64()),
            pa.field("a", pa.int64()),
            pa.field("g", POINT, metadata=extension),
        ]
    )
    ids = pa.array(range(first, first + count))
    return pa.Table.from_arrays([ids, ids, points], schema=schema)


def ids(path, **options):
    dataset = lance.dataset(path)
    return sorted(dataset.to_table(["id"], filter=NEAR, **options)["id"].to_pylist())


def check(path, *, is_used=True):
    assert ids(path) == ids(path, use_scalar_index=False)
    assert len(ids(path)) > 3
    plan = lance.dataset(path).scanner(filter=NEAR).explain_plan()
    assert ("ScalarIndexQuery" in plan) == is_used
    listed = lancelet.dataset(path).describe_indices()
    assert ("g_idx", "RTree") in [(each.name, each.index_type) for each in listed]
    assert lancelet.dataset(path).count_rows("a >= 0") == lance.dataset(path).count_rows()


@pytest.fixture(params=[False, True], ids=["addresses", "ids"])
def path(tmp_path, request):
    path = str(tmp_path / "t.lance")
    lancelet.write_dataset(
        rows(0, 100), path, max_rows_per_file=25, enable_stable_row_ids=request.param
    )
    lance.dataset(path).create_scalar_index("g", "RTREE")
    check(path)
    return path


CHANGES = {
    "append": lambda dataset: dataset.insert(rows(100, 30)),
    "delete": lambda dataset: dataset.delete("id % 3 = 1"),
    "update": lambda dataset: dataset.update({"a": "a + 1"}, where="id % 4 = 0"),
    "upsert": lambda dataset: (
        dataset.merge_insert("id")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute(rows(90, 20))
    ),
    "add column": lambda dataset: dataset.add_columns({"b": "a * 2"}),
    "rename": lambda dataset: dataset.alter_columns({"path": "a", "name": "c"}),
    "drop column": lambda dataset: dataset.drop_columns(["a"]),
    "index another": lambda dataset: dataset.create_scalar_index("a", "BTREE"),
    "optimize": lambda dataset: dataset.optimize.optimize_indices(),
    "tag": lambda dataset: dataset.tags.create("now", dataset.version),
}


@pytest.mark.parametrize("name", CHANGES)
def test_an_index_of_points_comes_through_changes(path, name):
    CHANGES[name](lancelet.dataset(path))
    assert ids(path) == ids(path, use_scalar_index=False)
    plan = lance.dataset(path).scanner(filter=NEAR).explain_plan()
    assert "ScalarIndexQuery" in plan
    kinds = [each.index_type for each in lancelet.dataset(path).describe_indices()]
    assert "RTree" in kinds


def test_an_index_of_points_never_misleads_after_compaction(path):
    dataset = lancelet.dataset(path)
    dataset.delete("id % 5 = 2")
    if not dataset.has_stable_row_ids:
        with pytest.raises(lancelet.errors.UnsupportedError, match="compact without"):
            dataset.optimize.compact_files(target_rows_per_fragment=60, defer_index_remap=True)
    dataset.optimize.compact_files(target_rows_per_fragment=60)
    assert ids(path) == ids(path, use_scalar_index=False)
    lancelet.dataset(path).insert(rows(200, 10))
    assert ids(path) == ids(path, use_scalar_index=False)
    lance.dataset(path).optimize.optimize_indices(retrain=True)
    check(path)


def test_an_index_of_points_is_there_in_old_versions_and_clones(path, tmp_path):
    dataset = lancelet.dataset(path)
    before = dataset.version
    dataset.delete("id < 50")
    lancelet.dataset(path, version=before).restore()
    check(path)
    clone = str(tmp_path / "clone.lance")
    lancelet.dataset(path).shallow_clone(clone, lancelet.dataset(path).version)
    check(clone)
    lancelet.dataset(path).create_branch("side")
    side = lancelet.dataset(path).checkout_version(("side", None))
    side.delete("id % 2 = 0")
    theirs = lance.dataset(path).checkout_version(("side", None))
    assert sorted(theirs.to_table(["id"], filter=NEAR)["id"].to_pylist()) == sorted(
        theirs.to_table(["id"], filter=NEAR, use_scalar_index=False)["id"].to_pylist()
    )
