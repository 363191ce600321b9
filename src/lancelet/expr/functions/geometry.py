"""Geometric functions, named as in PostGIS and the reference.

    st_intersects(g, st_geomfromtext('POLYGON ((0 0, 4 0, 4 4, 0 0))'))
    st_distance(g, st_point(1.0, 2.0)) < 5
    st_astext(st_centroid(g))

Geometries are WKB. When a filter is bound, columns of GeoArrow types are converted with
`st_geomfromarrow`. The package shapely computes the functions, except for reading coordinates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.expr.coercion import CoercionError
from lancelet.expr.functions.base import (
    Compute,
    Function,
    Takes,
    Value,
    anything,
    constant,
    real,
    text,
)
from lancelet.format.geometry import (
    GeometryError,
    from_wkb,
    from_wkt,
    render_wkb,
    shapely,
    to_wkb,
)

FROM_ARROW: Final = "st_geomfromarrow"
"""Converts a column of a GeoArrow type, named by the second argument, to geometries."""
PREDICATES: Final = (
    "st_intersects",
    "st_contains",
    "st_within",
    "st_touches",
    "st_crosses",
    "st_overlaps",
    "st_covers",
    "st_coveredby",
    "st_equals",
)
"""Predicates that imply intersecting bounding boxes."""

_WKB: Final = pa.large_binary()
_Shapes = npt.NDArray[Any]
_POINT, _LINES = 0, (1, 2, 5)
_TYPE_NAMES: Final = (
    "ST_Point",
    "ST_LineString",
    "ST_LinearRing",
    "ST_Polygon",
    "ST_MultiPoint",
    "ST_MultilineString",
    "ST_MultiPolygon",
    "ST_GeometryCollection",
)


def _geometry(data_type: pa.DataType) -> pa.DataType | None:
    """Accept geometries as WKB."""
    is_bytes = pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type)
    return _WKB if is_bytes or pa.types.is_null(data_type) else None


def is_geometric(function: str) -> bool:
    """Return whether a function takes geometries.

    >>> is_geometric("st_area"), is_geometric("lower"), is_geometric("st_point")
    (True, False, False)
    """
    return function in _GEOMETRIC


def _shapes_of(value: Value) -> _Shapes:
    """Return shapely geometries: one for each row, or a single one for a scalar."""
    one = isinstance(value, pa.Scalar)
    array = pa.array([value.as_py()], _WKB) if one else value
    try:
        return from_wkb(array)
    except GeometryError as error:
        raise CoercionError(str(error)) from error


def _rows_of(*values: Value) -> int | None:
    """Return the number of rows, or None if all values are scalars."""
    return next((len(value) for value in values if not isinstance(value, pa.Scalar)), None)


def _result(
    found: npt.NDArray[Any], missing: npt.NDArray[np.bool_], gives: pa.DataType, rows: int | None
) -> Value:
    count = len(found)
    array = pa.array(found, gives, mask=np.broadcast_to(missing, (count,)))
    return array[0] if rows is None else array


def _of_one(
    compute: Callable[[_Shapes], tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]],
    gives: pa.DataType,
) -> Compute:
    """Return a function of one geometry; `compute` returns values and a null mask."""

    def computed(value: Value) -> Value:
        shapes = _shapes_of(value)
        found, missing = compute(shapes)
        return _result(found, missing | shapely().is_missing(shapes), gives, _rows_of(value))

    return computed


def _of_two(name: str, gives: pa.DataType) -> Compute:
    def computed(left: Value, right: Value) -> Value:
        package = shapely()
        first, second = _shapes_of(left), _shapes_of(right)
        for shapes in (first, second):
            if len(shapes) == 1:
                package.prepare(shapes)
        missing = package.is_missing(first) | package.is_missing(second)
        found = np.atleast_1d(getattr(package, name)(first, second))
        return _result(found, missing, gives, _rows_of(left, right))

    return computed


def _number(name: str, kinds: tuple[int, ...] | None = None) -> Compute:
    """Return a function that is null for geometries of other kinds."""

    def compute(shapes: _Shapes) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        found = np.asarray(getattr(shapely(), name)(shapes), np.float64)
        return found, _lacks(shapes, kinds) | np.isnan(found)

    return _of_one(compute, pa.float64())


def _lacks(shapes: _Shapes, kinds: tuple[int, ...] | None) -> npt.NDArray[np.bool_]:
    if kinds is None:
        return np.zeros(len(shapes), np.bool_)
    return ~np.isin(shapely().get_type_id(shapes), kinds)


def _length(shapes: _Shapes) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Return the length of lines, and 0 for other geometries."""
    package = shapely()
    found = np.where(_lacks(shapes, _LINES), 0.0, package.length(shapes))
    return found, np.zeros(len(shapes), np.bool_)


def _side(index: int) -> Compute:
    def compute(shapes: _Shapes) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        found = shapely().bounds(shapes)[:, index]
        return found, np.isnan(found)

    return _of_one(compute, pa.float64())


def _count(name: str, kinds: tuple[int, ...] | None = None) -> Compute:
    def compute(shapes: _Shapes) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        return np.asarray(getattr(shapely(), name)(shapes), np.int64), _lacks(shapes, kinds)

    return _of_one(compute, pa.uint32())


def _boolean(compute: Callable[[_Shapes], npt.NDArray[np.bool_]]) -> Compute:
    return _of_one(lambda shapes: (compute(shapes), np.zeros(len(shapes), np.bool_)), pa.bool_())


def _is_closed(shapes: _Shapes) -> npt.NDArray[np.bool_]:
    """Return whether the start and end of lines coincide; true for other geometries."""
    package = shapely()
    found = _lacks(shapes, _LINES)
    for index in np.flatnonzero(~found & ~package.is_missing(shapes)).tolist():
        found[index] = bool(package.is_closed(package.get_parts(shapes[index])).all())
    return found


def _dimensions(shapes: _Shapes) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    found = np.asarray(shapely().get_coordinate_dimension(shapes), np.int64)
    return np.maximum(found, 0), found < 0


def _type_name(shapes: _Shapes) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    kinds = shapely().get_type_id(shapes)
    return np.array(_TYPE_NAMES, object)[np.maximum(kinds, 0)], kinds < 0


def _reason(shapes: _Shapes) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    return shapely().is_valid_reason(shapes), np.zeros(len(shapes), np.bool_)


def _shaped(compute: Callable[[_Shapes], _Shapes]) -> Compute:
    """Return a function that maps each geometry to a geometry."""

    def computed(value: Value) -> Value:
        found = render_wkb(np.atleast_1d(compute(_shapes_of(value))))
        return found[0] if _rows_of(value) is None else found

    return computed


def _end(index: int) -> Compute:
    def compute(shapes: _Shapes) -> _Shapes:
        found: _Shapes = shapely().get_point(shapes, index)
        found[_lacks(shapes, (1, 2))] = None
        return found

    return _shaped(compute)


def _simplified(value: Value, tolerance: Value) -> Value:
    allowed = constant(tolerance, "the tolerance of st_simplify")
    if allowed is None:
        return pa.scalar(None, _WKB)
    found = render_wkb(shapely().simplify(_shapes_of(value), allowed))
    return found[0] if _rows_of(value) is None else found


def _as_text(value: Value) -> Value:
    package = shapely()
    found = package.to_wkt(_shapes_of(value), rounding_precision=-1)
    # The reference omits the spaces before parentheses and after commas.
    texts = [None if each is None else each.replace(" (", "(").replace(", ", ",") for each in found]
    array = pa.array(texts, pa.string())
    return array[0] if _rows_of(value) is None else array


def _as_bytes(value: Value) -> Value:
    return value


def _from_text(value: Value) -> Value:
    array = pa.array([value.as_py()], pa.string()) if isinstance(value, pa.Scalar) else value
    try:
        found = render_wkb(from_wkt(array))
    except GeometryError as error:
        raise CoercionError(str(error)) from error
    return found[0] if isinstance(value, pa.Scalar) else found


def _from_bytes(value: Value) -> Value:
    found = render_wkb(_shapes_of(value))
    return found[0] if _rows_of(value) is None else found


def _from_arrow(value: Value, kind: Value) -> Value:
    named = constant(kind, "the kind of a geometry")
    array = pa.array([value.as_py()], value.type) if isinstance(value, pa.Scalar) else value
    try:
        found = to_wkb(array, named)
    except GeometryError as error:
        raise CoercionError(str(error)) from error
    return found[0] if isinstance(value, pa.Scalar) else found


def _point(*values: Value) -> Value:
    rows = _rows_of(*values)
    columns = [
        np.broadcast_to(
            np.array(np.nan if each.as_py() is None else each.as_py())
            if isinstance(each, pa.Scalar)
            else each.to_numpy(zero_copy_only=False),
            (1 if rows is None else rows,),
        )
        for each in values
    ]
    coordinates = np.column_stack(columns).astype(np.float64)
    made = shapely().points(coordinates)
    made[np.isnan(coordinates).any(axis=1)] = None
    found = render_wkb(made)
    return found[0] if rows is None else found


_ONE: Final[tuple[Takes, ...]] = (_geometry,)
_TWO: Final[tuple[Takes, ...]] = (_geometry, _geometry)

_MEASURES: Final = {
    "st_area": (_number("area"), pa.float64()),
    "st_length": (_of_one(_length, pa.float64()), pa.float64()),
    "st_x": (_number("get_x", (_POINT,)), pa.float64()),
    "st_y": (_number("get_y", (_POINT,)), pa.float64()),
    "st_z": (_number("get_z", (_POINT,)), pa.float64()),
    "st_xmin": (_side(0), pa.float64()),
    "st_ymin": (_side(1), pa.float64()),
    "st_xmax": (_side(2), pa.float64()),
    "st_ymax": (_side(3), pa.float64()),
    "st_npoints": (_count("get_num_coordinates"), pa.uint32()),
    "st_numpoints": (_count("get_num_coordinates"), pa.uint32()),
    "st_numinteriorrings": (_count("get_num_interior_rings", (3,)), pa.uint32()),
    "st_numinteriorring": (_count("get_num_interior_rings", (3,)), pa.uint32()),
    "st_coorddim": (_of_one(_dimensions, pa.uint8()), pa.uint8()),
    "st_geometrytype": (_of_one(_type_name, pa.string()), pa.string()),
    "st_isempty": (_boolean(lambda shapes: shapely().is_empty(shapes)), pa.bool_()),
    "st_isvalid": (_boolean(lambda shapes: shapely().is_valid(shapes)), pa.bool_()),
    "st_isvalidreason": (_of_one(_reason, pa.string()), pa.string()),
    "st_isclosed": (_boolean(_is_closed), pa.bool_()),
    "st_astext": (_as_text, pa.string()),
    "st_asbinary": (_as_bytes, _WKB),
    "st_centroid": (_shaped(lambda shapes: shapely().centroid(shapes)), _WKB),
    "st_convexhull": (_shaped(lambda shapes: shapely().convex_hull(shapes)), _WKB),
    "st_orientedenvelope": (_shaped(lambda shapes: shapely().oriented_envelope(shapes)), _WKB),
    "st_pointonsurface": (_shaped(lambda shapes: shapely().point_on_surface(shapes)), _WKB),
    "st_startpoint": (_end(0), _WKB),
    "st_endpoint": (_end(-1), _WKB),
}
_PAIRS: Final = {
    "st_intersects": "intersects",
    "st_contains": "contains",
    "st_within": "within",
    "st_touches": "touches",
    "st_crosses": "crosses",
    "st_overlaps": "overlaps",
    "st_covers": "covers",
    "st_coveredby": "covered_by",
    "st_equals": "equals",
    "st_disjoint": "disjoint",
}

GEOMETRY_FUNCTIONS: Final[tuple[Function, ...]] = (
    *(
        Function((name,), _ONE, gives, compute, can_fail=True)
        for name, (compute, gives) in _MEASURES.items()
    ),
    *(
        Function((name,), _TWO, pa.bool_(), _of_two(own, pa.bool_()), can_fail=True)
        for name, own in _PAIRS.items()
    ),
    Function(
        ("st_distance",), _TWO, pa.float64(), _of_two("distance", pa.float64()), can_fail=True
    ),
    Function(("st_simplify",), (_geometry, real), _WKB, _simplified, can_fail=True),
    Function(("st_geomfromtext",), (text,), _WKB, _from_text, can_fail=True),
    Function(("st_geomfromwkb",), _ONE, _WKB, _from_bytes, can_fail=True),
    Function(("st_point", "st_makepoint"), (real, real, real), _WKB, _point, optional=1),
    Function(("st_pointz",), (real, real, real), _WKB, _point),
    Function((FROM_ARROW,), (anything, text), _WKB, _from_arrow, can_fail=True),
)
_GEOMETRIC: Final = frozenset({*_MEASURES, *_PAIRS, "st_distance", "st_simplify"})


def call_on_columns(function: Function, columns: Sequence[pa.Array]) -> pa.Array:
    """Compute a geometric function for columns without a schema.

    A struct of coordinates is a point. Lists of coordinates are ambiguous and rejected.
    """
    given: list[Value] = list(columns)
    if is_geometric(function.names[0]):
        given = [_point_of(column) if _is_point(column.type) else column for column in given]
    takes, _ = function.signature([column.type for column in given])
    arguments = [column.cast(data_type) for column, data_type in zip(given, takes, strict=True)]
    if function.names[0] in _WITH_CONSTANT:
        arguments[-1] = _only(arguments[-1], function.names[0])
    return function.compute(*arguments)


def _is_point(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_struct(data_type))


def _point_of(column: pa.Array) -> pa.Array:
    doubles = pa.struct([pa.field(each.name, pa.float64()) for each in column.type])
    return to_wkb(column.cast(doubles), "point")


def _only(column: pa.Array, name: str) -> pa.Scalar:
    """Return the common value of all rows of a column."""
    if len(column.unique()) > 1:
        raise CoercionError(f"the last argument of {name} must be a constant")
    return column[0] if len(column) else pa.scalar(None, column.type)


_WITH_CONSTANT: Final = frozenset({"st_simplify", FROM_ARROW})
