"""Goal: PostgreSQL decides versions according to the protocol under failures."""

import itertools
import pickle
import subprocess
import sys
import threading
from dataclasses import replace

import psycopg
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import (
    AlreadyExistsError,
    CommitOutcomeUnknownError,
    DatasetNotFoundError,
    StorageError,
    StorageUnavailableError,
)
from lancelet.table.handlers import ManifestRecord, handler_of
from lancelet.table.handlers.postgres import (
    PostgresRecords,
    _connection,
    _create_table,
    _disconnect,
)
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import open_snapshot
from tests.kit.faults import FaultyStore
from tests.kit.tables import SIMPLE_SCHEMA, append_rows, create_table, simple_rows

NAMES = (f"table-{number}" for number in itertools.count())
RECORD = ManifestRecord(7, "t/_versions/7.manifest", 5, '"tag"')


def break_connection(records: PostgresRecords) -> None:
    """End the session on the server's side, as a restart does."""
    pid = _connection(records.dsn).info.backend_pid
    with psycopg.connect(records.dsn, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))


def test_records_are_made_once(dsn):
    records, table = handler_of("/data/t", {"manifest_store": dsn}).records, next(NAMES)
    assert records == PostgresRecords(dsn)
    assert records.latest(table) is None
    records.put_if_absent(table, RECORD)
    with pytest.raises(AlreadyExistsError):
        records.put_if_absent(table, replace(RECORD, path="other"))
    assert records.get(table, 7) == records.latest(table) == RECORD
    assert records.get(table, 8) is None
    records.put_if_absent(table, replace(RECORD, version=8, size=None, etag=None))
    assert records.latest(table) == replace(RECORD, version=8, size=None, etag=None)
    records.update(table, replace(RECORD, size=6))
    assert records.get(table, 7).size == 6


def test_passwords_are_shown_nowhere(dsn):
    records = PostgresRecords("postgresql://me:secret@localhost:1/none")
    with pytest.raises(StorageUnavailableError) as caught:
        records.latest("t")
    assert "secret" not in f"{records!r}{caught.value}"
    records = PostgresRecords(dsn)
    records.latest("t")
    assert pickle.loads(pickle.dumps(records)) == records


def test_a_broken_connection_is_opened_again(dsn):
    records, table = PostgresRecords(dsn), next(NAMES)
    records.put_if_absent(table, RECORD)
    break_connection(records)
    assert records.latest(table) == RECORD
    break_connection(records)
    records.update(table, replace(RECORD, size=9))
    assert records.get(table, 7).size == 9


def test_an_insert_without_an_answer_is_an_unknown_outcome(dsn):
    records, table = PostgresRecords(dsn), next(NAMES)
    break_connection(records)
    with pytest.raises(CommitOutcomeUnknownError):
        records.put_if_absent(table, RECORD)
    records.put_if_absent(table, RECORD)


def test_database_errors_are_storage_errors(dsn):
    records = PostgresRecords(dsn)
    for call in (
        lambda: records.put_if_absent("t", replace(RECORD, version=1 << 70)),
        lambda: records.latest("nul \0 byte"),
    ):
        with pytest.raises(StorageError):
            call()


def test_the_table_is_made_by_many_at_once(dsn):
    _disconnect(dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS lance_manifests")
    made, start = [], threading.Barrier(8)

    def make():
        with psycopg.connect(dsn, autocommit=True) as connection:
            start.wait()
            _create_table(connection, psycopg)
            made.append(connection.execute("SELECT count(*) FROM lance_manifests").fetchone())

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [(0,)] * 8


def location_of(tmp_path, dsn):
    options = {"local_sync": "false", "manifest_store": dsn}
    return TableLocation.open(str(tmp_path / next(NAMES)), options)


def test_the_next_reader_finishes_the_commit_of_a_dead_writer(tmp_path, dsn):
    location = location_of(tmp_path, dsn)
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 3))
    stop = FaultyStore(location.store, "refuse", at=0, only=lambda r: r.operation == "copy")
    append_rows(replace(location, store=stop), first, simple_rows(3, 4))
    record = location.handler.records.latest(location.handler.table)
    assert (record.version, record.is_final) == (2, False)
    found = open_snapshot(location)
    assert (found.version, found.num_rows) == (2, 4)
    assert location.handler.records.latest(location.handler.table).is_final


def test_a_connection_that_breaks_in_a_commit_loses_and_doubles_nothing(tmp_path, dsn):
    location = location_of(tmp_path, dsn)
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 3))
    for number in range(3):
        break_connection(location.handler.records)
        append_rows(location, first, simple_rows(number, number + 1))
    assert (open_snapshot(location).version, open_snapshot(location).num_rows) == (4, 6)


FORKING = """
import os, sys, lancelet
from tests.kit.tables import simple_rows

uri, dsn = sys.argv[1:]
options = {"local_sync": "false", "manifest_store": dsn}
lancelet.write_dataset(simple_rows(0, 1), uri, storage_options=options)
children = []
for number in range(1, 5):
    child = os.fork()
    if child == 0:
        rows = simple_rows(number, number + 1)
        lancelet.write_dataset(rows, uri, mode="append", storage_options=options)
        os._exit(0)
    children.append(child)
assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
ds = lancelet.dataset(uri, storage_options=options)
assert (ds.version, sorted(ds.to_table()["id"].to_pylist())) == (5, [0, 1, 2, 3, 4])
"""


def test_appends_of_forked_processes_all_land(tmp_path, dsn):
    command = [sys.executable, "-W", "error", "-c", FORKING, str(tmp_path / "t"), dsn]
    subprocess.run(command, check=True, timeout=60)


def test_records_are_listed_and_forgotten_only_as_they_were_read(dsn):
    records, table = PostgresRecords(dsn), next(NAMES)
    second = replace(RECORD, version=8, size=None, etag=None)
    for record in (RECORD, second):
        records.put_if_absent(table, record)
    records.put_if_absent(next(NAMES), RECORD)
    assert sorted(records.every(table), key=lambda each: each.version) == [RECORD, second]
    break_connection(records)
    records.forget(table, replace(RECORD, path="t/_versions/other.manifest"))
    assert len(records.every(table)) == 2
    records.forget(table, RECORD)
    records.forget(table, RECORD)
    assert records.every(table) == [second]


def test_a_table_is_made_again_after_it_was_dropped(dsn, tmp_path):
    uri, options = str(tmp_path / "t"), {"manifest_store": dsn}
    rows = pa.table({"id": [1]})
    stale = lancelet.write_dataset(rows, uri, storage_options=options)
    lancelet.write_dataset(rows, uri, mode="append", storage_options=options)
    lancelet.LanceDataset.drop(uri, storage_options=options)
    with pytest.raises(DatasetNotFoundError):
        stale.insert(rows)
    again = lancelet.write_dataset(rows, uri, storage_options=options)
    again.insert(rows)
    assert (again.version, again.count_rows()) == (2, 2)
