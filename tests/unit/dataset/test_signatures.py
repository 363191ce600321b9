"""What callers see of methods that pass their arguments on is what the reference shows."""

import inspect

import lance
import pyarrow as pa
import pytest

import lancelet


@pytest.mark.interop
@pytest.mark.parametrize("name", ["scanner", "to_table", "to_batches", "to_pandas"])
def test_scans_show_the_arguments_of_the_reference(name):
    theirs = list(inspect.signature(getattr(lance.LanceDataset, name)).parameters)
    ours = list(inspect.signature(getattr(lancelet.LanceDataset, name)).parameters)
    assert "memory_limit" in ours
    ours.remove("memory_limit")  # which is our own, and named
    assert ours == theirs


@pytest.mark.interop
def test_parts_of_indices_take_the_arguments_of_the_reference():
    theirs = inspect.signature(lance.LanceDataset.create_index_uncommitted).parameters
    ours = inspect.signature(lancelet.LanceDataset.create_index_uncommitted).parameters
    for name, argument in theirs.items():
        if argument.kind is not argument.VAR_KEYWORD:
            assert (ours[name].kind, ours[name].default) == (argument.kind, argument.default)


def test_what_datasets_of_arrow_take_beside_has_no_effect(tmp_path):
    dataset = lancelet.write_dataset(pa.table({"a": [1]}), str(tmp_path))
    (batch,) = dataset.to_batches(use_threads=False, memory_pool=None)
    assert batch.num_rows == 1
    with pytest.raises(TypeError, match="colums"):
        dataset.to_batches(colums=["a"])
