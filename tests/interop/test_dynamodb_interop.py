"""Goal: both implementations share a table whose versions DynamoDB decides.

Method: a server of S3 and DynamoDB in a process of its own; both write in turn, at the same time,
and after a writer of ours died between recording a version and giving it its name.
"""

import threading
from collections.abc import Iterator
from dataclasses import replace

import boto3
import lance
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import AlreadyExistsError, StorageError
from lancelet.format.operation import Append
from lancelet.table.commit import commit
from lancelet.table.handlers import ManifestRecord
from lancelet.table.handlers.dynamodb import DynamoRecords
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import open_snapshot
from tests.kit.faults import FaultyStore
from tests.kit.s3_server import S3Server
from tests.kit.tables import (
    SIMPLE_SCHEMA,
    append_rows,
    create_table,
    new_transaction,
    simple_rows,
)

pytestmark = pytest.mark.interop

URI = "s3+ddb://shelf/{}?ddbTableName=commits"


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, str]]:
    with S3Server("shelf") as server:
        client = boto3.client(
            "dynamodb",
            endpoint_url=server.endpoint,
            region_name="us-east-1",
            aws_access_key_id="key",
            aws_secret_access_key="secret",
        )
        client.create_table(
            TableName="commits",
            KeySchema=[
                {"AttributeName": "base_uri", "KeyType": "HASH"},
                {"AttributeName": "version", "KeyType": "RANGE"},
            ],
            AttributeDefinitions=[
                {"AttributeName": "base_uri", "AttributeType": "S"},
                {"AttributeName": "version", "AttributeType": "N"},
            ],
            BillingMode="PAY_PER_REQUEST",
        )
        yield {**server.storage_options, "dynamodb_endpoint": server.endpoint}


@pytest.fixture
def theirs(options, monkeypatch: pytest.MonkeyPatch):
    """Let the reference find the server, which it looks for in the environment."""
    for name in ("aws_access_key_id", "aws_secret_access_key", "aws_region"):
        monkeypatch.setenv(name.upper(), options[name])
    monkeypatch.setenv("AWS_DEFAULT_REGION", options["aws_region"])
    monkeypatch.setenv("DYNAMODB_ENDPOINT", options["dynamodb_endpoint"])
    return lambda name: lance.dataset(URI.format(name), storage_options=options)


def test_both_write_in_turn(options, theirs) -> None:
    uri = URI.format("turns")
    lance.write_dataset(pa.table({"id": [1], "name": ["a"]}), uri, storage_options=options)
    location = TableLocation.open(uri, options)
    ours = open_snapshot(location)
    assert ours.num_rows == 1
    assert append_rows(location, ours, simple_rows(2, 4)).version == 2
    assert theirs("turns").count_rows() == 3
    more = pa.table({"id": [9], "name": ["z"]})
    lance.write_dataset(more, uri, storage_options=options, mode="append")
    latest = open_snapshot(location)
    assert (latest.version, latest.num_rows) == (3, 4)
    assert open_snapshot(location, 2).num_rows == 3


def test_the_reference_finishes_what_we_left(options, theirs) -> None:
    location = TableLocation.open(URI.format("left"), options)
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 2))
    broken = FaultyStore(location.store, "refuse", at=0, only=lambda r: r.operation == "copy")
    assert append_rows(replace(location, store=broken), first, simple_rows(2, 3)).version == 2
    record = location.handler.records.get("left", 2)
    assert not record.is_final
    assert theirs("left").count_rows() == 3
    assert location.handler.records.get("left", 2).is_final
    assert open_snapshot(location).num_rows == 3


def test_writers_of_both_race_and_nothing_is_lost(options, theirs) -> None:
    location = TableLocation.open(URI.format("race"), options)
    create_table(location, SIMPLE_SCHEMA, simple_rows(0, 1))

    def write_theirs() -> None:
        for number in range(3):
            more = simple_rows(100 + number, 101 + number)
            lance.write_dataset(more, location.uri, storage_options=options, mode="append")

    thread = threading.Thread(target=write_theirs)
    thread.start()
    for number in range(1, 4):
        append_rows(location, open_snapshot(location), simple_rows(number, number + 1))
    thread.join()
    assert open_snapshot(location).version == 7
    ids = theirs("race").to_table()["id"].to_pylist()
    assert sorted(ids) == [0, 1, 2, 3, 100, 101, 102]


def test_a_lost_reply_of_the_bucket_changes_nothing(options) -> None:
    location = TableLocation.open(URI.format("lost"), options)
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 1))
    silent = FaultyStore(location.store, "lose_reply", at=0, only=lambda r: r.operation == "copy")
    transaction = new_transaction(first.version, Append(()))
    assert commit(replace(location, store=silent), transaction).version == 2
    assert open_snapshot(location).version == 2


def test_records_obey_their_conditions(options) -> None:
    records = DynamoRecords.open("commits", options)
    record = ManifestRecord(1, "x/_versions/1.manifest", None, None)
    with pytest.raises(StorageError, match="no longer recorded"):
        records.update("x", record)
    records.put_if_absent("x", record)
    with pytest.raises(AlreadyExistsError, match="another writer"):
        records.put_if_absent("x", record)
    assert records.get("x", 1) == records.latest("x") == record
    assert records.get("x", 2) is None
    with pytest.raises(StorageError, match="refused") as caught:
        DynamoRecords.open("missing", options).latest("x")
    assert caught.value.facts["reason"] == "ResourceNotFoundException"


def test_records_are_listed_and_forgotten_only_as_they_were_read(options) -> None:
    records = TableLocation.open(URI.format("listed"), options).handler.records
    assert isinstance(records, DynamoRecords)
    made = [ManifestRecord(number, f"listed/_versions/{number}.manifest", 5) for number in (1, 2)]
    for record in made:
        records.put_if_absent("listed", record)
    records.put_if_absent("listed too", made[0])
    assert sorted(records.every("listed"), key=lambda each: each.version) == made
    records.forget("listed", replace(made[0], path="listed/_versions/other.manifest"))
    assert len(records.every("listed")) == 2
    records.forget("listed", made[0])
    records.forget("listed", made[0])
    assert records.every("listed") == made[1:]


def test_a_table_is_made_again_after_it_was_dropped(options, theirs) -> None:
    uri = URI.format("again")
    rows = pa.table({"id": [1], "name": ["a"]})
    for mode in ("create", "append"):
        lancelet.write_dataset(rows, uri, mode=mode, storage_options=options)
    lancelet.LanceDataset.drop(uri, storage_options=options)
    again = lancelet.write_dataset(rows, uri, storage_options=options)
    again.insert(rows)
    assert (again.version, again.count_rows()) == (2, 2)
    assert theirs("again").count_rows() == 2
