"""Invalid arguments of `update_columns` and joins, and the rows they write."""

import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.change.columns.fields import ColumnError
from lancelet.change.lossless import LossyConversionError


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"a": [1], "q": ["x"]}, "does not exist in left side"),
        ({"a": [1], "b": [5]}, "do not have the type of the column"),
        ({"a": [1], "_rowaddr": [5]}, "metadata column"),
        ({"a": [1]}, "no columns to update"),
        ({"b": ["x"]}, "does not exist in the right side"),
        ({"a": ["x"], "b": ["x"]}, "type mismatch"),
    ],
)
def test_input_that_cannot_be_updated_is_named(tmp_path, given, message):
    dataset = lancelet.write_dataset(pa.table({"a": [1, 2], "b": ["x", "y"]}), tmp_path)
    with pytest.raises(ColumnError, match=message):
        dataset.get_fragment(0).update_columns(pa.table(given), left_on="a")
    assert len(list((tmp_path / "data").iterdir())) == 1


def test_joined_rows_get_the_types_of_the_table(tmp_path):
    own = {"a": pa.array([1, 2], pa.int16()), "b": pa.array([0.5, 1.5], pa.float32())}
    dataset = lancelet.write_dataset(pa.table(own), tmp_path)
    dataset.merge({"a": [2], "c": ["new"]}, "a")
    assert dataset.to_table()["c"].to_pylist() == [None, "new"]
    fragment, fields = dataset.get_fragment(0).update_columns({"a": [1], "b": [0.1]}, "a")
    operation = lancelet.LanceOperation.Update(updated_fragments=[fragment], fields_modified=fields)
    changed = lancelet.LanceDataset.commit(str(tmp_path), operation, read_version=2)
    assert changed.to_table()["b"].to_pylist() == [np.float32(0.1), 1.5]
    with pytest.raises(LossyConversionError) as caught:
        dataset.merge({"a": [2, 70_000], "d": ["x", "y"]}, "a")
    assert caught.value.facts["row"] == 1


def test_of_rows_with_one_key_the_last_counts(tmp_path):
    dataset = lancelet.write_dataset(pa.table({"a": [1, 2], "b": ["x", "y"]}), tmp_path)
    given = pa.table({"a": [2, 2], "b": ["p", "q"]})
    fragment, fields = dataset.get_fragment(0).update_columns(given, left_on="a")
    operation = lancelet.LanceOperation.Update(
        updated_fragments=[fragment], fields_modified=fields, update_mode="rewrite_columns"
    )
    changed = lancelet.LanceDataset.commit(str(tmp_path), operation, read_version=1)
    assert changed.to_table()["b"].to_pylist() == ["x", "q"]


def test_slices_of_lists_within_lists_are_joined_and_put_in_their_rows(tmp_path):
    """Arrow takes others' values from a slice of them."""
    pairs = pa.FixedSizeListArray.from_arrays(pa.array(range(40), pa.int32()), 2)
    boxes = pa.FixedSizeListArray.from_arrays(pairs, 2)
    rows = pa.table({"k": range(10), "box": boxes})
    joined = lancelet.write_dataset(pa.table({"k": [5, 9]}), tmp_path / "joined")
    joined.merge(rows.slice(4), "k")
    assert joined.to_table()["box"].to_pylist() == [boxes[5].as_py(), boxes[9].as_py()]
    updated = lancelet.write_dataset(rows.slice(0, 3), tmp_path / "updated")
    given = pa.table({"k": [1, 0, 2], "box": boxes.slice(6, 3)})
    metadata, fields = updated.get_fragment(0).update_columns(given, left_on="k", right_on="k")
    operation = lancelet.LanceOperation.Update(updated_fragments=[metadata], fields_modified=fields)
    found = lancelet.LanceDataset.commit(updated.uri, operation, read_version=1).to_table()
    assert found["box"].to_pylist() == [boxes[place].as_py() for place in (7, 6, 8)]
