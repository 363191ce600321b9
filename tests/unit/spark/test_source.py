"""The format `lance` as Spark calls it, without a JVM: the same objects, pickled as Spark does."""

import datetime as dt
import pickle
from decimal import Decimal

import lance
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition
from pyspark.sql.types import (
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

import lancelet
from lancelet.errors import (
    AlreadyExistsError,
    DatasetNotFoundError,
    FieldNotFoundError,
    InvalidInputError,
    LanceletError,
    NotFoundError,
    SchemaMismatchError,
)
from lancelet.spark.testing import exact_schema
from lancelet.spark.types import spark_schema
from pyspark_lance import DefaultSource

ROWS = pa.table({"id": range(100), "name": [f"row {i}" for i in range(100)]})


def source(uri=None, **options):
    given = {"path": str(uri)} if uri is not None else {}
    return DefaultSource(CaseInsensitiveDict(given | options))


def sent(value):
    return pickle.loads(cloudpickle.dumps(value))


def tasks_of(reader):
    partitions = reader.partitions()
    assert isinstance(partitions, list)
    assert all(isinstance(each, InputPartition) for each in partitions)
    return partitions


def read(made, schema=None):
    """Read as Spark does, checking what Spark checks."""
    made = sent(made)
    schema = made.schema() if schema is None else schema
    reader = sent(made.reader(schema))
    expected = exact_schema(schema)
    batches = []
    for partition in tasks_of(reader) or [InputPartition(None)]:
        for batch in reader.read(sent(partition)):
            assert batch.schema.equals(expected)
            batches.append(batch)
    return pa.Table.from_batches(batches, expected)


def write(made, parts, *, overwrite=False, schema=None):
    """Write as Spark does: one task for each table of `parts`."""
    schema = spark_schema(parts[0].schema) if schema is None else schema
    writer = sent(made.writer(schema, overwrite))
    messages = [sent(sent(writer).write(iter(part.to_batches(10)))) for part in parts]
    sent(writer).commit(messages)


@pytest.fixture
def uri(tmp_path):
    return str(tmp_path / "t.lance")


@pytest.fixture
def table(uri):
    """Ten fragments of ten rows, with the rows 5 and 15 deleted."""
    lance.write_dataset(ROWS, uri, max_rows_per_file=10, enable_stable_row_ids=True)
    lance.dataset(uri).delete("id in (5, 15)")
    return uri


def ids(found):
    return found.column("id").to_pylist()


LIVE = [i for i in range(100) if i not in {5, 15}]


def test_a_read_returns_all_live_rows_in_order(table):
    found = read(source(table))
    assert ids(found) == LIVE
    assert found.column("name").to_pylist() == [f"row {i}" for i in LIVE]


@pytest.mark.parametrize("columns", ["name,id", '["name", "id"]', " name , id "])
def test_columns_come_in_the_order_requested(table, columns):
    assert read(source(table, columns=columns)).column_names == ["name", "id"]


def test_the_schema_of_the_user_is_the_projection(table):
    found = read(source(table), StructType([StructField("id", LongType())]))
    assert found.column_names == ["id"]
    assert ids(found) == LIVE


@pytest.mark.parametrize(
    ("schema", "error"),
    [
        (StructType([StructField("nam", StringType())]), FieldNotFoundError),
        (StructType([StructField("id", IntegerType())]), SchemaMismatchError),
        (StructType([StructField("id", LongType(), nullable=False)]), SchemaMismatchError),
    ],
)
def test_a_schema_that_the_table_lacks_is_rejected(table, schema, error):
    with pytest.raises(error):
        source(table).reader(schema)


def test_a_filter_keeps_the_rows_for_which_it_is_true(table):
    assert ids(read(source(table, filter="id >= 95 or name = 'row 3'"))) == [3, *range(95, 100)]


@pytest.mark.parametrize("limit", [0, 1, 9, 10, 11, 98, 1000])
@pytest.mark.parametrize("filter_", [None, "id >= 20"])
@pytest.mark.parametrize("split_bytes", ["1", "1000000"])
def test_a_limit_holds_across_tasks(table, limit, filter_, split_bytes):
    options = {"limit": str(limit), "split_bytes": split_bytes}
    live = LIVE if filter_ is None else [i for i in LIVE if i >= 20]
    found = read(source(table, **options, **({} if filter_ is None else {"filter": filter_})))
    assert ids(found) == live[:limit]


@pytest.mark.parametrize("split_bytes", [1, 7, 100, 400, 10**9])
def test_splits_hold_every_row_once_and_in_order(table, split_bytes):
    made = source(table, split_bytes=str(split_bytes))
    assert ids(read(made)) == LIVE
    count = len(tasks_of(made.reader(made.schema())))
    assert count >= 98 if split_bytes == 1 else count <= 98
    assert count == 1 if split_bytes == 10**9 else count > 1


@pytest.mark.parametrize("split_bytes", [1, 100, 400])
@pytest.mark.parametrize("filter_", ["id % 3 = 0", "id = 57", "_rowid >= 12 OR id = 4", "id < 0"])
def test_a_filtered_read_of_a_large_fragment_is_cut_into_tasks(uri, split_bytes, filter_):
    lance.write_dataset(ROWS, uri, enable_stable_row_ids=True)
    lance.dataset(uri).delete("id in (5, 15)")
    made = source(uri, split_bytes=str(split_bytes), filter=filter_)
    expected = lance.dataset(uri).to_table(columns=["id"], filter=filter_)
    assert ids(read(made)) == ids(expected)
    assert len(tasks_of(made.reader(made.schema()))) > 3


def test_rows_that_an_index_finds_are_not_looked_for_by_many_tasks(uri):
    lance.write_dataset(ROWS, uri)
    lance.dataset(uri).create_scalar_index("id", "BTREE")
    made = source(uri, split_bytes="1", filter="id = 57")
    assert ids(read(made)) == [57]
    assert len(tasks_of(made.reader(made.schema()))) == 1


def test_splits_count_live_rows_by_their_bytes(uri):
    lance.write_dataset(ROWS, uri, max_rows_per_file=50)
    size = lance.dataset(uri).get_fragments()[0].data_files()[0].file_size_bytes
    assert len(tasks_of(source(uri, split_bytes=str(size)).reader(source(uri).schema()))) == 2
    lance.dataset(uri).delete("id % 2 = 0")
    assert len(tasks_of(source(uri, split_bytes=str(size)).reader(source(uri).schema()))) == 1


def test_columns_of_rows_are_there_on_request(table):
    options = dict.fromkeys(["with_row_id", "with_row_address", "with_row_versions"], "true")
    found = read(source(table, columns="id", **options))
    expected = lance.dataset(table).to_table(
        columns=["id", "_rowid", "_rowaddr", "_row_created_at_version",
                 "_row_last_updated_at_version"]
    )  # fmt: skip
    assert found.to_pylist() == expected.to_pylist()


def test_fragments_can_be_chosen(table):
    assert ids(read(source(table, fragments="[3, 7]"))) == [*range(30, 40), *range(70, 80)]
    with pytest.raises(NotFoundError):
        source(table, fragments="77").reader(source(table).schema())


def test_versions_tags_and_times_name_what_is_read(table):
    lance.dataset(table).tags.create("first", 1)
    between = lance.dataset(table).versions()[0]["timestamp"] + dt.timedelta(microseconds=1)
    for options in ({"version": "1"}, {"tag": "first"}, {"asof": between.isoformat()}):
        assert len(ids(read(source(table, **options)))) == 100
    with pytest.raises(InvalidInputError):
        source(table, version="1", tag="first").schema()


def test_the_version_is_pinned_when_the_read_is_planned(table):
    made = sent(source(table))
    reader = sent(made.reader(made.schema()))
    lance.write_dataset(ROWS.slice(0, 1), table, mode="append")
    rows = sum(batch.num_rows for part in tasks_of(reader) for batch in reader.read(part))
    assert rows == len(LIVE)


def test_a_removed_version_is_a_specific_error(table):
    with pytest.raises(NotFoundError) as caught:
        source(table, version="99").schema()
    assert caught.value.facts["version"] == 99
    assert any("create it again" in note for note in caught.value.__notes__)


def test_an_empty_table_reads_as_no_rows(uri):
    lance.write_dataset(ROWS.slice(0, 0), uri)
    assert read(source(uri)).num_rows == 0


def test_there_must_be_a_path_and_a_table(tmp_path):
    with pytest.raises(InvalidInputError, match="temporary view"):
        source().schema()
    with pytest.raises(DatasetNotFoundError):
        source(tmp_path / "none").schema()


@pytest.mark.parametrize(
    "options",
    [
        {"fitler": "id = 1"},
        {"limit": "many"},
        {"fragments": "a"},
        {"with_row_id": "yes"},
        {"asof": "yesterday"},
        {"columns": "[1]"},
        {"limit": "-1"},
        {"split_bytes": "0"},
    ],
)
def test_an_option_that_makes_no_sense_is_rejected(table, options):
    schema = source(table).schema()
    with pytest.raises(LanceletError):
        source(table, **options).reader(schema)


def test_an_error_suggests_the_correct_option_name(table):
    with pytest.raises(InvalidInputError, match="did you mean filter"):
        source(table, fitler="id = 1").schema()


def test_a_reader_never_takes_filters_from_spark(table):
    from pyspark.sql.datasource import DataSourceReader

    reader = source(table).reader(source(table).schema())
    # Spark reuses one reader per relation, so pushed filters would return wrong rows later.
    assert type(reader).pushFilters is DataSourceReader.pushFilters


def test_tasks_become_one_version(uri):
    write(source(uri), [ROWS.slice(0, 50), ROWS.slice(50), ROWS.slice(0, 0)])
    assert lance.dataset(uri).to_table() == ROWS
    assert lance.dataset(uri).version == 1
    assert len(lance.dataset(uri).get_fragments()) == 2


def test_append_adds_and_overwrite_replaces(uri):
    write(source(uri), [ROWS.slice(0, 10)])
    write(source(uri), [ROWS.slice(10, 10)])
    assert ids(lance.dataset(uri).to_table()) == list(range(20))
    write(source(uri), [pa.table({"x": ["a"]})], overwrite=True)
    assert lance.dataset(uri).to_table().to_pydict() == {"x": ["a"]}
    assert lance.dataset(uri).version == 3
    assert lance.dataset(uri, version=2).count_rows() == 20


def test_an_append_without_rows_makes_no_version(uri):
    write(source(uri), [ROWS])
    write(source(uri), [ROWS.slice(0, 0)])
    assert lance.dataset(uri).version == 1


def test_an_abort_takes_the_files_away(uri, tmp_path):
    writer = source(uri).writer(spark_schema(ROWS.schema), False)
    message = writer.write(iter(ROWS.to_batches()))
    assert list((tmp_path / "t.lance" / "data").iterdir())
    writer.abort([message, None])
    assert not list((tmp_path / "t.lance" / "data").iterdir())


def test_small_batches_fill_pages(uri):
    many = pa.Table.from_batches(ROWS.to_batches(1))
    write(source(uri), [many])
    from lancelet.file import LanceFileReader

    file = lancelet.dataset(uri).get_fragments()[0].metadata.files[0]
    columns = LanceFileReader(f"{uri}/data/{file.path}").metadata().columns
    assert [len(column.pages) for column in columns] == [1, 1]


def test_files_are_split_according_to_the_options(uri):
    write(source(uri, max_rows_per_file="30"), [ROWS])
    rows = [fragment.count_rows() for fragment in lance.dataset(uri).get_fragments()]
    assert rows == [30, 30, 30, 10]


def test_options_and_metadata_configure_new_tables(uri):
    rows = pa.table({"V": [[1.0, 2.0]], "w": [[1.0, 2.0, 3.0]], "Name": ["a"]})
    options = {
        "vector.v": "2",
        "w.arrow.fixed-size-list.size": "3",
        "encoding.name.compression": "zstd",
        "data_storage_version": "2.1",
        "enable_stable_row_ids": "true",
        "commit_message": "made by hand",
    }
    write(source(uri, **options), [rows])
    made = lance.dataset(uri)
    assert made.schema.field("V").type == pa.list_(pa.float64(), 2)
    assert made.schema.field("w").type == pa.list_(pa.float64(), 3)
    assert made.schema.field("Name").metadata == {b"lance-encoding:compression": b"zstd"}
    assert made.data_storage_version == "2.1"
    assert made.has_stable_row_ids
    assert made.to_table().to_pydict() == rows.to_pydict()
    assert lancelet.dataset(uri).snapshot.transaction.commit_message == "made by hand"


def test_read_vectors_are_written_unchanged(uri, tmp_path):
    lance.write_dataset(pa.table({"v": pa.array([[1, 2]], pa.list_(pa.float32(), 2))}), uri)
    schema = source(uri).schema()
    copy = str(tmp_path / "copy.lance")
    write(source(copy), [read(source(uri))], schema=schema)
    assert lance.dataset(copy).schema.field("v").type == pa.list_(pa.float32(), 2)


def test_appended_rows_get_the_types_of_the_table(uri):
    kinds = {"a": pa.uint8(), "b": pa.list_(pa.float16(), 2), "c": pa.large_string(),
             "d": pa.dictionary(pa.int32(), pa.string()), "e": pa.timestamp("ms")}  # fmt: skip
    values = {"a": 7, "b": [1.0, 2.0], "c": "x", "d": "y", "e": dt.datetime(2024, 1, 1)}  # noqa: DTZ001
    rows = pa.table({name: pa.array([values[name]], kind) for name, kind in kinds.items()})
    lance.write_dataset(rows, uri)
    schema = source(uri).schema()
    write(source(uri), [read(source(uri))], schema=schema)
    assert lance.dataset(uri).to_table().to_pylist() == [values, values]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (pa.table({"id": ["1"]}), "`id` should have type bigint but is string"),
        (pa.table({"id": [1], "nam": ["a"]}), "`nam` is not in the table.*name"),
        (pa.table({"name": ["a"]}), "`id` is missing, but the column is not nullable"),
    ],
)
def test_rows_that_do_not_fit_are_rejected_before_any_task(uri, rows, message):
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    lance.write_dataset(pa.table([[1], ["a"]], schema=schema), uri)
    with pytest.raises(SchemaMismatchError, match=message):
        source(uri).writer(spark_schema(rows.schema), False)


def test_columns_are_found_by_name_without_case_and_converted_as_spark_stores_them(uri):
    kinds = {"id": pa.int64(), "Price": pa.decimal128(9, 2), "n": pa.int16(), "name": pa.string()}
    lance.write_dataset(pa.schema(list(kinds.items())).empty_table(), uri)
    rows = pa.table(
        {
            "ID": pa.array([1, 2], pa.int32()),
            "price": pa.array([Decimal("1.005"), Decimal("-2.5")], pa.decimal128(12, 3)),
            "N": [7.9, -7.9],
            "NAME": [5, 6],
        }
    )
    write(source(uri), [rows])
    assert lance.dataset(uri).to_table().to_pylist() == [
        {"id": 1, "Price": Decimal("1.01"), "n": 7, "name": "5"},
        {"id": 2, "Price": Decimal("-2.50"), "n": -7, "name": "6"},
    ]
    with pytest.raises(InvalidInputError, match="do not fit"):
        write(source(uri), [pa.table({"n": [70000]})])


def test_fields_of_structs_are_found_by_name_without_case(uri):
    lance.write_dataset(pa.table({"s": [{"a": 1, "b": "x"}]}), uri)
    write(source(uri), [pa.table({"s": [{"B": "y", "A": 2}, None]})])
    found = lance.dataset(uri).to_table()["s"].to_pylist()
    assert found == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}, None]


@pytest.mark.parametrize(
    ("found", "stored"),
    [
        (pa.float64(), pa.string()),
        (pa.timestamp("us", "UTC"), pa.string()),
        (pa.timestamp("us", "UTC"), pa.date32()),
        (pa.date32(), pa.timestamp("us", "UTC")),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.list_(pa.float64()), pa.list_(pa.string())),
        (pa.struct([("a", pa.float32())]), pa.struct([("a", pa.string())])),
    ],
)
def test_conversions_that_depend_on_the_session_are_left_to_spark(uri, found, stored):
    lance.write_dataset(pa.schema([("c", stored)]).empty_table(), uri)
    with pytest.raises(SchemaMismatchError, match=r"cast it, or use lancelet\.spark\.write"):
        source(uri).writer(spark_schema(pa.schema([("c", found)])), False)


def test_names_that_differ_by_case_are_different_columns_if_the_table_has_both(uri):
    lance.write_dataset(pa.table({"a": [1], "A": [2]}), uri)
    write(source(uri), [pa.table({"A": [20], "a": [10]})])
    assert lance.dataset(uri).to_table().to_pylist()[1] == {"a": 10, "A": 20}


def test_new_columns_are_added_with_merge_schema(uri):
    lance.write_dataset(pa.table({"id": [1]}), uri)
    rows = pa.table({"ID": [2], "note": ["new"]})
    write(source(uri, mergeschema="true"), [rows])
    assert lance.dataset(uri).to_table().to_pylist() == [
        {"id": 1, "note": None},
        {"id": 2, "note": "new"},
    ]


def test_an_overwrite_with_a_condition_replaces_only_the_rows_that_match(uri):
    lance.write_dataset(pa.table({"id": [1, 2, 3], "n": [0, 0, 0]}), uri)
    rows = pa.table({"id": [2, 4], "n": [1, 1]})
    writer = source(uri, replacewhere="id >= 2").writer(spark_schema(rows.schema), True)
    writer.commit([writer.write(iter(rows.to_batches()))])
    found = {row["id"]: row["n"] for row in lance.dataset(uri).to_table().to_pylist()}
    assert found == {1: 0, 2: 1, 4: 1}
    assert lance.dataset(uri).version == 2
    writer = source(uri, replacewhere="id > 2").writer(spark_schema(rows.schema), True)
    with pytest.raises(InvalidInputError, match="do not match the condition"):
        writer.write(iter(rows.to_batches()))
    with pytest.raises(InvalidInputError, match="requires mode"):
        source(uri, replacewhere="id > 2").writer(spark_schema(rows.schema), False)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("partitionOverwriteMode", "replaceWhere"),
        ("readChangeFeed", "change_feed"),
        ("txnAppId", "Once"),
        ("autoCompact", "maintain"),
    ],
)
def test_options_of_delta_without_an_equivalent_name_their_replacement(uri, option, message):
    lance.write_dataset(ROWS, uri)
    given = source(uri, **{option.lower(): "true"})
    with pytest.raises(InvalidInputError, match=message):
        given.schema()
    with pytest.raises(InvalidInputError, match=message):
        given.writer(spark_schema(ROWS.schema), False)


def test_options_of_delta_with_an_equivalent_work(uri):
    lance.write_dataset(ROWS.slice(0, 3), uri)
    lance.write_dataset(ROWS.slice(0, 2), uri, mode="append")
    assert read(source(uri, versionasof="1")).num_rows == 3
    assert read(source(uri, timestampasof="2200-01-01 00:00:00+00:00")).num_rows == 5
    given = {"maxrecordsperfile": "1", "usermetadata": "two", "overwriteschema": "true"}
    writer = source(uri, **given).writer(spark_schema(ROWS.schema), True)
    writer.commit([writer.write(iter(ROWS.slice(0, 2).to_batches()))])
    assert len(lance.dataset(uri).get_fragments()) == 2


def test_missing_columns_that_may_be_null_are_null(uri):
    lance.write_dataset(ROWS.slice(0, 1), uri)
    write(source(uri), [pa.table({"name": ["only"]})])
    assert lance.dataset(uri).to_table().to_pylist()[1] == {"id": None, "name": "only"}


def test_two_writers_that_make_a_table_at_once_both_land(uri):
    first, second = (source(uri).writer(spark_schema(ROWS.schema), False) for _ in range(2))
    first.commit([first.write(iter(ROWS.slice(0, 50).to_batches()))])
    second.commit([second.write(iter(ROWS.slice(50).to_batches()))])
    assert lance.dataset(uri).to_table() == ROWS


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("fate", ["gone", "made again", "made again and longer"])
def test_a_write_does_not_change_another_table_at_its_path(uri, tmp_path, fate, overwrite):
    write(source(uri), [ROWS])
    writer = sent(source(uri).writer(spark_schema(ROWS.schema), overwrite))
    messages = [writer.write(iter(ROWS.to_batches()))]
    (tmp_path / "t.lance").rename(tmp_path / "elsewhere")
    for _ in range(["gone", "made again", "made again and longer"].index(fate)):
        write(source(uri), [ROWS.slice(0, 3)])
    before = sorted((tmp_path / "t.lance").rglob("*"))
    with pytest.raises(NotFoundError, match=r"removed|created again"):
        sent(writer).commit(messages)
    assert sorted((tmp_path / "t.lance").rglob("*")) == before


def test_an_append_lands_where_the_version_that_it_read_was_cleaned_up(uri):
    write(source(uri), [ROWS.slice(0, 10)])
    writer = sent(source(uri).writer(spark_schema(ROWS.schema), False))
    messages = [writer.write(iter(ROWS.slice(10, 10).to_batches()))]
    write(source(uri), [ROWS.slice(20, 10)])
    lancelet.dataset(uri).cleanup_old_versions(dt.timedelta(0))
    assert len(lance.dataset(uri).versions()) == 1
    sent(writer).commit(messages)
    assert sorted(ids(lance.dataset(uri).to_table())) == list(range(30))


def test_an_option_for_a_column_that_is_not_there_is_rejected(uri):
    with pytest.raises(InvalidInputError, match="does not have"):
        source(uri, **{"vector.x": "2"}).writer(spark_schema(ROWS.schema), False)


def test_json_is_text_or_variant(uri, tmp_path):
    rows = pa.table({"j": pa.array(['{"a":[1,null]}', None], pa.json_())})
    lance.write_dataset(rows, uri)
    assert read(source(uri)).to_pydict() == {"j": ['{"a":[1,null]}', None]}
    schema = StructType([StructField("j", VariantType())])
    variants = read(source(uri), schema)
    assert variants.column("j")[1].as_py() is None
    copy = str(tmp_path / "copy.lance")
    write(source(copy), [variants], schema=schema)
    assert lance.dataset(copy).to_table().to_pydict() == {"j": ['{"a":[1,null]}', None]}


def test_some_fields_of_a_struct_can_be_read(uri):
    lance.write_dataset(pa.table({"s": [{"x": 1, "y": "a"}, None]}), uri)
    part = StructType([StructField("s", StructType([StructField("y", StringType())]))])
    assert read(source(uri), part).to_pydict() == {"s": [{"y": "a"}, None]}


def test_a_tag_of_another_branch_is_read_where_that_branch_is(tmp_path):
    uri = str(tmp_path / "t.lance")
    table = lance.write_dataset(ROWS, uri)
    branch = table.create_branch("dev/a")
    branch.delete("id >= 10")
    table.tags.create("small", ("dev/a", branch.version))
    for options in ({"tag": "small"}, {"tag": "small", "branch": "dev/a"}):
        made = source(uri, **options)
        reader = sent(made.reader(made.schema()))
        ids = [i for part in reader.partitions() for b in reader.read(part) for i in b["id"]]
        assert len(ids) == 10


def test_a_column_with_the_name_of_row_ids_is_rejected(uri, table):
    frame = source(table, columns="id", with_row_id="true").schema()
    with pytest.raises(InvalidInputError, match="reserved") as caught:
        source(f"{uri}.copy").writer(frame, overwrite=False)
    assert caught.value.facts["column"] == "_rowid"


def test_writers_put_files_where_bases_are(tmp_path):
    uri, cold = str(tmp_path / "t.lance"), tmp_path / "cold"
    bases = [lance.DatasetBasePath(str(cold), name="cold", is_dataset_root=True)]
    lance.write_dataset(ROWS, uri, initial_bases=bases)
    made = source(uri, target_bases="cold")
    schema = made.schema()
    writer = sent(made.writer(schema, overwrite=False))
    written = writer.write(iter(ROWS.to_batches()))
    assert len(list((cold / "data").iterdir())) == 1
    writer.abort([written, None])
    assert not list((cold / "data").iterdir())
    writer.commit([sent(writer.write(iter(ROWS.to_batches())))])
    assert len(list((cold / "data").iterdir())) == 1
    assert lance.dataset(uri).count_rows() == 200


def test_a_table_begins_with_bases_and_no_other_does(tmp_path):
    uri = str(tmp_path / "t.lance")
    bases = {"initial_bases": f"hot={tmp_path}/hot, cold={tmp_path}/cold"}
    two = ROWS.slice(0, 2)
    write(source(uri, target_bases="hot,cold", max_rows_per_file="1", **bases), [two])
    made = lance.dataset(uri)
    assert made.to_table() == two
    assert {each.name: each.path for each in made._ds.base_paths().values()} == {
        "hot": f"{tmp_path}/hot",
        "cold": f"{tmp_path}/cold",
    }
    assert [len(list((tmp_path / name).iterdir())) for name in ("hot", "cold")] == [1, 1]
    with pytest.raises(InvalidInputError, match="initial bases are allowed only for a new table"):
        source(uri, **bases).writer(source(uri).schema(), overwrite=True)
    with pytest.raises(InvalidInputError, match="name=path"):
        source(f"{uri}2", initial_bases="/cold").writer(source(uri).schema(), overwrite=False)
    with pytest.raises(InvalidInputError, match="not found"):
        write(source(f"{uri}2", target_bases="warm", **bases), [two])


def test_a_writer_that_was_not_first_does_not_lose_its_bases(tmp_path):
    uri = str(tmp_path / "t.lance")
    bases = {"initial_bases": f"cold={tmp_path}/cold", "target_bases": "cold"}
    writer = source(uri, **bases).writer(spark_schema(ROWS.schema), False)
    written = writer.write(iter(ROWS.to_batches()))
    lance.write_dataset(ROWS, uri)
    with pytest.raises(AlreadyExistsError):
        writer.commit([written])
    assert lance.dataset(uri).count_rows() == 100


def test_text_is_the_place_of_a_blob_in_columns_made_of_bytes(tmp_path):
    uri, far = str(tmp_path / "t.lance"), tmp_path / "far.bin"
    far.write_bytes(b"far")
    rows = pa.table({"data": pa.array([b"near"], pa.binary())})
    write(source(uri, **{"encoding.data.blob": "true"}), [rows])
    kept = source(uri, allow_external_blob_outside_bases="true")
    write(kept, [pa.table({"data": [str(far)]})])
    blobs = lance.dataset(uri).take_blobs("data", indices=[0, 1])
    assert [each.readall() for each in blobs] == [b"near", b"far"]


def test_text_in_a_blob_column_is_a_uri(tmp_path):
    uri, media = str(tmp_path / "t.lance"), tmp_path / "media"
    media.mkdir()
    (media / "a.bin").write_bytes(b"a" * 100_000)
    rows = pa.table({"id": [1, 2], "data": [str(media / "a.bin"), None]})
    options = {"encoding.data.blob": "true"}
    with pytest.raises(InvalidInputError, match="outside registered"):
        write(source(uri, **options), [rows])
    write(source(uri, initial_bases=f"media={media}", **options), [rows])
    kept = source(uri, allow_external_blob_outside_bases="true")
    elsewhere = tmp_path / "b.bin"
    elsewhere.write_bytes(b"b" * 100_000)
    write(kept, [pa.table({"id": [3], "data": [elsewhere.as_uri()]})])
    write(source(uri), [pa.table({"id": [4], "data": pa.array([b"bytes"], pa.binary())})])
    made = lance.dataset(uri)
    blobs = made.take_blobs("data", indices=[0, 2, 3])
    assert [each.readall()[:5] for each in blobs] == [b"aaaaa", b"bbbbb", b"bytes"]
    assert made.to_table()["data"][1].as_py() is None
    size = sum(path.stat().st_size for path in (tmp_path / "t.lance").rglob("*") if path.is_file())
    assert size < 100_000, "nothing was copied"
    copied = source(uri, external_blob_mode="ingest")
    write(copied, [pa.table({"id": [5], "data": [str(elsewhere)]})])
    elsewhere.unlink()
    last = lance.dataset(uri).take_blobs("data", indices=[4])[0]
    assert last.readall() == b"b" * 100_000
    with pytest.raises(InvalidInputError, match="external_blob_mode"):
        source(uri, external_blob_mode="copy").writer(kept.schema(), overwrite=False)
