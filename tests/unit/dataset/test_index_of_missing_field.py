"""An index on a field that the table does not have: never committed, and repairable if it exists.

Other implementations commit such an index if its build races a change of the schema.
"""

import uuid

import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import CommitConflictError, CorruptDataError, FieldNotFoundError
from lancelet.format.index_metadata import AnyDetails, IndexMetadata
from lancelet.format.operation import CreateIndex
from lancelet.table.commit import commit
from tests.kit.tables import new_transaction

pytestmark = pytest.mark.filterwarnings(
    "ignore::lancelet.scan.indexing.segments.IndexUnusableWarning"
)

DIM = 8


def create(path, rows=64):
    rng = np.random.default_rng(0)
    vectors = pa.FixedSizeListArray.from_arrays(
        pa.array(rng.random(rows * DIM, dtype=np.float32)), DIM
    )
    table = pa.table(
        {"id": range(rows), "n": range(rows), "s": [f"word{i}" for i in range(rows)], "v": vectors}
    )
    return lancelet.write_dataset(table, path, max_rows_per_file=rows // 2)


BUILDS = {
    "BTREE": "n",
    "BITMAP": "n",
    "ZONEMAP": "n",
    "INVERTED": "s",
    "NGRAM": "s",
    "IVF_FLAT": "v",
}
CASTS = {"n": pa.int32(), "s": pa.large_string(), "v": pa.list_(pa.float64(), DIM)}


def build(dataset, kind, column, **options):
    if column == "v":
        dataset.create_index(column, kind, name="by_column", num_partitions=1, **options)
    else:
        dataset.create_scalar_index(column, kind, name="by_column", **options)


def change(dataset, column, how):
    if how == "drop":
        dataset.drop_columns([column])
    else:
        dataset.alter_columns({"path": column, "data_type": CASTS[column]})


@pytest.mark.parametrize("how", ["drop", "cast"])
@pytest.mark.parametrize("kind", BUILDS)
def test_build_after_a_change_of_its_column_conflicts(tmp_path, kind, how):
    column = BUILDS[kind]
    dataset = create(tmp_path / "t")
    other = lancelet.dataset(dataset.uri)
    change(other, column, how)
    with pytest.raises(CommitConflictError, match="dropped or has changed its type") as raised:
        build(dataset, kind, column)
    assert raised.value.facts["retryable"]
    latest = lancelet.dataset(dataset.uri)
    assert latest.describe_indices() == []
    if how == "cast":
        build(latest, kind, column)
        latest.validate()


@pytest.mark.parametrize("how", ["drop", "cast"])
@pytest.mark.parametrize("kind", BUILDS)
def test_change_of_a_column_removes_an_index_that_was_built_in_the_meantime(tmp_path, kind, how):
    column = BUILDS[kind]
    dataset = create(tmp_path / "t")
    build(lancelet.dataset(dataset.uri), kind, column)
    change(dataset, column, how)
    latest = lancelet.dataset(dataset.uri)
    assert latest.describe_indices() == []
    latest.validate()


UPKEEP = {
    "append to indices": lambda stale: stale.optimize.optimize_indices(num_indices_to_merge=0),
    "merge indices": lambda stale: stale.optimize.optimize_indices(num_indices_to_merge=1),
    "compact": lambda stale: stale.optimize.compact_files(),
}


@pytest.mark.parametrize("work", UPKEEP)
@pytest.mark.parametrize("kind", BUILDS)
def test_upkeep_after_a_drop_of_the_column_adds_no_segment(tmp_path, kind, work):
    column = BUILDS[kind]
    dataset = create(tmp_path / "t")
    build(dataset, kind, column)
    dataset.insert(dataset.to_table())
    change(lancelet.dataset(dataset.uri), column, "drop")
    UPKEEP[work](dataset)
    latest = lancelet.dataset(dataset.uri)
    assert latest.describe_indices() == []
    latest.validate()


def test_commit_refuses_an_index_on_a_missing_field(tmp_path):
    dataset = create(tmp_path / "t")
    with pytest.raises(FieldNotFoundError, match="by_column"):
        commit_index_on(dataset, 99)


def commit_index_on(dataset, field_id):
    details = AnyDetails("/lance.table.BTreeIndexDetails", b"")
    index = IndexMetadata(uuid.uuid4(), "by_column", (field_id,), dataset.version, details=details)
    operation = CreateIndex((index,))
    return commit(dataset.snapshot.location, new_transaction(dataset.version, operation))


@pytest.fixture
def damaged(tmp_path, monkeypatch):
    """Return a table with an index on a column that was cast in the meantime."""
    dataset = create(tmp_path / "t")
    dataset.create_scalar_index("id", "BTREE")
    with monkeypatch.context() as patched:
        patched.setattr(IndexMetadata, "missing_fields", lambda *_: ())
        other = lancelet.dataset(dataset.uri)
        change(other, "n", "cast")
        build(dataset, "BTREE", "n")
    return lancelet.dataset(dataset.uri)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_table_with_an_index_on_a_missing_field_is_read_and_listed(damaged):
    names = {index.name: index.field_names for index in damaged.describe_indices()}
    assert names == {"id_idx": ["id"], "by_column": ["<unknown>"]}
    listed = {index["name"]: index["fields"] for index in damaged.list_indices()}
    assert listed == names
    assert damaged.count_rows("id < 3") == damaged.count_rows("n < 3") == 3
    damaged.insert(damaged.to_table())
    damaged.optimize.optimize_indices()
    damaged.optimize.compact_files()
    assert damaged.stats.index_stats("id_idx")["num_unindexed_rows"] == 0
    with pytest.raises(FieldNotFoundError, match="drop the index"):
        damaged.optimize.optimize_indices(index_names=["by_column"])


@pytest.mark.parametrize("level", ["present", "indices"])
def test_check_reports_an_index_on_a_missing_field(damaged, level):
    (finding,) = [each for each in damaged.check(level) if each.severity.value == "error"]
    assert finding.index == "by_column"
    assert "do not exist" in finding.what
    with pytest.raises(CorruptDataError, match="by_column"):
        damaged.validate()


REPAIRS = {
    "drop": lambda dataset: dataset.drop_index("by_column"),
    "repair": lambda dataset: dataset.repair(drop_indices=["by_column"], dry_run=False),
    "replace": lambda dataset: build(dataset, "BTREE", "n"),
    "delete rows": lambda dataset: dataset.delete("id = 3"),
}


@pytest.mark.parametrize("repair", REPAIRS)
def test_index_on_a_missing_field_is_removed(damaged, repair):
    REPAIRS[repair](damaged)
    latest = lancelet.dataset(damaged.uri)
    latest.validate()
    assert {index.name for index in latest.describe_indices()} - {"by_column"} == {"id_idx"}
    assert all(index.field_names != ["<unknown>"] for index in latest.describe_indices())
