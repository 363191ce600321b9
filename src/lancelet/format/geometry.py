"""Geometries as Arrow has them: columns of GeoArrow types, and the bytes of WKB.

    geoarrow.point         struct<x, y>                  {1, 2}
    geoarrow.linestring    list<struct<x, y>>            [{0, 0}, {3, 4}]
    geoarrow.polygon       list<list<struct<x, y>>>      rings, the outer one first
    geoarrow.wkb           binary                        any of them

Where geometries lie needs nothing but their coordinates. What they have to do with each other is
worked out by the package shapely.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.errors import InvalidInputError, UnsupportedError

Floats = npt.NDArray[np.float64]

WKB: Final = "wkb"
WKT: Final = "wkt"
_PREFIX: Final = "geoarrow."
_DEPTHS: Final = {
    "point": 0,
    "linestring": 1,
    "multipoint": 1,
    "polygon": 2,
    "multilinestring": 2,
    "multipolygon": 3,
}
_AXES: Final = ("x", "y")
_INTERLEAVED_MAX: Final = 4


class MissingShapelyError(UnsupportedError, OSError):
    """The package that knows geometries is not installed."""


class GeometryError(InvalidInputError):
    """A value is no geometry."""


def geometry_kind(extension_name: str) -> str | None:
    """Return the kind of geometry of an extension type, or None if it is none that is known.

    >>> geometry_kind("geoarrow.point"), geometry_kind("arrow.json")
    ('point', None)
    """
    kind = extension_name.removeprefix(_PREFIX)
    known = extension_name.startswith(_PREFIX) and (kind in _DEPTHS or kind in {WKB, WKT})
    return kind if known else None


def shapely() -> Any:
    """Return the package shapely; raise an error that says so if it is not installed."""
    try:
        return importlib.import_module("shapely")
    except ImportError as error:
        raise MissingShapelyError(
            "functions of geometries need the package shapely; install lancelet[geo]",
            package="shapely",
        ) from error


def is_geometry_type(data_type: pa.DataType) -> bool:
    """Return whether columns of a type may hold geometries: coordinates, lists of them, or WKB.

    >>> is_geometry_type(pa.list_(pa.struct([("x", pa.float64()), ("y", pa.float64())])))
    True
    """
    data_type = _storage_of(data_type)
    if pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type):
        return True
    for _ in range(max(_DEPTHS.values()) + 1):
        if _is_coordinates(data_type):
            return True
        if not (pa.types.is_list(data_type) or pa.types.is_large_list(data_type)):
            return False
        data_type = data_type.value_type
    return False


def boxes_of(values: pa.Array) -> Floats:
    """Return xmin, ymin, xmax and ymax of each geometry; NaN where there is none.

    >>> points = pa.array([{"x": 1.0, "y": 2.0}, None])
    >>> boxes_of(points).tolist()[0]
    [1.0, 2.0, 1.0, 2.0]
    """
    values = _stored(values)
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        return np.asarray(shapely().bounds(from_wkb(values)), np.float64).reshape(-1, 4)
    found = np.full((len(values), 4), np.nan)
    stops, coordinates = _flattened(values)
    points = np.column_stack([_axis(coordinates, axis) for axis in range(len(_AXES))])
    ends = np.arange(1, len(values) + 1)
    for own in stops:
        ends = np.concatenate([np.zeros(1, np.int64), own])[ends]
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    filled = np.flatnonzero((ends > starts) & values.is_valid().to_numpy(zero_copy_only=False))
    if len(filled):
        # Rows without a geometry have no coordinates, or one that belongs to nobody.
        spans = np.column_stack([starts[filled], ends[filled]]).reshape(-1)
        padded = np.concatenate([points, np.full((1, len(_AXES)), np.nan)])
        found[filled, :2] = np.fmin.reduceat(padded, spans)[::2]
        found[filled, 2:] = np.fmax.reduceat(padded, spans)[::2]
    return found


def to_wkb(values: pa.Array, kind: str) -> pa.Array:
    """Return the geometries of a column of a kind as WKB."""
    values = _stored(values)
    if kind == WKB:
        return values.cast(pa.large_binary())
    if kind == WKT:
        return render_wkb(from_wkt(values))
    stops, coordinates = _flattened(values)
    names = [field.name for field in coordinates.type] if _has_names(coordinates) else None
    count = 3 if names is not None and "z" in names else len(_AXES)
    if names is None:
        count = min(coordinates.type.list_size, 3)
    points = np.column_stack([_axis(coordinates, axis) for axis in range(count)])
    offsets = [np.concatenate([np.zeros(1, np.int64), each]) for each in stops]
    package = shapely()
    geometry_type = package.GeometryType[kind.upper()]
    made = package.from_ragged_array(geometry_type, points, tuple(reversed(offsets)) or None)
    missing = values.is_null().to_numpy(zero_copy_only=False)
    made[missing] = None
    return render_wkb(made)


def from_wkb(values: pa.Array) -> npt.NDArray[Any]:
    """Return geometries of shapely; a value that is none is an error."""
    package = shapely()
    try:
        found: npt.NDArray[Any] = package.from_wkb(values.to_numpy(zero_copy_only=False))
    except (package.errors.ShapelyError, TypeError) as error:
        raise GeometryError(f"a value is no geometry in the form of WKB: {error}") from error
    return found


def from_wkt(values: pa.Array) -> npt.NDArray[Any]:
    """Return the geometries that texts name; a text that names none is an error."""
    package = shapely()
    try:
        found: npt.NDArray[Any] = package.from_wkt(values.to_numpy(zero_copy_only=False))
    except (package.errors.ShapelyError, TypeError) as error:
        raise GeometryError(f"a text is no geometry in the form of WKT: {error}") from error
    return found


def render_wkb(shapes: npt.NDArray[Any]) -> pa.Array:
    """Return geometries of shapely as WKB."""
    return pa.array(shapely().to_wkb(shapes), pa.large_binary())


def _storage_of(data_type: pa.DataType) -> pa.DataType:
    return data_type.storage_type if isinstance(data_type, pa.BaseExtensionType) else data_type


def _stored(values: pa.Array) -> pa.Array:
    return values.storage if isinstance(values, pa.ExtensionArray) else values


def _is_coordinates(data_type: pa.DataType) -> bool:
    if pa.types.is_struct(data_type):
        names = [field.name for field in data_type]
        return names[:2] == [*_AXES] and all(pa.types.is_floating(each.type) for each in data_type)
    return bool(
        pa.types.is_fixed_size_list(data_type)
        and len(_AXES) <= data_type.list_size <= _INTERLEAVED_MAX
        and pa.types.is_floating(data_type.value_type)
    )


def _has_names(coordinates: pa.Array) -> bool:
    return bool(pa.types.is_struct(coordinates.type))


def _flattened(values: pa.Array) -> tuple[list[npt.NDArray[np.int64]], pa.Array]:
    """Return where each list of each level ends among those within, and the coordinates."""
    stops: list[npt.NDArray[np.int64]] = []
    while pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
        lengths = values.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        stops.append(np.cumsum(lengths, dtype=np.int64))
        values = values.flatten()
    return stops, values


def _axis(coordinates: pa.Array, axis: int) -> Floats:
    if _has_names(coordinates):
        own = coordinates.field(axis)  # of the slice, whatever the validity of the struct
        return np.asarray(own.to_numpy(zero_copy_only=False), np.float64)
    width = coordinates.type.list_size
    start = coordinates.offset * width
    items = coordinates.values.slice(start, len(coordinates) * width)
    return np.asarray(items.to_numpy(zero_copy_only=False), np.float64).reshape(-1, width)[:, axis]
