"""Functions of geometries: of every kind of column, with an index or without, and in SQL."""

import sys

import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import ExpressionError, InvalidInputError, UnsupportedError
from lancelet.format.geometry import bounding_boxes, is_geometry_type, to_wkb
from lancelet.indices import IndexConfig

shapely = pytest.importorskip("shapely")

POINT = pa.struct([pa.field("x", pa.float64(), False), pa.field("y", pa.float64(), False)])
SHAPES = {
    "point": (0, ["POINT (1 2)", "POINT (7 7)", None, "POINT (3 1)"]),
    "linestring": (1, ["LINESTRING (0 0, 3 4)", None, "LINESTRING (6 6, 9 6)"]),
    "multipoint": (1, ["MULTIPOINT (1 2, 8 8)", None]),
    "polygon": (
        2,
        [
            "POLYGON ((0 0, 4 0, 4 4, 0 4, 0 0))",
            None,
            "POLYGON ((5 5, 9 5, 9 9, 5 9, 5 5), (6 6, 8 6, 8 8, 6 8, 6 6))",
        ],
    ),
    "multilinestring": (2, ["MULTILINESTRING ((0 0, 3 4), (6 6, 7 7))", None]),
    "multipolygon": (3, ["MULTIPOLYGON (((0 0, 4 0, 4 4, 0 0)), ((6 6, 7 6, 7 7, 6 6)))", None]),
}
SQUARE = "st_geomfromtext('POLYGON ((0 0, 3.5 0, 3.5 3.5, 0 3.5, 0 0))')"
SQUARE_SHAPE = shapely.from_wkt("POLYGON ((0 0, 3.5 0, 3.5 3.5, 0 3.5, 0 0))")


def plain(shape):
    """A geometry as nested Python values of a GeoArrow type."""
    match shape:
        case None:
            return None
        case shapely.Point():
            return {"x": shape.x, "y": shape.y}
        case shapely.LineString():
            return [{"x": x, "y": y} for x, y in shape.coords]
        case shapely.Polygon():
            return [plain(shape.exterior), *map(plain, shape.interiors)]
        case _:
            return [plain(part) for part in shape.geoms]


def column(kind, interleaved=False):
    depth, texts = SHAPES[kind]
    shapes = [None if text is None else shapely.from_wkt(text) for text in texts]
    data_type = POINT
    for _ in range(depth):
        data_type = pa.list_(data_type)
    array = pa.array([plain(shape) for shape in shapes], data_type)
    return array, shapes


def table(kind):
    array, shapes = column(kind)
    wkb = pa.array([None if each is None else shapely.to_wkb(each) for each in shapes])
    wkt = pa.array([None if each is None else shapely.to_wkt(each) for each in shapes])
    fields = [
        pa.field("id", pa.int64()),
        geo_field("g", array.type, kind),
        geo_field("wkb", wkb.type, "wkb"),
        geo_field("wkt", wkt.type, "wkt"),
    ]
    columns = [pa.array(range(len(array))), array, wkb, wkt]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields)), shapes


def geo_field(name, data_type, kind):
    metadata = {"ARROW:extension:name": f"geoarrow.{kind}", "ARROW:extension:metadata": "{}"}
    return pa.field(name, data_type, metadata=metadata)


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("name", ["g", "wkb", "wkt"])
def test_predicates_and_measures_are_those_of_the_shapes(tmp_path, kind, name):
    rows, shapes = table(kind)
    dataset = lancelet.write_dataset(rows, tmp_path)
    for function in ("intersects", "within", "touches", "crosses", "overlaps", "disjoint"):
        expected = [
            place
            for place, shape in enumerate(shapes)
            if shape is not None and getattr(shape, function)(SQUARE_SHAPE)
        ]
        found = dataset.to_table(filter=f"st_{function}({name}, {SQUARE})")
        assert found["id"].to_pylist() == expected
    measured = dataset.to_table(
        columns={
            "apart": f"st_distance(st_point(5.0, 5.0), {name})",
            "area": f"st_area({name})",
            "kind": f"lower(st_geometrytype({name}))",
            "text": f"st_astext({name})",
        }
    ).to_pylist()
    place = shapely.Point(5, 5)
    for row, shape in zip(measured, shapes, strict=True):
        if shape is None:
            assert set(row.values()) == {None}
            continue
        assert row["apart"] == pytest.approx(place.distance(shape))
        assert row["area"] == pytest.approx(shape.area)
        assert row["kind"] == f"st_{shape.geom_type.lower()}"
        assert shapely.from_wkt(row["text"]).equals(shape)


@pytest.mark.parametrize("kind", SHAPES)
def test_boxes_are_those_of_the_shapes(kind):
    array, shapes = column(kind)
    expected = np.array([(np.nan,) * 4 if each is None else each.bounds for each in shapes])
    np.testing.assert_array_equal(bounding_boxes(array), expected)
    np.testing.assert_array_equal(bounding_boxes(array.slice(1)), expected[1:])
    np.testing.assert_array_equal(bounding_boxes(to_wkb(array, kind)), expected)
    assert is_geometry_type(array.type)


def test_interleaved_coordinates_and_empty_lists_have_boxes():
    points = pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float64(), 2))
    assert bounding_boxes(points[2:]).tolist() == [[3.0, 4.0, 3.0, 4.0]]
    assert to_wkb(points, "point").to_pylist()[0] == shapely.to_wkb(shapely.Point(1, 2))
    lines = pa.array([[], [{"x": 1.0, "y": 2.0}, {"x": 0.0, "y": 5.0}], []], pa.list_(POINT))
    assert np.isnan(bounding_boxes(lines)).all(axis=1).tolist() == [True, False, True]
    assert bounding_boxes(lines)[1].tolist() == [0.0, 2.0, 1.0, 5.0]
    for other in (pa.int64(), pa.list_(pa.float64()), pa.struct([("a", pa.float64())])):
        assert not is_geometry_type(other)


CASES = {
    "st_x(st_point(1, 2))": 1.0,
    "st_y(st_makepoint(1, 2))": 2.0,
    "st_z(st_pointz(1, 2, 3))": 3.0,
    "st_x(st_geomfromtext('LINESTRING (0 0, 1 1)'))": None,
    "st_length(st_geomfromtext('LINESTRING (0 0, 3 4)'))": 5.0,
    "st_length(st_geomfromtext('POLYGON ((0 0, 1 0, 1 1, 0 0))'))": 0.0,
    "st_npoints(st_geomfromtext('MULTIPOINT (0 0, 1 1)'))": 2,
    "st_numinteriorrings(st_point(1, 2))": None,
    "st_astext(st_startpoint(st_geomfromtext('LINESTRING (0 0, 3 4)')))": "POINT(0 0)",
    "st_astext(st_endpoint(st_geomfromtext('LINESTRING (0 0, 3 4)')))": "POINT(3 4)",
    "st_astext(st_endpoint(st_point(1, 2)))": None,
    "st_astext(st_centroid(st_geomfromtext('LINESTRING (0 0, 2 0)')))": "POINT(1 0)",
    "st_astext(st_geomfromwkb(st_asbinary(st_point(1, 2))))": "POINT(1 2)",
    "st_isclosed(st_geomfromtext('LINESTRING (0 0, 1 0, 0 1, 0 0)'))": True,
    "st_isvalid(st_geomfromtext('POLYGON ((0 0, 1 1, 1 0, 0 1, 0 0))'))": False,
    "st_isempty(st_geomfromtext('POINT EMPTY'))": True,
    "st_xmax(st_geomfromtext('LINESTRING (0 0, 3 4)'))": 3.0,
    "st_xmin(st_geomfromtext('POINT EMPTY'))": None,
    "st_coorddim(st_pointz(1, 2, 3))": 3,
    "st_area(NULL)": None,
    "st_equals(st_point(1, 2), NULL)": None,
    "st_point(NULL, 1)": None,
}


@pytest.mark.parametrize("expression", CASES)
def test_functions_of_constants(tmp_path, expression):
    dataset = lancelet.write_dataset(pa.table({"a": [1]}), tmp_path)
    found = dataset.to_table(columns={"found": expression})["found"].to_pylist()
    assert found == [CASES[expression]]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("st_area(a)", "does not support"),
        ("st_intersects(st_point(1, 2))", "2 arguments"),
        ("st_isvalid(st_geomfromtext('POINT (1'))", "WKT"),
        ("st_isvalid(st_geomfromwkb(X'00'))", "WKB"),
        ("st_nothing(a)", "unknown function"),
    ],
)
def test_non_geometry_input_is_rejected(tmp_path, expression, message):
    dataset = lancelet.write_dataset(pa.table({"a": [1]}), tmp_path)
    with pytest.raises((ExpressionError, InvalidInputError), match=message):
        dataset.to_table(columns={"found": expression})


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    dataset = lancelet.write_dataset(pa.table({"a": [1]}), tmp_path)
    monkeypatch.setitem(sys.modules, "shapely", None)
    with pytest.raises(UnsupportedError, match=r"install lancelet\[geo\]"):
        dataset.to_table(columns={"found": "st_area(st_point(1, 2))"})
    with pytest.raises(UnsupportedError, match=r"install lancelet\[geo\]"):
        dataset.count_rows("st_x(st_point(a, 2)) = 1")


def points(count, seed=0):
    random = np.random.default_rng(seed)
    array = pa.StructArray.from_arrays(
        [pa.array(random.random(count) * 100), pa.array(random.random(count) * 100)],
        fields=list(POINT),
        mask=pa.array(random.random(count) < 0.02),
    )
    schema = pa.schema([pa.field("id", pa.int64()), geo_field("g", POINT, "point")])
    return pa.Table.from_arrays([pa.array(range(count)), array], schema=schema)


FILTERS = (
    f"st_intersects(g, {SQUARE})",
    "st_within(g, st_geomfromtext('POLYGON ((90 90, 100 90, 100 100, 90 90))'))",
    f"st_contains({SQUARE}, g)",
    "st_distance(g, st_point(50, 50)) < 4",
    "3.5 >= st_distance(st_point(0, 0), g)",
    f"NOT st_intersects(g, {SQUARE})",
    f"st_intersects(g, {SQUARE}) OR id < 5",
    f"st_intersects(g, {SQUARE}) AND id > 500",
    "st_disjoint(g, st_point(50, 50)) AND id < 50",
    "g IS NULL",
    "g IS NOT NULL AND id < 20",
    "st_intersects(g, NULL)",
)


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "ids"])
def test_an_index_never_changes_an_answer(tmp_path, stable):
    dataset = lancelet.write_dataset(
        points(6000), tmp_path, max_rows_per_file=2500, enable_stable_row_ids=stable
    )
    dataset.create_scalar_index("g", "RTREE")

    def check():
        for each in FILTERS:
            found = dataset.to_table(filter=each)
            assert found == dataset.to_table(filter=each, use_scalar_index=False), each
        assert "RTree" in dataset.scanner(filter=FILTERS[0]).explain_plan()
        assert "RTree" in dataset.scanner(filter=FILTERS[3]).explain_plan()

    check()
    dataset.delete("id % 7 = 3")
    dataset.insert(points(300, seed=1))
    check()
    dataset.optimize.optimize_indices()
    assert dataset.stats.index_stats("g_idx")["num_unindexed_rows"] == 0
    check()
    dataset.optimize.compact_files(target_rows_per_fragment=8000)
    check()
    dataset.insert(points(10, seed=2))
    dataset.optimize.optimize_indices(num_indices_to_merge=0)
    check()
    dataset.update({"id": "id + 10000"}, where="id % 5 = 0")
    check()
    assert not dataset.check()


def test_columns_that_hold_no_geometries_have_no_such_index(tmp_path):
    dataset = lancelet.write_dataset(pa.table({"a": [1], "b": [b"x"]}), tmp_path)
    with pytest.raises(TypeError, match="geometry column"):
        dataset.create_scalar_index("a", "RTREE")
    with pytest.raises(InvalidInputError, match="WKB"):
        dataset.create_scalar_index("b", IndexConfig("rtree", {}))


def test_empty_tables_and_nulls_alone_are_indexed(tmp_path):
    rows = points(3)
    empty = lancelet.write_dataset(rows.slice(0, 0), tmp_path / "a")
    empty.create_scalar_index("g", "RTREE")
    assert empty.count_rows(FILTERS[0]) == 0
    nulls = pa.Table.from_arrays([rows["id"], pa.nulls(3, POINT)], schema=rows.schema)
    dataset = lancelet.write_dataset(nulls, tmp_path / "b")
    dataset.create_scalar_index("g", "RTREE")
    assert dataset.count_rows(FILTERS[0]) == 0
    assert dataset.count_rows("g IS NULL") == 3


def test_sql_knows_geometries(tmp_path):
    rows = points(500)
    dataset = lancelet.write_dataset(rows, tmp_path)

    def rows_of(query):
        batches = dataset.sql(query).build().to_batch_records()
        return [row for batch in batches for row in batch.to_pylist()]

    near = "st_distance(g, st_point(50.0, 50.0))"
    expected = dataset.to_table(columns=["id"], filter=f"{near} < 10")["id"].to_pylist()
    found = rows_of(f"SELECT id FROM dataset WHERE {near} < 10 ORDER BY id")
    assert [row["id"] for row in found] == expected
    assert rows_of(f"SELECT count(*) AS n FROM dataset WHERE st_intersects(g, {SQUARE})") == [
        {"n": dataset.count_rows(f"st_intersects(g, {SQUARE})")}
    ]
    with_wkb = "SELECT st_distance(st_geomfromtext('POINT (0 3)'), st_point(4.0, 0.0)) AS d"
    assert rows_of(with_wkb) == [{"d": 5.0}]
    line = "[{'x': 0.0, 'y': 0.0}, {'x': 3.0, 'y': 4.0}]"
    made = lancelet.sql(f"SELECT st_length(st_geomfromarrow({line}, 'linestring')) AS long", {})
    assert made.to_table().to_pylist() == [{"long": 5.0}]
    # Functions outlive the connection of the statement that first called them.
    assert made.to_table().to_pylist() == [{"long": 5.0}]
    with pytest.raises(Exception, match="does not support list"):
        lancelet.sql(f"SELECT st_length({line}) AS long", {}).to_table()


@pytest.mark.parametrize("binary", [pa.binary(), pa.large_binary()])
def test_sql_reads_well_known_binary(tmp_path, binary):
    shapes = [shapely.Point(0, 0), None, shapely.Point(3, 4)]
    wkb = pa.array([None if each is None else each.wkb for each in shapes], binary)
    dataset = lancelet.write_dataset(pa.table({"id": [1, 2, 3], "g": wkb}), tmp_path)
    query = "SELECT id, g FROM dataset WHERE st_distance(g, st_point(0.0, 0.0)) > 1"
    found = dataset.sql(query).build().to_table()
    assert found == dataset.to_table(filter="id = 3")
