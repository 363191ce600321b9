"""Schemas with field ids, as pylance shows and pickles them."""

import lance
import pyarrow as pa
import pytest

import lancelet
from lancelet.schema import LanceSchema

CHILD_OF_42 = b"\x12\x05child\x18\x07\x20\x2a\x2a\x05int32"


def test_a_schema_is_unpickled_from_pylance(tmp_path):
    nested = pa.struct([pa.field("x", pa.int32(), metadata={"k": "v"})])
    rows = pa.table({"a": [1], "s": pa.array([{"x": 1}], nested)}).replace_schema_metadata(
        {"who": "me"}
    )
    theirs = lance.write_dataset(rows, tmp_path).lance_schema
    _, parts = theirs.__reduce__()
    assert LanceSchema._from_protos(*parts) == lancelet.dataset(tmp_path).lance_schema


@pytest.mark.parametrize(
    ("metadata", "field", "message"),
    [
        ("{}", CHILD_OF_42, r"Field 'child' \(id=7\) references parent id 42"),
        ("{}", b"zz", "cannot be decoded"),
        ("x", b"", "JSON object"),
        ('{"a": "b"}', b"", "JSON object"),
        ('{"a": [256]}', b"", "JSON object"),
    ],
)
def test_other_parts_are_rejected(metadata, field, message):
    for kind in (LanceSchema, lance.schema.LanceSchema):
        with pytest.raises(ValueError, match=message if kind is LanceSchema else None):
            kind._from_protos(metadata, field)
