"""Names that programs for pylance take from its modules are found in ours."""

import importlib
import inspect

import lance
import lance._arrow.bf16
import lance.dataset
import lance.dependencies
import lance.fragment
import lance.lance
import lance.progress
import pyarrow as pa
import pytest

import lancelet
import lancelet.dependencies
import lancelet.types

THEIR_OWN = {
    "ABC", "Any", "BitmapIterator", "LanceBlobFile", "LanceFileReader", "LanceFileSession",
    "LanceFileWriteSummary", "LanceFileWriter", "PandasBFloat16Array", "PandasBFloat16Type",
    "PyDirectoryNamespace", "PyFullTextQuery", "PyRestAdapter", "PyRestNamespace",
    "PySearchFilter", "RowIdSequenceIterator", "StorageOptionsAccessor", "TraceGuard",
    "model_to_dict", "normalize_transform", "shutdown_tracing", "TYPE_CHECKING", "td_to_micros",
}  # fmt: skip
"""What is of use to the Python code of pylance alone."""


@pytest.mark.interop
@pytest.mark.parametrize("name", ["", ".dataset", ".fragment", ".lance", "._arrow.bf16"])
def test_classes_and_functions_are_found(name):
    theirs = importlib.import_module("lance" + name)
    ours = importlib.import_module("lancelet" + name)
    asked = {
        key
        for key, value in vars(theirs).items()
        if not key.startswith("_")
        and not inspect.ismodule(value)
        and (getattr(value, "__module__", None) or "lance").split(".")[0]
        in {"lance", "_lib", "builtins"}
        and (callable(value) or key.isupper())
        and key not in THEIR_OWN
        and value is not bool
    }
    assert not {key for key in asked if not hasattr(ours, key)}


@pytest.mark.interop
def test_models_and_marks_have_the_names_of_the_reference():
    class Model:
        def dict(self):
            return {"a": 1}

    for module in (lance, lancelet):
        assert module.dependencies.model_to_dict(Model()) == {"a": 1}
        assert module.progress.FileSystemFragmentWriteProgress.PROGRESS_EXT == ".in_progress"


def test_rows_in_any_form_become_a_reader():
    schema = pa.schema({"a": pa.int32()})
    for rows in (pa.table({"a": [1]}), {"a": [1]}, [{"a": 1}], pa.record_batch({"a": [1]})):
        assert lancelet.types._is_materialized(rows)
        reader = lancelet.types._coerce_reader(rows, schema)
        assert reader.read_all() == pa.table({"a": [1]}, schema=schema)
    for rows in (iter([]), [], pa.table({"a": [1]}).to_reader()):
        assert not lancelet.types._is_materialized(rows)
