"""Positions and ids of new columns in a schema, and rejected columns."""

import pyarrow as pa
import pytest

from lancelet.change.columns.fields import (
    ColumnError,
    ColumnNotFoundError,
    ColumnUnsupportedError,
    find_chain,
    grow,
    keeps_nullability,
)
from lancelet.format.schema import Schema
from lancelet.format.version import FileVersion

SCHEMA = Schema.from_arrow(
    pa.schema(
        [
            ("a", pa.int64()),
            ("s", pa.struct([("x", pa.int64())])),
            ("l", pa.list_(pa.struct([("u", pa.int8())]))),
        ]
    )
)


def grown(*fields, version=FileVersion.V2_2, first_id=20):
    return grow(SCHEMA, pa.schema(fields), first_id=first_id, version=version)


def test_new_fields_get_ids_in_the_order_of_the_grown_schema():
    found = grown(
        ("b", pa.int8()),
        ("l", pa.list_(pa.struct([("v", pa.int8())]))),
        ("s", pa.struct([("y", pa.struct([("z", pa.int8())]))])),
    )
    ids = {found.schema.path_of(field.id): field.id for field in found.schema.walk()}
    assert ids == {
        "a": 0,
        "s": 1,
        "s.x": 2,
        "s.y": 20,
        "s.y.z": 21,
        "l": 3,
        "l.item": 4,
        "l.item.u": 5,
        "l.item.v": 22,
        "b": 23,
    }
    assert [field.id for field in found.added.walk()] == [1, 20, 21, 3, 4, 22, 23]


@pytest.mark.parametrize(
    "field",
    [
        ("a", pa.int64()),
        ("a", pa.struct([("x", pa.int64())])),
        ("s", pa.int64()),
        ("s", pa.struct([("x", pa.int64())])),
        ("l", pa.list_(pa.int8())),
        ("_rowid", pa.uint64()),
        ("p.q", pa.int8()),
    ],
)
def test_names_that_are_taken_are_rejected(field):
    with pytest.raises(ColumnError):
        grown(field)


@pytest.mark.parametrize("version", [FileVersion.V0_1, FileVersion.V2_0])
def test_files_before_2_1_hold_structs_as_a_whole(version):
    with pytest.raises(ColumnUnsupportedError, match="add sub column is not supported"):
        grown(("s", pa.struct([("y", pa.int8())])), version=version)


def test_only_new_columns_determine_the_fit_of_concurrent_rows():
    assert keeps_nullability(grown(("s", pa.struct([("y", pa.int8())]))).added, SCHEMA)
    required = pa.field("b", pa.int8(), nullable=False)
    assert not keeps_nullability(grown(required).added, SCHEMA)


def test_a_path_is_spelled_exactly_or_not_found():
    assert [field.name for field in find_chain(SCHEMA, "l.item.u")] == ["l", "item", "u"]
    with pytest.raises(ColumnNotFoundError, match="did you mean a") as missing:
        find_chain(SCHEMA, "A")
    assert isinstance(missing.value, ValueError)
    assert isinstance(missing.value, OSError)
