"""Version records in a DynamoDB table, with the schema of the reference implementation.

    base_uri (key)   version (sort key)   path                         size   e_tag   committer
    data/t           7                    data/t/_versions/7.manifest  812    "ab.."  lancedb

Every read is consistent, and every write is conditional: a version is inserted only if absent, and
replaced only if present. Writers of both implementations can share a table.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from lancelet.errors import (
    AlreadyExistsError,
    CommitOutcomeUnknownError,
    CorruptDataError,
    StorageError,
    StorageUnavailableError,
    UnsupportedError,
)
from lancelet.io.options import get_option
from lancelet.table.handlers.external import ManifestRecord, ManifestRecords
from lancelet.values import dataclass

_COMMITTER: Final = "lancedb"
"""The writer name; a constant of the schema."""

_ABSENT: Final = "attribute_not_exists(base_uri) AND attribute_not_exists(version)"
_PRESENT: Final = "attribute_exists(base_uri) AND attribute_exists(version)"
_CONDITION_FAILED: Final = "ConditionalCheckFailedException"
_REFUSAL: Final[dict[str, object]] = {}
"""Sentinel for the response to a write whose condition was not met."""

_OPTIONS: Final = {
    "aws_access_key_id": ("aws_access_key_id", "access_key_id"),
    "aws_secret_access_key": ("aws_secret_access_key", "secret_access_key"),
    "aws_session_token": ("aws_session_token", "session_token", "aws_token", "token"),
    "region_name": ("aws_region", "region", "aws_default_region", "default_region"),
}
"""Names of the client's settings and the corresponding storage options."""


@dataclass(frozen=True, slots=True)
class DynamoRecords(ManifestRecords):
    """The records in one existing DynamoDB table."""

    name: str
    settings: Mapping[str, str] = field(repr=False)
    _clients: list[tuple[int, Any]] = field(default_factory=list, repr=False, compare=False)

    @staticmethod
    def open(name: str, storage_options: Mapping[str, str]) -> DynamoRecords:
        """Return the records of a DynamoDB table, using the bucket's storage options."""
        settings = {
            setting: value
            for setting, names in _OPTIONS.items()
            for value in [next(filter(None, (get_option(storage_options, n) for n in names)), None)]
            if value is not None
        }
        endpoint = get_option(storage_options, "dynamodb_endpoint") or os.environ.get(
            "DYNAMODB_ENDPOINT"
        )
        if endpoint:
            settings["endpoint_url"] = endpoint
        return DynamoRecords(name, settings)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the name and settings without connections."""
        return (DynamoRecords, (self.name, self.settings))

    def latest(self, table: str) -> ManifestRecord | None:
        """Return the record of a table's highest version."""
        answer = self._send(
            "query",
            KeyConditionExpression="base_uri = :base",
            ExpressionAttributeValues={":base": {"S": table}},
            ScanIndexForward=False,
            Limit=1,
            ConsistentRead=True,
        )
        items = answer["Items"]
        return _record(items[0]) if items else None

    def get(self, table: str, version: int) -> ManifestRecord | None:
        """Return the record of a version."""
        key = {"base_uri": {"S": table}, "version": {"N": str(version)}}
        answer = self._send("get_item", Key=key, ConsistentRead=True)
        return _record(answer["Item"]) if "Item" in answer else None

    def put_if_absent(self, table: str, record: ManifestRecord) -> None:
        """Record a version that has no record yet."""
        try:
            if not self._put(table, record, _ABSENT):
                raise AlreadyExistsError(
                    "another writer committed the version", table=table, version=record.version
                )
        except StorageUnavailableError as error:
            raise CommitOutcomeUnknownError(
                "the database did not confirm the version", **error.facts
            ) from error

    def update(self, table: str, record: ManifestRecord) -> None:
        """Replace the record of a version that has one."""
        if not self._put(table, record, _PRESENT):
            raise StorageError(
                "the version is no longer recorded; was it cleaned up?",
                table=table,
                version=record.version,
            )

    def every(self, table: str) -> list[ManifestRecord]:
        """Return the records of all versions of a table."""
        records: list[ManifestRecord] = []
        page: dict[str, object] = {}
        while True:
            answer = self._send(
                "query",
                KeyConditionExpression="base_uri = :base",
                ExpressionAttributeValues={":base": {"S": table}},
                ConsistentRead=True,
                **page,
            )
            records += map(_record, answer["Items"])
            if "LastEvaluatedKey" not in answer:
                return records
            page = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    def forget(self, table: str, record: ManifestRecord) -> None:
        """Delete the record of a version if it still has the path of this one."""
        self._send(
            "delete_item",
            Key={"base_uri": {"S": table}, "version": {"N": str(record.version)}},
            ConditionExpression="#path = :path",
            ExpressionAttributeNames={"#path": "path"},
            ExpressionAttributeValues={":path": {"S": record.path}},
        )

    def _put(self, table: str, record: ManifestRecord, condition: str) -> bool:
        """Write a record if the condition holds, and return whether it did."""
        item = {
            "base_uri": {"S": table},
            "version": {"N": str(record.version)},
            "path": {"S": record.path},
            "committer": {"S": _COMMITTER},
        }
        if record.size is not None:
            item["size"] = {"N": str(record.size)}
        if record.etag is not None:
            item["e_tag"] = {"S": record.etag}
        answer = self._send("put_item", Item=item, ConditionExpression=condition)
        return answer is not _REFUSAL

    def _send(self, request: str, **arguments: object) -> Any:
        """Send a request and translate errors."""
        client, exceptions = self._client()
        try:
            return getattr(client, request)(TableName=self.name, **arguments)
        except exceptions.ClientError as error:
            code = error.response["Error"]["Code"]
            facts: dict[str, object] = {"table": self.name, "request": request, "reason": code}
            if code == _CONDITION_FAILED:
                return _REFUSAL
            status = error.response["ResponseMetadata"].get("HTTPStatusCode", 0)
            if status >= 500 or "Throttl" in code or "Exceeded" in code:
                raise StorageUnavailableError(
                    "the database throttles requests or is unavailable; try again later", **facts
                ) from error
            raise StorageError("the database refused a request", **facts) from error
        except exceptions.BotoCoreError as error:
            raise StorageUnavailableError(
                "the database did not answer",
                table=self.name,
                request=request,
                reason=type(error).__name__,
            ) from error

    def _client(self) -> tuple[Any, Any]:
        """Return the client of this process; forked children open their own."""
        try:
            import boto3  # noqa: PLC0415  # an extra, which few need
            from botocore import exceptions  # noqa: PLC0415  # the same
            from botocore.config import Config  # noqa: PLC0415  # the same
        except ModuleNotFoundError as error:
            raise UnsupportedError(
                "commits through DynamoDB need boto3; install lancelet[dynamodb]"
            ) from error
        for process, client in self._clients:
            if process == os.getpid():
                return client, exceptions
        # The client must not retry: a request without a response may have been executed.
        config = Config(retries={"total_max_attempts": 1})
        client = boto3.session.Session().client("dynamodb", config=config, **self.settings)
        self._clients.append((os.getpid(), client))
        return client, exceptions


def _record(item: Mapping[str, Mapping[str, str]]) -> ManifestRecord:
    try:
        size, etag = item.get("size"), item.get("e_tag")
        return ManifestRecord(
            int(item["version"]["N"]),
            item["path"]["S"],
            None if size is None else int(size["N"]),
            None if etag is None else etag["S"],
        )
    except (KeyError, ValueError) as error:
        raise CorruptDataError(
            "an item of the database is not the record of a version", attributes=sorted(item)
        ) from error
