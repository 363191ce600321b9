"""The source of a stream as Spark calls it: new rows once, in order, from where it stopped."""

import lance
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import CaseInsensitiveDict

import lancelet
from lancelet.errors import (
    FieldNotFoundError,
    InvalidInputError,
    NotFoundError,
    UnsupportedError,
)
from lancelet.spark.read_limits import HAS_LIMITS, ReadLimit
from lancelet.spark.testing import exact_schema
from pyspark_lance import DefaultSource


def rows(start, stop):
    return pa.table({"id": pa.array(range(start, stop), pa.int64())})


class Query:
    """A query that reads a table as Spark would."""

    def __init__(self, uri, **options):
        self.source = DefaultSource(CaseInsensitiveDict({"path": uri, **options}))
        self.schema = self.source.schema()
        self.expected = exact_schema(self.schema)
        self.start()
        self.offset = self.reader.initialOffset()

    def start(self):
        self.reader = self.source.streamReader(self.schema)

    def batch(self, limit=None):
        """Run a batch and return its ids."""
        limit = self.reader.getDefaultReadLimit() if limit is None else limit
        end = self.reader.latestOffset(self.offset, limit)
        found = self.read(self.offset, end)
        self.reader.commit(end)
        self.offset = end
        return found

    def read(self, start, end):
        worker = cloudpickle.loads(cloudpickle.dumps(self.reader))
        ids = []
        for partition in self.reader.partitions(start, end):
            for part in worker.read(cloudpickle.loads(cloudpickle.dumps(partition))):
                assert part.schema.equals(self.expected)
                ids += part.column("id").to_pylist()
        return ids

    def batches(self):
        """Run batches until there is nothing new."""
        found = []
        while (last := self.offset) != self.reader.latestOffset(
            last, self.reader.getDefaultReadLimit()
        ):
            found.append(self.batch())
        return found


@pytest.fixture
def uri(tmp_path):
    path = str(tmp_path / "t.lance")
    lance.write_dataset(rows(0, 10), path)
    return path


def append(uri, start, stop):
    lance.write_dataset(rows(start, stop), uri, mode="append", max_rows_per_file=4)


def test_a_stream_begins_with_all_rows_and_continues_with_new_ones(uri):
    lance.dataset(uri).delete("id = 3")
    query = Query(uri)
    assert query.batch() == [0, 1, 2, *range(4, 10)]
    append(uri, 10, 20)
    append(uri, 20, 22)
    assert query.batch() == list(range(10, 22))
    assert query.batches() == []


def test_a_stream_can_start_at_a_version_or_at_the_latest(uri):
    append(uri, 10, 12)
    append(uri, 12, 14)
    first, second, latest = (Query(uri, starting_version=v) for v in ("1", "3", "latest"))
    append(uri, 14, 16)
    assert first.batch() == list(range(16))
    assert second.batch() == list(range(12, 16))
    assert latest.batch() == [14, 15]


@pytest.mark.parametrize(
    "options",
    [
        {"max_rows_per_batch": "3"},
        {"max_rows_per_batch": "1"},
        {"max_bytes_per_batch": "1"},
        {"max_bytes_per_batch": "200"},
        {"max_versions_per_batch": "1"},
        {"max_rows_per_batch": "1000"},
    ],
)
@pytest.mark.parametrize("start", [{}, {"starting_version": "1"}])
def test_limits_cut_batches_and_lose_no_row(uri, options, start):
    append(uri, 10, 20)
    lance.dataset(uri).delete("id = 15")
    append(uri, 20, 23)
    if not HAS_LIMITS:
        with pytest.raises(UnsupportedError):
            Query(uri, **options, **start)
        return
    query = Query(uri, **options, **start)
    batches = query.batches()
    # Without a start the first read is of the latest version, in which a row is deleted.
    everything = [i for i in range(23) if start or i != 15]
    assert [i for batch in batches for i in batch] == everything
    most = int(options.get("max_rows_per_batch", "1000"))
    assert max(map(len, batches)) <= most
    if most == 3:
        assert len(batches) >= 8


def test_a_batch_reads_the_same_rows_when_it_comes_again(uri):
    query = Query(uri)
    start = query.offset
    end = query.reader.latestOffset(start, ReadLimit(max_rows=4))
    first = query.read(start, end)
    append(uri, 10, 20)
    query.start()
    assert query.read(start, end) == first == [0, 1, 2, 3]


def test_a_limit_is_ignored_when_spark_requests_all_rows(uri):
    query = Query(uri, **({"max_rows_per_batch": "1"} if HAS_LIMITS else {}))
    assert query.batch(ReadLimit()) == list(range(10))


def test_available_now_ends_with_the_latest_version(uri):
    query = Query(uri)
    query.reader.prepareForTriggerAvailableNow()
    append(uri, 10, 20)
    limit = ReadLimit(max_rows=4)
    assert [query.batch(limit) for _ in range(4)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], []]


def test_deletes_compactions_and_indices_insert_nothing(uri):
    query = Query(uri)
    query.batch()
    append(uri, 10, 12)
    table = lance.dataset(uri)
    table.delete("id < 5")
    table.optimize.compact_files()
    table.create_scalar_index("id", "BTREE")
    table.update_config({"a": "b"})
    table.add_columns({"other": "id + 1"})
    assert query.batch() == [10, 11]


@pytest.mark.parametrize(
    ("on_change", "expected"), [("skip", []), ("read", [2]), ("fail", UnsupportedError)]
)
def test_a_version_that_changed_rows_is_not_guessed_at(uri, on_change, expected):
    query = Query(uri, on_change=on_change)
    query.batch()
    lance.dataset(uri).update({"id": "id"}, where="id = 2")
    if expected is UnsupportedError:
        with pytest.raises(UnsupportedError) as caught:
            query.batch()
        assert caught.value.facts["version"] == 2
    else:
        assert query.batch() == expected


@pytest.mark.parametrize("on_change", ["skip", "read"])
def test_rows_that_replaced_all_others_are_read_on_request(uri, on_change):
    query = Query(uri, on_change=on_change)
    query.batch()
    lance.write_dataset(rows(50, 52), uri, mode="overwrite")
    assert query.batch() == ([50, 51] if on_change == "read" else [])


def test_upserts_of_tables_with_stable_ids_give_exactly_the_inserted_rows(tmp_path):
    uri = str(tmp_path / "s.lance")
    lance.write_dataset(rows(0, 5), uri, enable_stable_row_ids=True)
    query = Query(uri)
    query.batch()
    merge = lance.dataset(uri).merge_insert("id").when_matched_update_all()
    merge.when_not_matched_insert_all().execute(rows(3, 8))
    assert query.batch() == [5, 6, 7]


def test_a_version_that_was_removed_before_it_was_read_is_an_error(uri):
    import datetime as dt

    query = Query(uri, starting_version="2")
    append(uri, 10, 12)
    append(uri, 12, 14)
    lance.dataset(uri).cleanup_old_versions(older_than=dt.timedelta(0))
    with pytest.raises(NotFoundError) as caught:
        query.batch()
    assert any("restart the stream" in note for note in caught.value.__notes__)


def test_columns_that_came_later_are_null_in_earlier_rows(uri):
    lance.dataset(uri).add_columns({"twice": "id * 2"})
    query = Query(uri, starting_version="1")
    start, end = query.offset, query.reader.latestOffset(query.offset, None)
    parts = [b for p in query.reader.partitions(start, end) for b in query.reader.read(p)]
    assert pa.Table.from_batches(parts).column("twice").null_count == 10


def test_releases_before_limits_ask_for_the_end_alone(uri):
    query = Query(uri)
    assert query.read(query.offset, query.reader.latestOffset()) == list(range(10))


@pytest.mark.parametrize(
    "options",
    [
        {"starting_version": "0"},
        {"starting_version": "soon"},
        {"on_change": "guess"},
        {"max_rows_per_batch": "0"},
        {"max_rows_per_batch": "1", "max_bytes_per_batch": "1"},
    ],
)
def test_an_option_that_makes_no_sense_is_rejected(uri, options):
    with pytest.raises(InvalidInputError):
        Query(uri, **options)


def test_offsets_of_another_source_are_rejected(uri):
    with pytest.raises(InvalidInputError, match="of another source"):
        Query(uri).reader.latestOffset({"file": 3}, None)


def test_a_table_of_ours_is_read_identically(tmp_path):
    uri = str(tmp_path / "ours.lance")
    lancelet.write_dataset(rows(0, 3), uri)
    query = Query(uri)
    assert query.batch() == [0, 1, 2]
    lancelet.write_dataset(rows(3, 5), uri, mode="append")
    assert query.batch() == [3, 4]


class FeedQuery(Query):
    """A query that reads the change feed."""

    def __init__(self, uri, **options):
        super().__init__(uri, change_feed="true", **options)

    def read(self, start, end):
        worker = cloudpickle.loads(cloudpickle.dumps(self.reader))
        found = []
        for partition in self.reader.partitions(start, end):
            for part in worker.read(cloudpickle.loads(cloudpickle.dumps(partition))):
                assert part.schema.equals(self.expected)
                found += part.drop_columns(["row_id"]).to_pylist()
        return [
            tuple(
                row["id"] if isinstance(row := change[name], dict) else row
                for name in ("kind", "_commit_version", "before", "after")
            )
            for change in found
        ]


@pytest.fixture(params=["stable ids", "keys"])
def followed(request, tmp_path):
    """A table whose rows can be followed, and the options of its feed."""
    path = str(tmp_path / "f.lance")
    is_stable = request.param == "stable ids"
    table = pa.table({"id": range(6), "n": [0] * 6})
    lance.write_dataset(table, path, enable_stable_row_ids=is_stable, max_rows_per_file=2)
    return path, {} if is_stable else {"change_keys": "id"}


def change(uri):
    """Make one version each of updates, deletes, upserts, compaction and appends."""
    lance.dataset(uri).update({"n": "1"}, where="id IN (1, 4)")
    lance.dataset(uri).delete("id IN (0, 5)")
    merge = lance.dataset(uri).merge_insert("id").when_matched_update_all()
    merge.when_not_matched_insert_all().execute(pa.table({"id": [2, 7], "n": [5, 5]}))
    lance.dataset(uri).optimize.compact_files()
    lance.write_dataset(pa.table({"id": [8], "n": [8]}), uri, mode="append")


CHANGES = [
    *(("insert", 1, None, i) for i in range(6)),
    ("update", 2, 1, 1),
    ("update", 2, 4, 4),
    ("delete", 3, 0, None),
    ("delete", 3, 5, None),
    ("update", 4, 2, 2),
    ("insert", 4, None, 7),
]


def by_version(found):
    def place(row):
        _, version, before, after = row
        return (version, 1, before) if after is None else (version, 0, after)

    return sorted(found, key=place)


def test_a_change_feed_returns_each_change_once_with_its_version(followed):
    uri, options = followed
    change(uri)
    last = lance.dataset(uri).version
    query = FeedQuery(uri, starting_version="1", **options)
    assert by_version(query.batch()) == by_version([*CHANGES, ("insert", last, None, 8)])
    assert query.batches() == []


def test_a_change_feed_that_begins_now_begins_with_all_rows(followed):
    uri, options = followed
    query = FeedQuery(uri, **options)
    assert query.batch() == CHANGES[:6]
    lance.dataset(uri).delete("id = 3")
    assert query.batch() == [("delete", 2, 3, None)]


@pytest.mark.parametrize("most", [1, 2, 5])
def test_changes_are_cut_into_batches_anywhere(followed, most):
    uri, options = followed
    change(uri)
    whole = FeedQuery(uri, starting_version="1", **options).batch()
    query = FeedQuery(uri, starting_version="1", **options)
    found = []
    while query.offset != query.reader.latestOffset(query.offset, ReadLimit(max_rows=most)):
        batch = query.batch(ReadLimit(max_rows=most))
        assert 0 < len(batch) <= most or not batch
        found += batch
        query.start()
    assert found == whole


def test_images_have_both_values_and_the_columns_requested(followed):
    uri, options = followed
    lance.dataset(uri).add_columns({"later": "id * 10"})
    lance.dataset(uri).update({"n": "7"}, where="id = 2")
    query = FeedQuery(uri, starting_version="1", columns="n, later", **options)
    assert query.schema["after"].dataType.fieldNames() == ["n", "later"]
    start, end = query.offset, query.reader.latestOffset(query.offset, None)
    parts = [b for p in query.reader.partitions(start, end) for b in query.reader.read(p)]
    rows = pa.Table.from_batches(parts).to_pylist()
    assert [row["after"] for row in rows[:6]] == [{"n": 0, "later": None}] * 6
    assert [(row["before"], row["after"]) for row in rows[6:]] == [
        ({"n": 0, "later": 20}, {"n": 7, "later": 20})
    ]


def test_rows_that_cannot_be_followed_end_a_change_feed(uri):
    query = FeedQuery(uri)
    query.batch()
    lance.dataset(uri).optimize.compact_files()
    assert query.batch() == []
    lance.dataset(uri).update({"id": "id"}, where="id = 2")
    with pytest.raises(UnsupportedError, match="on="):
        query.batch()


def test_a_change_feed_needs_the_version_before(followed):
    import datetime as dt

    uri, options = followed
    change(uri)
    lance.dataset(uri).cleanup_old_versions(older_than=dt.timedelta(0))
    last = lance.dataset(uri).version
    query = FeedQuery(uri, starting_version=str(last), **options)
    with pytest.raises(NotFoundError) as caught:
        query.batch()
    assert any("restart the stream" in note for note in caught.value.__notes__)
    assert len(FeedQuery(uri, **options).batch()) == lance.dataset(uri).count_rows()


@pytest.mark.parametrize(
    "options",
    [{"change_feed": "true", "on_change": "skip"}, {"change_keys": "id"}],
)
def test_options_of_a_change_feed_must_make_sense(uri, options):
    with pytest.raises(InvalidInputError):
        Query(uri, **options)


def test_images_of_unknown_columns_suggest_similar_names(followed):
    uri, options = followed
    with pytest.raises(FieldNotFoundError, match="no such column; did you mean n"):
        FeedQuery(uri, starting_version="1", columns="nn", **options)
