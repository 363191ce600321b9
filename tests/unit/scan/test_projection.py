"""What projecting many columns costs."""

from lancelet.format.field import Field
from lancelet.format.schema import Schema
from lancelet.scan.projection import project

NUM_COLUMNS = 300
LOOKS_PER_COLUMN_MAX = 10


class _Name(str):
    """A name that counts its comparisons."""

    __slots__ = ()
    looks = 0

    def __eq__(self, other: object) -> bool:
        _Name.looks += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_each_of_many_columns_is_found_without_looking_at_all_others():
    fields = tuple(Field(_Name(f"c{i}"), i, "int32") for i in range(NUM_COLUMNS))
    _Name.looks = 0
    found = project(Schema(fields), None)
    assert found.fields == fields
    assert _Name.looks <= LOOKS_PER_COLUMN_MAX * NUM_COLUMNS
