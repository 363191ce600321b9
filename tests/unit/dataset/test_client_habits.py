"""Common habits of programs written for pylance: strings, dicts, private names."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pytest

import lancelet
from lancelet.errors import CommitConflictError, UnsupportedError
from lancelet.optimize import Compaction, CompactionOptions

ROWS = pa.table({"a": range(8), "t": pa.FixedShapeTensorArray.from_numpy_ndarray(np.ones((8, 2)))})


@pytest.fixture
def dataset(tmp_path):
    return lancelet.write_dataset(ROWS, tmp_path / "t.lance")


def test_missing_tables_raise_not_found(dataset, tmp_path):
    with pytest.raises(ValueError, match="was not found"):
        lancelet.dataset(tmp_path / "other")
    with pytest.raises(ValueError, match=r"not\s+found"):
        lancelet.dataset(dataset.uri, version=9)


def test_a_conflict_that_another_attempt_would_solve_is_retryable_without_attempts_too(dataset):
    version = dataset.version
    lancelet.dataset(dataset.uri).delete("a = 2")
    change = lancelet.LanceOperation.Overwrite(dataset.schema, [])
    with pytest.raises(CommitConflictError, match="Retryable commit conflict") as caught:
        lancelet.LanceDataset.commit(dataset.uri, change, read_version=version, max_retries=0)
    assert caught.value.retryable
    assert "Commit conflict for version 2" in str(caught.value)


def test_deleted_rows_need_row_ids(dataset):
    with pytest.raises(ValueError, match="with_row_id=True"):
        dataset.to_table(include_deleted_rows=True)


def test_bytes_are_shown_as_digits_in_plans(tmp_path):
    keys = pa.table({"key": pa.array([b"0123012301230123", b"2345234523452345"], pa.uuid())})
    table = lancelet.write_dataset(keys, tmp_path / "keys")
    table.create_scalar_index("key", "BTREE")
    wanted = "arrow_cast(0x32333435323334353233343532333435, 'FixedSizeBinary(16)')"
    shown = table.scanner(filter=f"key = {wanted}").explain_plan()
    assert "ScalarIndexQuery: query=[key = 32333435323334353233...]@key_idx" in shown
    shown = table.scanner(filter="key > X'32333435'").explain_plan()
    assert "X'32333435'" in shown


def test_options_of_scans_are_set_later(dataset):
    dataset._default_scan_options = {"with_row_id": True}
    assert "_rowid" in dataset.schema.names
    assert dataset.schema == dataset.to_table().schema


def test_no_mode_is_the_default_mode(tmp_path):
    lancelet.write_dataset(ROWS, tmp_path / "t", mode=None)
    with pytest.raises(OSError, match="already exists"):
        lancelet.write_dataset(ROWS, tmp_path / "t", mode=None)


def test_options_of_a_compaction_are_a_dict(dataset):
    dataset.insert(ROWS)
    options = CompactionOptions(target_rows_per_fragment=100, num_threads=1)
    options["materialize_deletions"] = True
    assert {**options} == dict(options.items())
    plan = Compaction.plan(dataset, options)
    assert plan.num_tasks() == 1
    assert Compaction.execute(dataset, options).fragments_removed == 2


def test_private_names_that_programs_read(dataset):
    opened = lancelet.dataset(dataset.uri, default_scan_options={"with_row_id": True})
    assert opened._default_scan_options == {"with_row_id": True}
    assert opened._namespace_client is None
    assert opened._table_id is None
    assert opened._namespace_client_managed_versioning is False


def test_arguments_that_create_index_does_not_know_are_named_and_ignored(tmp_path):
    vectors = pa.array([[1.0, 2.0]] * 8, pa.list_(pa.float32(), 2))
    dataset = lancelet.write_dataset(pa.table({"v": vectors}), tmp_path / "t")
    with pytest.warns(UserWarning, match="'metric_type'.*did you mean metric") as caught:
        dataset.create_index("v", "IVF_FLAT", num_partitions=1, metric_type="L2")
    assert [each.filename for each in caught] == [__file__]
    assert dataset.has_index


@pytest.mark.parametrize(
    "wanted",
    [
        pa.list_(pa.float16(), 2),
        pa.list_(pa.float32(), 2),
        pa.list_(pa.float64()),
        pa.fixed_shape_tensor(pa.float16(), [2]),
    ],
)
def test_tensors_are_cast_as_the_lists_that_they_are(dataset, wanted):
    dataset.alter_columns({"path": "t", "data_type": wanted})
    assert dataset.schema.field("t").type == wanted
    assert dataset.to_table()["t"].to_pylist() == [[1.0, 1.0]] * 8


def test_pyarrow_gets_an_error_where_it_asks_no_method(dataset):
    scanner = pa.dataset.Scanner.from_dataset(dataset)
    for read in (scanner.to_table, scanner.count_rows, lambda: scanner.head(1)):
        with pytest.raises(UnsupportedError, match=r"LanceDataset\.scanner"):
            read()
    assert isinstance(dataset, pa.dataset.Dataset)
    assert not hasattr(dataset, "children")


def test_events_are_logged_to_the_configured_target(tmp_path):
    log = tmp_path / "deep" / "folder" / "lance.log"
    program = f"import lancelet; lancelet.write_dataset({{'a': [1]}}, {str(tmp_path / 't')!r})"
    environment = {**os.environ, "LANCE_LOG_FILE": str(log), "LANCE_LOG": "info"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    lines = log.read_text().splitlines()
    assert all(
        re.match(r"\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ INFO  lance::\w+\] ", one) for one in lines
    )
    assert any('event="committed"' in line for line in lines)


def test_pandas_knows_the_dtype_once_the_types_of_arrow_are_imported():
    program = (
        "import lancelet.arrow, pandas; print(pandas.api.types.pandas_dtype('lance.bfloat16').name)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "lance.bfloat16"


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda d: d.drop_index("prise_idx"), "did you mean price_idx"),
        (lambda d: d.stats.index_stats("prise_idx"), "did you mean price_idx"),
        (
            lambda d: d.optimize.optimize_indices(index_names=["prise_idx"]),
            "did you mean price_idx",
        ),
        (lambda d: d.checkout_version("relase"), "did you mean release"),
        (lambda d: d.tags.delete("relase"), "did you mean release"),
        (lambda d: d.checkout_version(("sied", None)), "did you mean side"),
        (lambda d: d.branches.delete("sied"), "did you mean side"),
        (lambda d: d.delete(where="price = 1"), "delete.*'where'; it takes predicate, "),
        (lambda d: d.update({"price": "1"}, wher="price = 1"), "'wher'; did you mean where"),
        (
            lambda d: lancelet.dataset(d.uri, storage_options={"allow_http": True}),
            "write 'true'.*allow_http.*str.*bool",
        ),
        (lambda d: d.delete(), r"LanceDataset\.delete\(\) missing"),
        (
            lambda d: d.scanner(colums=["price"]),
            r"LanceDataset\.scanner\(\) got.*; did you mean columns",
        ),
        (lambda d: d.take([0], colums=["price"]), r"LanceDataset\.take\(\) .*mean columns"),
        (lambda d: d.count_rows(fliter="price = 1"), "did you mean filter"),
        (
            lambda d: d.insert({"price": [3]}, max_rows_per_fil=5),
            r"LanceDataset\.insert.*did you mean max_rows_per_file",
        ),
        (lambda d: d.get_fragments()[0].scanner(colums=["price"]), "did you mean columns"),
        (lambda d: d.to_table(order_by=5), "order_by requires column names.*found='int'"),
        (lambda d: d.to_table(colums=["price"]), "'colums'; did you mean columns"),
        (lambda d: list(d.to_batches(fliter="a")), "'fliter'; did you mean filter"),
        (lambda d: d.to_table(nearest={"colum": "v", "q": [1.0]}), "'colum'; did you mean column"),
        (lambda d: d.to_table(nearest={"column": "vv", "q": [1.0]}), "did you mean v"),
        (lambda d: d.merge_insert("prise"), "did you mean price"),
        (lambda d: d.create_scalar_index("price", "BTRE"), "did you mean BTREE"),
        (lambda d: d.create_index("v", "IVF_PQQ"), "did you mean IVF_PQ"),
        (lambda d: d.create_index("v", "IVF_FLAT", metric="cosin"), "did you mean cosine"),
        (lambda d: d.alter_columns({"path": "price", "nme": "x"}), "did you mean name"),
        (lambda d: lancelet.write_dataset({"a": [1]}, d.uri, mode="apend"), "did you mean append"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest(tmp_path, call, hint):
    vectors = pa.array([[0.0], [1.0]], pa.list_(pa.float32(), 1))
    rows = pa.table({"price": [1, 2], "v": vectors})
    dataset = lancelet.write_dataset(rows, tmp_path / "t")
    dataset.create_scalar_index("price", "BTREE")
    dataset.tags.create("release", 1)
    dataset.create_branch("side")
    with pytest.raises((LookupError, ValueError, TypeError, NotImplementedError), match=hint):
        call(dataset)


def test_a_misspelt_column_is_answered_with_the_nearest(tmp_path):
    dataset = lancelet.write_dataset({"price": [1.0], "name": ["cat"]}, tmp_path / "t")
    for ask in (
        lambda: dataset.to_table(["prce"]),
        lambda: dataset.take([0], ["prce"]),
        lambda: dataset.to_table(order_by="prce"),
        lambda: dataset.to_table(filter="prce > 1"),
        lambda: dataset.create_scalar_index("prce", "BTREE"),
    ):
        with pytest.raises(ValueError, match="did you mean price"):
            ask()
    with pytest.raises(OSError, match=r"already exists; append to it .* mode='append'"):
        lancelet.write_dataset({"price": [1.0]}, tmp_path / "t")


def test_a_vector_alone_is_searched_in_the_one_column_of_vectors(tmp_path):
    vectors = pa.array([[0.0, 1.0], [1.0, 0.0]], pa.list_(pa.float32(), 2))
    rows = pa.table({"text": ["a fox", "a dog"], "v": vectors})
    dataset = lancelet.write_dataset(rows, tmp_path / "t")
    dataset.create_scalar_index("text", "INVERTED")
    found = dataset.hybrid_search("fox", np.array([0.0, 1.0]), k=1)
    assert found["text"].to_pylist() == ["a fox"]
    dataset.add_columns({"w": "v"})
    with pytest.raises(ValueError, match="table with one vector column"):
        dataset.hybrid_search("fox", [0.0, 1.0])
