"""Takes by row index from one or several fragments, with deleted rows, repeatedly.

The second and later takes of the same columns go other ways than the first one, so each is made
several times.
"""

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lancelet
from lancelet.errors import LanceletError

ROWS = 900


def table_of(start, stop):
    rows = np.arange(start, stop)
    nulls = rows % 7 == 0
    vectors = pa.array(np.repeat(rows, 4).astype(np.float32))
    return pa.table(
        {
            "id": rows,
            "text": pa.array([f"row {row}" for row in rows], mask=nulls),
            "vector": pa.FixedSizeListArray.from_arrays(vectors, 4),
            "tags": [[f"t{row}"] * (row % 3) for row in rows.tolist()],
        }
    )


@pytest.fixture(scope="module", params=[1, 3], ids=["one fragment", "three fragments"])
def dataset(request, tmp_path_factory):
    uri = str(tmp_path_factory.mktemp("takes") / "t.lance")
    step = ROWS // request.param
    for start in range(0, ROWS, step):
        lancelet.write_dataset(table_of(start, start + step), uri, mode="append")
    found = lancelet.dataset(uri)
    found.delete("id % 5 = 3 OR (id > 310 AND id < 350)")
    return found


@settings(max_examples=40)
@given(data=st.data())
def test_takes_are_the_rows_that_a_scan_has_at_these_places(dataset, data):
    whole = dataset.to_table()
    names = data.draw(st.lists(st.sampled_from(whole.column_names), min_size=1, unique=True))
    for _ in range(3):
        picks = data.draw(st.lists(st.integers(0, whole.num_rows - 1), max_size=12))
        found = dataset.take(picks, columns=names)
        found.validate(full=True)
        assert found.equals(whole.select(names).take(pa.array(picks, pa.int64())))


def test_rows_by_id_are_found_again_and_again(dataset):
    whole = dataset.to_table(with_row_id=True)
    for pick in (0, 5, whole.num_rows - 1, 5):
        row_id = whole["_rowid"][pick].as_py()
        found = dataset._take_rows([row_id], columns=["text", "id"])
        assert found.equals(whole.select(["text", "id"]).slice(pick, 1))


@pytest.mark.parametrize("outside", [-1, ROWS])
def test_rows_outside_of_the_table_are_rejected_again_and_again(dataset, outside):
    for _ in range(3):
        assert dataset.take([2], columns=["id"]).num_rows == 1
        with pytest.raises(LanceletError):
            dataset.take([2, outside], columns=["id"])
        with pytest.raises(LanceletError):
            dataset.take([outside], columns=["id"])


def test_concurrently_deleted_rows_are_taken_from_the_opened_version(tmp_path):
    lancelet.write_dataset(table_of(0, 100), tmp_path / "t.lance")
    before = lancelet.dataset(tmp_path / "t.lance")
    for _ in range(3):
        before.take([40], columns=["id"])
    after = lancelet.dataset(tmp_path / "t.lance")
    after.delete("id < 40")
    assert before.take([40], columns=["id"])["id"].to_pylist() == [40]
    for _ in range(3):
        assert after.take([40], columns=["id"])["id"].to_pylist() == [80]


def test_row_columns_come_as_often_as_they_are_named(tmp_path):
    """As in the reference; other columns come once."""
    uri = str(tmp_path / "t")
    lancelet.write_dataset(pa.table({"a": range(5), "b": range(5)}), uri)
    for columns in (["_rowid", "_rowid"], ["a", "_rowid", "b", "a", "_rowid", "_rowaddr"]):
        found, expected = (
            each.dataset(uri).take([3, 1], columns=columns) for each in (lancelet, lance)
        )
        assert found.column_names == expected.column_names
        assert [each.to_pylist() for each in found.columns] == [
            each.to_pylist() for each in expected.columns
        ]
