"""Laws of schemas: the wire form gives the schema back, and projections keep ids."""

import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.errors import (
    CorruptDataError,
    FieldNotFoundError,
    InvalidInputError,
    LanceletError,
    UnsupportedError,
)
from lancelet.format.field_path import format_path, parse_path
from lancelet.format.logical_type import logical_type_of, storage_type_of
from lancelet.format.protos import file_pb
from lancelet.format.schema import DictionaryLocation, Field, Schema

LEAVES = st.sampled_from(
    [pa.int8(), pa.string(), pa.large_binary(), pa.list_(pa.float32(), 4), pa.uuid(), pa.json_()]
)
NAMES = st.text("abc_é", min_size=1, max_size=4)


def nested(children: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    named = st.lists(
        st.tuples(NAMES, children, st.booleans()), min_size=1, max_size=3, unique_by=lambda c: c[0]
    )
    structs = named.map(lambda parts: pa.struct([pa.field(n, t, nullable=o) for n, t, o in parts]))
    return st.one_of(
        structs,
        structs.map(lambda struct: pa.list_(struct, 2)),
        children.map(pa.list_),
        children.map(pa.large_list),
        children.map(lambda value: pa.map_(pa.string(), value)),
    )


TYPES = st.recursive(LEAVES, nested, max_leaves=8)
SCHEMAS = st.lists(st.tuples(NAMES, TYPES), max_size=4, unique_by=lambda c: c[0]).map(
    lambda columns: pa.schema([pa.field(n, t) for n, t in columns], {"k": b"v\xff"})
)


@given(SCHEMAS, st.integers(0, 100))
def test_the_wire_form_and_arrow_give_the_schema_back(arrow: pa.Schema, first_id: int) -> None:
    schema = Schema.from_arrow(arrow, first_id=first_id)
    assert Schema.from_protos(schema.to_protos(), schema.metadata_bytes()) == schema
    assert schema.to_arrow().equals(arrow, check_metadata=True)
    assert [node.id for node in schema.walk()] == list(
        range(first_id, first_id + len(schema.to_protos()))
    )


@given(SCHEMAS)
def test_every_field_is_found_by_its_id_and_by_its_path(arrow: pa.Schema) -> None:
    schema = Schema.from_arrow(arrow)
    for node in schema.walk():
        assert schema.field_by_id(node.id) == node
        assert schema.field_by_path(schema.path_of(node.id)) == node
        assert list(schema.project_ids([node.id]).walk())[-1].id == list(node.walk())[-1].id
        chain = schema.project([schema.path_of(node.id)])
        assert {part.id for part in chain.walk()} >= {part.id for part in node.walk()}


@given(st.lists(st.text("ab.`", max_size=4), min_size=1, max_size=4))
def test_a_path_gives_its_names_back(names: list[str]) -> None:
    assert list(parse_path(format_path(names))) == names


@pytest.mark.parametrize("path", ["`a", "`a`b", "a.`"])
def test_an_invalid_path_is_rejected(path: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_path(path)


def test_projecting_parts_of_a_struct_joins_them() -> None:
    parts = pa.struct([("x", pa.int8()), ("y", pa.int8()), ("z", pa.int8())])
    schema = Schema.from_arrow(pa.schema([("s", parts), ("t", parts)]))
    projected = schema.project(["t.z", "s.y", "t.x"])
    assert [node.id for node in projected.walk()] == [4, 7, 5, 0, 2]
    assert schema.project(["s.x", "s"]) == schema.project(["s"])
    assert [node.id for node in schema.project_ids({2, 4}).walk()] == [0, 2, 4, 5, 6, 7]


def test_a_missing_name_is_an_error_with_the_name() -> None:
    schema = Schema.from_arrow(pa.schema([("s", pa.struct([("x", pa.int8())]))]))
    with pytest.raises(FieldNotFoundError) as caught:
        schema.field_by_path("s.q")
    assert caught.value.facts["missing"] == "q"


def test_unknown_fields_of_a_field_survive() -> None:
    later = file_pb.Field(name="a", id=3, parent_id=-1, logical_type="int8").SerializeToString()
    later += bytes.fromhex("fa0603616263")  # field 111, the bytes "abc"
    proto = file_pb.Field.FromString(later)
    schema = Schema.from_protos([proto])
    assert schema.fields[0].unknown == bytes.fromhex("fa0603616263")
    assert schema.to_protos()[0].SerializeToString() == later


def test_a_dictionary_location_survives() -> None:
    node = Field("d", 0, "dict:string:int8:false", dictionary=DictionaryLocation(0, 3))
    assert Schema.from_protos(Schema((node,)).to_protos()).fields == (node,)


def test_parts_of_a_stored_blob_have_no_ids() -> None:
    protos = [
        file_pb.Field(name="b", id=2, parent_id=-1, logical_type="struct"),
        file_pb.Field(name="kind", id=-1, parent_id=-1, logical_type="uint8"),
        file_pb.Field(name="size", id=-1, parent_id=-1, logical_type="uint64"),
    ]
    schema = Schema.from_protos(protos)
    assert [child.name for child in schema.fields[0].children] == ["kind", "size"]
    assert schema.to_protos() == protos


ANY_TYPE = st.sampled_from(
    [
        "null",
        "int8",
        "string",
        "json",
        "struct",
        "list",
        "list.struct",
        "large_list",
        "map",
        "dict:string:int8:false",
        "fixed_size_list:struct:2",
        "fixed_size_list:lance.bfloat16:2",
        "fixed_size_binary:16",
        "what",
    ]
)


@st.composite
def wire_trees(draw):
    """Wire fields in any shape: what a type needs as children it may have or not."""
    protos = []
    for field_id in range(draw(st.integers(0, 7))):
        name = draw(st.sampled_from(["a", "key", ""]))
        proto = file_pb.Field(name=name, id=field_id, parent_id=draw(st.integers(-1, field_id - 1)))
        proto.logical_type = draw(ANY_TYPE)
        proto.nullable = draw(st.booleans())
        if draw(st.booleans()):
            extension = draw(st.sampled_from(["arrow.uuid", "arrow.json", "lance.json", "x.y"]))
            proto.metadata["ARROW:extension:name"] = extension.encode()
        protos.append(proto)
    return protos


@given(wire_trees())
def test_any_tree_is_a_schema_or_an_error(protos):
    schema = Schema.from_protos(protos)
    assert sorted(field.id for field in schema.to_protos()) == list(range(len(protos)))
    try:
        arrow = schema.to_arrow()
        types = [field.storage_type for field in schema.walk()]
    except LanceletError:
        return
    assert len(arrow) == len(schema.fields)
    assert len(types) == len(protos)


@pytest.mark.parametrize(
    "ids", [[(0, -1), (0, -1)], [(1, 2), (2, -1)], [(1, 1)], [(-1, -1)], [(3, 7)]]
)
def test_an_invalid_tree_is_corrupt(ids: list[tuple[int, int]]) -> None:
    protos = [file_pb.Field(id=own, parent_id=parent, logical_type="int8") for own, parent in ids]
    with pytest.raises(CorruptDataError):
        Schema.from_protos(protos)


def test_a_bottomless_schema_is_corrupt() -> None:
    protos = [
        file_pb.Field(name="s", id=depth, parent_id=depth - 1, logical_type="struct")
        for depth in range(1000)
    ]
    with pytest.raises(CorruptDataError):
        Schema.from_protos(protos)


@given(st.from_regex(r"(fixed_size_list:|dict:|decimal:|timestamp:|list)?[a-z0-9:.\-]{0,20}"))
def test_any_logical_type_is_an_arrow_type_or_an_error(text: str) -> None:
    try:
        data_type = storage_type_of(text)
    except LanceletError:
        return
    assert isinstance(data_type, pa.DataType)


@pytest.mark.parametrize(
    "text",
    [
        "fixed_size_list:" * 100 + "int8" + ":2" * 100,
        "fixed_size_list:int8:-1",
        "fixed_size_list:int8:99999999999",
        "fixed_size_binary:x",
        "decimal:128:99:1",
        "decimal:64:3:1",
        "timestamp:h:-",
        "dict:string:float:false",
        "dict:string",
    ],
)
def test_an_invalid_logical_type_is_corrupt(text: str) -> None:
    with pytest.raises(CorruptDataError):
        storage_type_of(text)


@given(TYPES)
def test_a_type_without_children_is_its_string_alone(data_type: pa.DataType) -> None:
    node = Field.from_arrow(pa.field("x", data_type), itertools.count())
    if node.is_leaf and node.logical_type not in ("struct", "json"):
        assert storage_type_of(node.logical_type) == node.storage_type
        assert logical_type_of(node.storage_type) == node.logical_type


def test_a_primary_key_is_in_key_order() -> None:
    key = "lance-schema:unenforced-primary-key"
    arrow = pa.schema(
        [
            pa.field("a", pa.int8(), nullable=False, metadata={key: "true"}),
            pa.field("b", pa.int8(), nullable=False, metadata={f"{key}:position": "2"}),
            pa.field("c", pa.int8(), nullable=False, metadata={f"{key}:position": "1"}),
        ]
    )
    assert [node.name for node in Schema.from_arrow(arrow).primary_key] == ["c", "b", "a"]


def test_an_extension_that_does_not_suit_its_storage_is_shown_as_stored() -> None:
    claim = pa.field("x", pa.int8(), metadata={"ARROW:extension:name": "arrow.json"})
    node = Schema.from_arrow(pa.schema([claim])).fields[0]
    assert node.arrow_type == pa.int8()
    assert node.to_arrow().equals(claim, check_metadata=True)


@pytest.mark.parametrize("metadata", [{b"\xff": b"v"}, {b"k": b"v", b"a\xe9": b""}])
def test_keys_of_metadata_must_be_text(metadata: dict[bytes, bytes]) -> None:
    for arrow in (
        pa.schema([], metadata),
        pa.schema([pa.field("x", pa.list_(pa.field("item", pa.int8(), metadata=metadata)))]),
    ):
        with pytest.raises(InvalidInputError, match="must be UTF-8") as caught:
            Schema.from_arrow(arrow)
        assert caught.value.facts["key"] in metadata


@pytest.mark.parametrize("wrap", [pa.list_, lambda inner: pa.struct([("s", inner)])])
def test_columns_that_nest_deeper_than_readers_go_are_rejected(wrap):
    data_type = pa.int8()
    for _ in range(100):
        data_type = wrap(data_type)
    assert Schema.from_arrow(pa.schema([("x", data_type)])).max_field_id == 100
    with pytest.raises(UnsupportedError, match=r"nest(s too deeply|ing limit)"):
        Schema.from_arrow(pa.schema([("x", wrap(data_type))]))


def test_an_arrow_schema_that_comes_again_is_the_same_schema() -> None:
    columns = pa.schema([("a", pa.int32()), ("s", pa.struct([("x", pa.string())]))])
    assert Schema.from_arrow(columns) is Schema.from_arrow(pa.schema(list(columns)))
    others = [
        columns.with_metadata({"key": "value"}),
        columns.set(0, columns.field(0).with_metadata({"key": "value"})),
        columns.set(0, columns.field(0).with_nullable(False)),
        columns.set(1, pa.field("s", pa.struct([pa.field("x", pa.string(), metadata={"k": "v"})]))),
    ]
    made = [Schema.from_arrow(each) for each in [columns, *others]]
    assert [
        each.to_arrow().equals(arrow, check_metadata=True)
        for each, arrow in zip(made, [columns, *others], strict=True)
    ] == [True] * 5
    assert Schema.from_arrow(columns, first_id=7).fields[0].id == 7


def test_map_entries_preserve_their_names_and_metadata() -> None:
    value = pa.field("weight", pa.int32(), metadata={"unit": "g"})
    arrow = pa.schema([("m", pa.map_(pa.field("name", pa.string(), nullable=False), value))])
    (entries,) = Schema.from_arrow(arrow).fields[0].children
    assert [node.name for node in entries.children] == ["name", "weight"]
    assert entries.children[1].metadata == {"unit": "g"}


def test_columns_that_nest_deeper_than_arrow_stores_are_rejected_by_us() -> None:
    data_type = pa.int8()
    for _ in range(130):
        data_type = pa.list_(data_type)
    with pytest.raises(UnsupportedError, match=r"nest(s too deeply|ing limit)"):
        Schema.from_arrow(pa.schema([("x", data_type)]))
