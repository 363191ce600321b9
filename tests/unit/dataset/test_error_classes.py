"""Wrong calls raise the classes that programs for pylance catch."""

import lance
import lance.fragment
import pyarrow as pa
import pytest

import lancelet
import lancelet.fragment
from lancelet.errors import LanceletError

VECTORS = pa.FixedSizeListArray.from_arrays(pa.array([0, 0, 1, 1], pa.float32()), 2)
ROWS = pa.table({"a": [1, 2], "b": ["x", "y"], "v": VECTORS})
MAPS = pa.table({"m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32()))})
NULLS = pa.table({"a": [None]}, pa.schema([pa.field("a", pa.int32(), nullable=False)]))
NEAR = {"column": "v", "q": [0.0, 0.0], "k": 1}

WRONG = {
    "a version of no type": lambda m, d: m.dataset(d.uri, version=1.5),
    "a number as a time": lambda m, d: m.dataset(d.uri, asof=1.5),
    "a version that is not there": lambda m, d: m.dataset(d.uri, version=9),
    "two columns of one name": lambda m, d: m.write_dataset(
        pa.table([pa.array([1]), pa.array([2])], ["a", "a"]), d.uri + "x"
    ),
    "a name with a dot": lambda m, d: m.write_dataset(pa.table({"a.b": [1]}), d.uri + "y"),
    "rows without columns": lambda _, d: d.insert(ROWS.select([])),
    "no rows": lambda m, d: m.write_dataset(None, d.uri + "z"),
    "a fragment of nothing": lambda m, _: m.fragment.FragmentMetadata.from_json("{}"),
    "fewer than no transactions": lambda _, d: d.get_transactions(-1),
    "deleted blobs": lambda m, d: (d.delete("a = 1"), _blobs(m, d)),
    "a filter of nothing": lambda _, d: d.to_table(filter=""),
    "a config of numbers": lambda _, d: d.update_config({"k": 5}),
    "a filter that ends early": lambda _, d: d.to_table(filter="a >"),
    "a row behind the end": lambda _, d: d.take([99]),
    "a column that is there": lambda _, d: d.add_columns({"a": "1"}),
    "all columns": lambda _, d: d.drop_columns(["a", "b", "v"]),
    "a tag that is taken": lambda _, d: (d.tags.create("t", 1), d.tags.create("t", 1)),
    "an index that is not there": lambda _, d: d.drop_index("none"),
    "a type of later files": lambda m, d: m.write_dataset(
        MAPS, d.uri + "m", data_storage_version="2.1"
    ),
    "null structs in older files": lambda m, d: m.write_dataset(
        pa.table({"s": [{"x": 1}, None]}), d.uri + "o", data_storage_version="2.0"
    ),
    "fewer than no rows": lambda m, d: m.write_dataset(ROWS, d.uri + "f", max_rows_per_file=-1),
    "a batch of fewer than no rows": lambda _, d: d.to_table(batch_size=-1),
    "a null where none may be": lambda m, d: m.write_dataset(NULLS, d.uri + "n"),
    "updates as text": lambda _, d: d.update("a"),
    "columns as text": lambda _, d: d.drop_columns("a"),
    "metadata as text": lambda _, d: d.update_metadata("a"),
    "metadata of no field": lambda _, d: d.update_field_metadata({"none": {"k": "v"}}),
    "an order by a number": lambda _, d: d.scanner(order_by=[5]).to_table(),
    "a vector of text": lambda _, d: d.to_table(nearest={"column": "v", "q": "abc"}),
    "as many as text says": lambda _, d: d.to_table(nearest={**NEAR, "k": "3"}),
    "two searches": lambda _, d: (
        d.create_scalar_index("b", "INVERTED"),
        d.to_table(nearest=NEAR, full_text_query="x"),
    ),
}


def _blobs(module, dataset):
    schema = pa.schema([pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})])
    made = module.write_dataset(pa.table({"b": [b"x", b"y"]}, schema), dataset.uri + "blobs")
    made.delete("_rowid = 0")
    return made.take_blobs("b", ids=[0, 1])


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_the_class_is_the_one_of_the_reference(tmp_path, wrong):
    theirs = lance.write_dataset(ROWS, str(tmp_path / "theirs"))
    with pytest.raises(Exception) as expected:  # noqa: PT011 - its class is the point
        wrong(lance, theirs)
    ours = lancelet.write_dataset(ROWS, str(tmp_path / "ours"))
    with pytest.raises(expected.type) as found:
        wrong(lancelet, ours)
    assert isinstance(found.value, LanceletError)


@pytest.mark.parametrize("name", ["_rowid", "_rowaddr", "_row_created_at_version"])
def test_no_column_is_renamed_to_one_of_rows(name):
    """The reference permits it, and the two are then indistinguishable."""
    dataset = lancelet.write_dataset(ROWS, "memory://renamed")
    with pytest.raises(ValueError, match="row column"):
        dataset.alter_columns({"path": "a", "name": name})
