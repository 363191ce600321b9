"""Tables of file version 0.1 store the values of dictionaries in the manifest."""

import pyarrow as pa
import pytest

import lancelet


@pytest.mark.parametrize("num_columns", [0, 1, 2])
def test_dictionaries_of_old_files_are_stored_in_the_manifest(tmp_path, num_columns):
    values = pa.array(["a", "b", "a"]).dictionary_encode()
    rows = pa.table({"id": [1, 2, 3], **{f"d{number}": values for number in range(num_columns)}})
    uri = str(tmp_path / "t")
    lancelet.write_dataset(rows, uri, data_storage_version="legacy")
    found = lancelet.dataset(uri)
    assert found.to_table().to_pylist() == rows.to_pylist()
    found.delete("id = 2")
    assert found.to_table().to_pylist() == [rows.to_pylist()[row] for row in (0, 2)]
