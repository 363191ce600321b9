"""Types keep their form both ways; the forms are those of the reference."""

import lance
import lance.namespace
import lance_namespace as ln
import pyarrow as pa
import pytest

from lancelet.namespace.types import parse_type, schema_form, type_form

PLAIN = [
    *(pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.bool_(), pa.string(), pa.binary()),
    *(pa.large_string(), pa.large_binary(), pa.binary(4), pa.date32(), pa.timestamp("us")),
    *(pa.decimal128(10, 2), pa.decimal256(50, 3), pa.null(), pa.list_(pa.int32())),
    *(pa.large_list(pa.string()), pa.list_(pa.float32(), 4), pa.map_(pa.string(), pa.int8())),
    pa.struct([pa.field("x", pa.int32(), nullable=False), pa.field("y", pa.list_(pa.date64()))]),
]


@pytest.mark.parametrize("data_type", PLAIN, ids=str)
def test_a_type_comes_back_from_its_form(data_type):
    assert parse_type(type_form(data_type)) == data_type


def test_forms_are_those_of_the_reference(tmp_path):
    others = [pa.timestamp("ms", "UTC"), pa.time32("s"), pa.dictionary(pa.int8(), pa.string())]
    kinds = [*PLAIN, *others]
    table = pa.table({str(n): pa.array([], kind) for n, kind in enumerate(kinds)})
    lance.write_dataset(table, str(tmp_path / "t.lance"), data_storage_version="2.2")
    namespace = lance.namespace.DirectoryNamespace(root=str(tmp_path))
    told = namespace.describe_table(ln.DescribeTableRequest(id=["t"], load_detailed_metadata=True))
    assert told.var_schema.to_dict() == schema_form(table.schema)


@pytest.mark.parametrize("form", [{}, {"type": "int7"}, {"type": "list"}, {"type": "decimal128"}])
def test_non_form_input_is_rejected(form):
    with pytest.raises(ln.InvalidInputError):
        parse_type(form)
