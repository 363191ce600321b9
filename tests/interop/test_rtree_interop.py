"""Indices of geometries both ways: each side builds, and both search, after changes of ours.

Goal: an index is carried along, kept up, and never made to answer wrongly. Method: after every
change both ask with the index and without; all answers are the same, and the index is used as long
as it covers anything.
"""

import lance
import numpy as np
import pyarrow as pa
import pytest
import shapely

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
    """What both find."""
    theirs, ours = (
        sorted(module.dataset(path).to_table(["id"], filter=NEAR, **options)["id"].to_pylist())
        for module in (lance, lancelet)
    )
    assert ours == theirs
    return ours


def check(path, *, is_used=True, rows=None):
    assert ids(path) == ids(path, use_scalar_index=False)
    assert len(ids(path)) > 3
    for module in (lance, lancelet):
        plan = module.dataset(path).scanner(filter=NEAR).explain_plan()
        assert ("ScalarIndexQuery" in plan) == is_used
    listed = lancelet.dataset(path).describe_indices()
    assert ("g_idx", "RTree") in [(each.name, each.index_type) for each in listed]
    if rows is None:
        assert lancelet.dataset(path).count_rows("a >= 0") == lance.dataset(path).count_rows()


@pytest.fixture(params=[False, True], ids=["addresses", "ids"])
def stable(request):
    return request.param


@pytest.fixture(params=[lance, lancelet], ids=["theirs", "ours"])
def path(tmp_path, request, stable):
    path = str(tmp_path / "t.lance")
    lancelet.write_dataset(rows(0, 100), path, max_rows_per_file=25, enable_stable_row_ids=stable)
    request.param.dataset(path).create_scalar_index("g", "RTREE")
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
    dataset.optimize.compact_files(target_rows_per_fragment=60)
    check(path)
    lancelet.dataset(path).insert(rows(200, 10))
    check(path)
    lancelet.dataset(path).optimize.optimize_indices()
    check(path)
    lance.dataset(path).optimize.optimize_indices(retrain=True)
    check(path)


def test_an_index_of_points_bears_a_remapping_that_is_deferred(path, stable):
    dataset = lancelet.dataset(path)
    dataset.delete("id % 5 = 2")
    dataset.optimize.compact_files(target_rows_per_fragment=60, defer_index_remap=not stable)
    check(path)


SHAPES = {
    "geoarrow.linestring": "LINESTRING ({0} {0}, {1} 4)",
    "geoarrow.polygon": "POLYGON (({0} 0, {1} 0, {1} 3, {0} 0))",
    "geoarrow.wkb": "MULTIPOINT ({0} 5, {1} 6)",
}


@pytest.mark.parametrize("writer", [lance, lancelet], ids=["theirs", "ours"])
@pytest.mark.parametrize("name", SHAPES)
def test_geometries_of_every_kind_are_indexed_identically(tmp_path, name, writer):
    shapes = [shapely.from_wkt(SHAPES[name].format(row, row + 1)) for row in range(40)]
    data_type = {"geoarrow.linestring": pa.list_(POINT), "geoarrow.wkb": pa.binary()}.get(
        name, pa.list_(pa.list_(POINT))
    )
    values = {
        "geoarrow.linestring": coordinates,
        "geoarrow.polygon": lambda shape: [coordinates(shape.exterior)],
        "geoarrow.wkb": shapely.to_wkb,
    }[name]
    extension = {"ARROW:extension:name": name, "ARROW:extension:metadata": "{}"}
    fields = [pa.field("id", pa.int64()), pa.field("g", data_type, metadata=extension)]
    columns = [pa.array(range(41)), pa.array([*map(values, shapes), None], data_type)]
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.Table.from_arrays(columns, schema=pa.schema(fields)), path)
    writer.dataset(path).create_scalar_index("g", "RTREE")
    check(path, rows=41)
    for text in (
        "g IS NULL",
        "st_within(g, st_geomfromtext('POLYGON ((5 0, 9 0, 9 9, 5 9, 5 0))'))",
    ):
        found = [
            module.dataset(path).to_table(["id"], filter=text)["id"].to_pylist()
            for module in (lance, lancelet)
        ]
        assert found[0] == found[1]


def coordinates(line):
    return [{"x": x, "y": y} for x, y in line.coords]


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
