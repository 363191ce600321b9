"""Every operation does the same in a folder, in memory and behind a server."""

import lance_namespace as ln
import pyarrow as pa
import pytest

from lancelet.namespace import DirectoryNamespace

ID = ["sales", "q"]


@pytest.fixture
def table(namespace, rows):
    namespace.create_namespace(ln.CreateNamespaceRequest(id=["sales"]))
    namespace.create_table(ln.CreateTableRequest(id=ID), rows)
    return namespace


def _query(namespace, **options):
    asked = ln.QueryTableRequest(id=ID, **{"k": 0, "vector": {}, **options})
    data = namespace.query_table(asked).data
    return pa.ipc.open_file(data).read_all()


def test_rows_are_counted_inserted_changed_and_deleted(table, rows):
    assert table.count_table_rows(ln.CountTableRowsRequest(id=ID)).count == 3
    counted = table.count_table_rows(ln.CountTableRowsRequest(id=ID, predicate="a > 1"))
    assert counted.count == 2
    inserted = table.insert_into_table(ln.InsertIntoTableRequest(id=ID), rows)
    assert inserted.version == 2
    done = table.update_table(
        ln.UpdateTableRequest(id=ID, updates=[["b", "'w'"]], predicate="a = 1")
    )
    assert done.updated_rows == 2
    assert table.delete_from_table(ln.DeleteFromTableRequest(id=ID, predicate="a = 2")).version == 4
    assert sorted(_query(table)["b"].to_pylist()) == ["w", "w", "z", "z"]
    table.insert_into_table(ln.InsertIntoTableRequest(id=ID, mode="overwrite"), rows)
    assert _query(table, filter="a > 1", columns={"column_names": ["a"]}).to_pydict() == {
        "a": [2, 3]
    }


def test_rows_are_merged(table, stream_of):
    rows = stream_of(pa.table({"a": [3, 4], "b": ["c", "d"]}))
    done = table.merge_insert_into_table(
        ln.MergeInsertIntoTableRequest(
            id=ID, on=["a"], when_matched_update_all=True, when_not_matched_insert_all=True
        ),
        rows,
    )
    assert (done.num_updated_rows, done.num_inserted_rows) == (1, 1)
    assert dict(zip(*_query(table).to_pydict().values(), strict=True)) == {
        1: "x",
        2: "y",
        3: "c",
        4: "d",
    }


def test_vectors_and_texts_are_searched(namespace, stream_of):
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([0, 0, 5, 5, 9, 9], pa.float32()), 2)
    rows = pa.table({"id": [1, 2, 3], "vector": vectors, "t": ["red fox", "dog", "red dog"]})
    namespace.create_table(ln.CreateTableRequest(id=["v"]), stream_of(rows))

    def ids(**options):
        asked = ln.QueryTableRequest(id=["v"], **{"k": 2, "vector": {}, **options})
        return pa.ipc.open_file(namespace.query_table(asked).data).read_all()["id"].to_pylist()

    assert ids(vector={"single_vector": [6.0, 6.0]}) == [2, 3]
    index = ln.CreateTableIndexRequest(id=["v"], column="t", index_type="INVERTED")
    namespace.create_table_index(index)
    text = {"string_query": {"query": "red", "columns": ["t"]}}
    assert sorted(ids(full_text_query=text)) == [1, 3]
    both = {
        "boolean": {
            "must": [{"match": {"terms": "red", "column": "t"}}],
            "must_not": [{"match": {"terms": "fox", "column": "t"}}],
            "should": [],
        }
    }
    assert ids(full_text_query={"structured_query": {"query": both}}) == [3]


def test_columns_are_added_changed_and_dropped(table):
    added = ln.AlterTableAddColumnsRequest(id=ID, new_columns=[{"name": "c", "expression": "a*2"}])
    assert table.alter_table_add_columns(added).version == 2
    changed = ln.AlterTableAlterColumnsRequest(
        id=ID, alterations=[{"path": "c", "rename": "d", "data_type": {"type": "int32"}}]
    )
    table.alter_table_alter_columns(changed)
    assert _query(table)["d"].type == pa.int32()
    assert _query(table)["d"].to_pylist() == [2, 4, 6]
    table.alter_table_drop_columns(ln.AlterTableDropColumnsRequest(id=ID, columns=["d"]))
    with pytest.raises(ln.TableColumnNotFoundError):
        table.alter_table_drop_columns(ln.AlterTableDropColumnsRequest(id=ID, columns=["d"]))
    told = table.update_table_schema_metadata(
        ln.UpdateTableSchemaMetadataRequest(id=ID, metadata={"k": "v"})
    )
    assert told.metadata == {"k": "v"}


def test_indices_are_built_listed_and_dropped(table):
    asked = ln.CreateTableIndexRequest(id=ID, column="a", index_type="BTREE")
    table.create_table_scalar_index(asked)
    with pytest.raises(ln.TableIndexAlreadyExistsError):
        table.create_table_index(asked)
    (index,) = table.list_table_indices(ln.ListTableIndicesRequest(id=ID)).indexes
    assert (index.index_name, index.columns, index.num_indexed_rows) == ("a_idx", ["a"], 3)
    named = {"id": ID, "index_name": "a_idx"}
    stats = table.describe_table_index_stats(ln.DescribeTableIndexStatsRequest(**named))
    assert (stats.num_indexed_rows, stats.num_unindexed_rows) == (3, 0)
    table.drop_table_index(ln.DropTableIndexRequest(**named))
    with pytest.raises(ln.TableIndexNotFoundError):
        table.drop_table_index(ln.DropTableIndexRequest(**named))
    with pytest.raises(ln.TableIndexNotFoundError):
        table.describe_table_index_stats(ln.DescribeTableIndexStatsRequest(**named))


def test_versions_tags_and_branches_are_managed(table, rows):
    table.insert_into_table(ln.InsertIntoTableRequest(id=ID), rows)
    versions = table.list_table_versions(ln.ListTableVersionsRequest(id=ID, descending=True))
    assert [version.version for version in versions.versions] == [2, 1]
    page = table.list_table_versions(ln.ListTableVersionsRequest(id=ID, limit=1))
    assert ([version.version for version in page.versions], page.page_token) == ([1], "1")
    # A page goes on behind a version that was cleaned up meanwhile.
    for token, descending, rest in (("0", False, [1, 2]), ("3", True, [2, 1])):
        asked = ln.ListTableVersionsRequest(id=ID, page_token=token, descending=descending)
        assert [each.version for each in table.list_table_versions(asked).versions] == rest
    told = table.describe_table_version({"id": ID, "version": 1})
    assert told["version"]["manifest_path"] == versions.versions[1].manifest_path

    tag = {"id": ID, "tag": "t"}
    table.create_table_tag(ln.CreateTableTagRequest(**tag, version=1))
    with pytest.raises(ln.TableTagAlreadyExistsError):
        table.create_table_tag(ln.CreateTableTagRequest(**tag, version=1))
    table.update_table_tag(ln.UpdateTableTagRequest(**tag, version=2))
    assert table.get_table_tag_version(ln.GetTableTagVersionRequest(**tag)).version == 2
    assert list(table.list_table_tags(ln.ListTableTagsRequest(id=ID)).tags) == ["t"]
    table.delete_table_tag(ln.DeleteTableTagRequest(**tag))
    with pytest.raises(ln.TableTagNotFoundError):
        table.get_table_tag_version(ln.GetTableTagVersionRequest(**tag))

    table.create_table_branch(ln.CreateTableBranchRequest(id=ID, name="b", from_version=1))
    (branch,) = table.list_table_branches(ln.ListTableBranchesRequest(id=ID)).branches.values()
    assert branch.parent_version == 1
    counted = table.count_table_rows(ln.CountTableRowsRequest(id=ID, branch="b"))
    assert counted.count == 3
    table.delete_table_branch(ln.DeleteTableBranchRequest(id=ID, name="b"))

    table.restore_table(ln.RestoreTableRequest(id=ID, version=1))
    assert table.count_table_rows(ln.CountTableRowsRequest(id=ID)).count == 3
    assert table.batch_delete_table_versions({"id": ID, "versions": [1, 9]}) == {
        "deleted_versions": [1]
    }


def test_statistics_and_plans_are_returned(table):
    told = table.get_table_stats(ln.GetTableStatsRequest(id=ID))
    assert (told.num_rows, told.fragment_stats.lengths.max) == (3, 3)
    query = {"k": 1, "vector": {}, "filter": "a > 1"}
    plan = table.explain_table_query_plan(ln.ExplainTableQueryPlanRequest(id=ID, query=query))
    assert "Filter: a > 1" in plan
    analysed = table.analyze_table_query_plan(ln.AnalyzeTableQueryPlanRequest(id=ID, **query))
    assert "measured:" in analysed


def test_a_manifest_that_was_staged_becomes_a_version_once(tmp_path, rows):
    namespace = DirectoryNamespace(root=str(tmp_path))
    namespace.create_table(ln.CreateTableRequest(id=["t"]), rows)
    namespace.insert_into_table(ln.InsertIntoTableRequest(id=["t"]), rows)
    told = namespace.describe_table_version({"id": ["t"]})["version"]
    staged = tmp_path / "t.lance" / "staged.manifest"
    (tmp_path / "t.lance" / "_versions").joinpath(told["manifest_path"].rpartition("/")[2]).rename(
        staged
    )
    asked = {"id": ["t"], "version": 2, "manifest_path": str(staged)}
    namespace.create_table_version(asked)
    assert namespace.count_table_rows(ln.CountTableRowsRequest(id=["t"])).count == 6
    with pytest.raises(ln.ConcurrentModificationError):
        namespace.create_table_version(asked)


@pytest.mark.parametrize(
    ("operation", "request_"),
    [
        ("alter_transaction", ln.AlterTransactionRequest(id=["t"], actions=[{}])),
        ("alter_table_backfill_columns", ln.AlterTableBackfillColumnsRequest(id=ID, column="a")),
        ("refresh_materialized_view", ln.RefreshMaterializedViewRequest(id=ID)),
    ],
)
def test_operations_unsupported_by_folders_are_rejected(namespace, operation, request_):
    with pytest.raises(ln.UnsupportedOperationError):
        getattr(namespace, operation)(request_)


def test_a_table_that_is_not_there_is_not_found(namespace, rows):
    with pytest.raises(ln.TableNotFoundError):
        namespace.count_table_rows(ln.CountTableRowsRequest(id=["none"]))
    with pytest.raises(ln.TableNotFoundError):
        namespace.insert_into_table(ln.InsertIntoTableRequest(id=["none"]), rows)
    with pytest.raises(ln.InvalidInputError):
        namespace.create_table(ln.CreateTableRequest(id=["t"]), b"no stream")
