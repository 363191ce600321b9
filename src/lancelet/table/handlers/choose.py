"""Choose the commit handler for a URI and storage options.

For example:

    s3://bucket/t                              conditional puts in the bucket
    s3+ddb://bucket/t?ddbTableName=commits     a DynamoDB table
    manifest_store = sqlite:/data/commits.db   an SQLite file, for one machine
    manifest_store = postgresql://host/name    a PostgreSQL database, for several machines
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lancelet import surroundings
from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.io.options import get_option
from lancelet.io.uri import Location, parse_uri
from lancelet.table.handlers.base import CommitHandler, PutIfAbsent
from lancelet.table.handlers.external import ExternalStore, ManifestRecords

MANIFEST_STORE: Final = "manifest_store"
"""The storage option for a database of versions."""

_TABLE_KEY: Final = "ddbTableName"


def handler_of(uri: str, storage_options: Mapping[str, str] | None = None) -> CommitHandler:
    """Return the handler of the table at a URI.

    >>> handler_of("memory://shelf/t")
    PutIfAbsent()
    """
    options = storage_options or {}
    database = get_option(options, MANIFEST_STORE)
    if database is None and "+ddb:" not in uri:
        return PutIfAbsent()
    location = parse_uri(uri)
    if location.scheme.endswith("+ddb"):
        from lancelet.table.handlers.dynamodb import DynamoRecords  # noqa: PLC0415 - databases are optional

        return _external(DynamoRecords.open(_table_of(location), options), location)
    if database is None:
        return PutIfAbsent()
    kind, _, path = database.partition(":")
    if kind == "sqlite" and path:
        from lancelet.table.handlers.sqlite import SqliteRecords  # noqa: PLC0415 - see above

        return _external(SqliteRecords(path), location)
    if kind in {"postgresql", "postgres"}:
        from lancelet.table.handlers.postgres import PostgresRecords  # noqa: PLC0415 - see above

        return _external(PostgresRecords(database), location)
    raise UnsupportedError(
        "the option manifest_store names an unknown kind of database",
        expected=["sqlite:<path>", "postgresql://<host>/<name>"],
    )


def _external(records: ManifestRecords, location: Location) -> CommitHandler:
    return ExternalStore(surroundings.wrap_store(records), location.path)


def _table_of(location: Location) -> str:
    if list(location.options) != [_TABLE_KEY] or not location.options[_TABLE_KEY]:
        raise InvalidInputError(
            "an `s3+ddb` URI must end with `?ddbTableName=` and the name of a table",
            found=sorted(location.options),
        )
    return location.options[_TABLE_KEY]
