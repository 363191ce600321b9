"""Geometries in Arrow: columns of GeoArrow types, and WKB.

    geoarrow.point         struct<x, y>                  {1, 2}
    geoarrow.linestring    list<struct<x, y>>            [{0, 0}, {3, 4}]
    geoarrow.polygon       list<list<struct<x, y>>>      rings, the exterior first
    geoarrow.wkb           binary                        any geometry

Bounding boxes are computed from coordinates alone. Predicates between geometries use shapely.
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
    """The optional package shapely is not installed."""


class GeometryError(InvalidInputError):
    """A value is not a valid geometry."""


def geometry_kind(extension_name: str) -> str | None:
    """Return the geometry kind of an extension type, or None if it is not a geometry.

    >>> geometry_kind("geoarrow.point"), geometry_kind("arrow.json")
    ('point', None)
    """
    kind = extension_name.removeprefix(_PREFIX)
    is_geometry = extension_name.startswith(_PREFIX) and (kind in _DEPTHS or kind in {WKB, WKT})
    return kind if is_geometry else None


def shapely() -> Any:
    """Import shapely. Raise `MissingShapelyError` if it is not installed."""
    try:
        return importlib.import_module("shapely")
    except ImportError as error:
        raise MissingShapelyError(
            "geometry functions require the package shapely; install lancelet[geo]",
            package="shapely",
        ) from error


def is_geometry_type(data_type: pa.DataType) -> bool:
    """Return whether a type can store geometries: coordinates, lists of them, or WKB.

    >>> is_geometry_type(pa.list_(pa.struct([("x", pa.float64()), ("y", pa.float64())])))
    True
    """
    data_type = _storage_type(data_type)
    if pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type):
        return True
    for _ in range(max(_DEPTHS.values()) + 1):
        if _is_coordinates(data_type):
            return True
        if not (pa.types.is_list(data_type) or pa.types.is_large_list(data_type)):
            return False
        data_type = data_type.value_type
    return False


def bounding_boxes(values: pa.Array) -> Floats:
    """Return xmin, ymin, xmax and ymax of each geometry; NaN for nulls and empty geometries.

    >>> points = pa.array([{"x": 1.0, "y": 2.0}, None])
    >>> bounding_boxes(points).tolist()[0]
    [1.0, 2.0, 1.0, 2.0]
    """
    values = _to_storage(values)
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        return np.asarray(shapely().bounds(from_wkb(values)), np.float64).reshape(-1, 4)
    boxes = np.full((len(values), 4), np.nan)
    stops, coordinates = _flatten(values)
    points = np.column_stack([_axis(coordinates, axis) for axis in range(len(_AXES))])
    ends = np.arange(1, len(values) + 1)
    for level_stops in stops:
        ends = np.concatenate([np.zeros(1, np.int64), level_stops])[ends]
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    filled = np.flatnonzero((ends > starts) & values.is_valid().to_numpy(zero_copy_only=False))
    if len(filled):
        # A null row has no coordinates, or an arbitrary pair.
        bounds = np.column_stack([starts[filled], ends[filled]]).reshape(-1)
        padded = np.concatenate([points, np.full((1, len(_AXES)), np.nan)])
        boxes[filled, :2] = np.fmin.reduceat(padded, bounds)[::2]
        boxes[filled, 2:] = np.fmax.reduceat(padded, bounds)[::2]
    return boxes


def to_wkb(values: pa.Array, kind: str) -> pa.Array:
    """Convert a column of geometries of the given kind to WKB."""
    values = _to_storage(values)
    if kind == WKB:
        return values.cast(pa.large_binary())
    if kind == WKT:
        return render_wkb(from_wkt(values))
    stops, coordinates = _flatten(values)
    names = [field.name for field in coordinates.type] if _has_names(coordinates) else None
    count = 3 if names is not None and "z" in names else len(_AXES)
    if names is None:
        count = min(coordinates.type.list_size, 3)
    points = np.column_stack([_axis(coordinates, axis) for axis in range(count)])
    offsets = [np.concatenate([np.zeros(1, np.int64), level_stops]) for level_stops in stops]
    package = shapely()
    geometry_type = package.GeometryType[kind.upper()]
    shapes = package.from_ragged_array(geometry_type, points, tuple(reversed(offsets)) or None)
    missing = values.is_null().to_numpy(zero_copy_only=False)
    shapes[missing] = None
    return render_wkb(shapes)


def from_wkb(values: pa.Array) -> npt.NDArray[Any]:
    """Parse WKB to shapely geometries."""
    package = shapely()
    try:
        shapes: npt.NDArray[Any] = package.from_wkb(values.to_numpy(zero_copy_only=False))
    except (package.errors.ShapelyError, TypeError) as error:
        raise GeometryError(f"a value is not a valid WKB geometry: {error}") from error
    return shapes


def from_wkt(values: pa.Array) -> npt.NDArray[Any]:
    """Parse WKT to shapely geometries."""
    package = shapely()
    try:
        shapes: npt.NDArray[Any] = package.from_wkt(values.to_numpy(zero_copy_only=False))
    except (package.errors.ShapelyError, TypeError) as error:
        raise GeometryError(f"a text is not a valid WKT geometry: {error}") from error
    return shapes


def render_wkb(shapes: npt.NDArray[Any]) -> pa.Array:
    """Serialize shapely geometries to WKB."""
    return pa.array(shapely().to_wkb(shapes), pa.large_binary())


def _storage_type(data_type: pa.DataType) -> pa.DataType:
    return data_type.storage_type if isinstance(data_type, pa.BaseExtensionType) else data_type


def _to_storage(values: pa.Array) -> pa.Array:
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


def _flatten(values: pa.Array) -> tuple[list[npt.NDArray[np.int64]], pa.Array]:
    """Return the end offsets of the lists at each level, and the flattened coordinates."""
    stops: list[npt.NDArray[np.int64]] = []
    while pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
        lengths = values.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        stops.append(np.cumsum(lengths, dtype=np.int64))
        values = values.flatten()
    return stops, values


def _axis(coordinates: pa.Array, axis: int) -> Floats:
    if _has_names(coordinates):
        values = coordinates.field(
            axis
        )  # `field` applies the slice offset but not the struct validity.
        return np.asarray(values.to_numpy(zero_copy_only=False), np.float64)
    width = coordinates.type.list_size
    start = coordinates.offset * width
    items = coordinates.values.slice(start, len(coordinates) * width)
    return np.asarray(items.to_numpy(zero_copy_only=False), np.float64).reshape(-1, width)[:, axis]
