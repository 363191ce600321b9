"""Parsed options of `format("lance")`.

    .option("path", "s3://b/t")  .option("columns", "id, name")  .option("storage.region", "eu")
    ReadOptions(table=TableRef("s3://b/t", (("region", "eu"),)), columns=("id", "name"))

Spark passes options as strings with lower-case names. Unknown names are errors that suggest a
similar one, because a misspelt filter would otherwise be ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final

from lancelet.change.bases import absolute_path, number_bases
from lancelet.change.write import MAX_BYTES_PER_FILE, MAX_ROWS_PER_FILE, FileLimits
from lancelet.errors import InvalidInputError
from lancelet.format.base_paths import BasePath
from lancelet.format.version import FileVersion
from lancelet.jobs.inserts import OnChange
from lancelet.jobs.table_ref import TableRef
from lancelet.spark.scan_options import SCAN_NAMES
from lancelet.values import dataclass

STORAGE_PREFIX: Final = "storage."
VECTOR_PREFIX: Final = "vector."
ENCODING_PREFIX: Final = "encoding."
DIMENSION_SUFFIX: Final = ".arrow.fixed-size-list.size"

READ_NAMES: Final = SCAN_NAMES | {
    "version",
    "tag",
    "branch",
    "asof",
    "with_row_versions",
    "split_bytes",
}
SEARCH_NAMES: Final = READ_NAMES - {"limit", "fragments", "split_bytes"}
WRITE_NAMES: Final = frozenset(
    {
        "branch",
        "max_rows_per_file",
        "max_bytes_per_file",
        "data_storage_version",
        "enable_stable_row_ids",
        "commit_message",
        "initial_bases",
        "target_bases",
        "external_blob_mode",
        "allow_external_blob_outside_bases",
        "merge_schema",
        "replace_where",
    }
)
ROW_NAMES: Final = frozenset(
    {
        "max_rows_per_file",
        "max_bytes_per_file",
        "target_bases",
        "external_blob_mode",
        "allow_external_blob_outside_bases",
        "commit_message",
    }
)
"""Write options that apply to rows added to an existing table."""
STREAM_READ_NAMES: Final = frozenset(
    {
        "branch",
        "columns",
        "starting_version",
        "on_change",
        "change_feed",
        "change_keys",
        "log",
        "max_rows_per_batch",
        "max_bytes_per_batch",
        "max_versions_per_batch",
    }
)
STREAM_WRITE_NAMES: Final = WRITE_NAMES | {"stream_id", "upsert_on", "log"}
# Options that Spark adds to some calls; they are ignored.
_SPARK_NAMES: Final = frozenset(
    {"path", "paths", "provider", "owner", "location", "checkpointlocation", "queryname"}
)
_DELTA_NAMES: Final = {
    "versionasof": "version",
    "timestampasof": "asof",
    "mergeschema": "merge_schema",
    "replacewhere": "replace_where",
    "maxrecordsperfile": "max_rows_per_file",
    "usermetadata": "commit_message",
    "startingversion": "starting_version",
}
"""Options of Delta with an equivalent of another name."""
_REPLACEMENTS: Final = {
    "partitionoverwritemode": "Lance tables have no partitions; replace rows with "
    "mode('overwrite') and the option replaceWhere",
    "overwriteschema": "mode('overwrite') always replaces the schema; set it to true or omit it",
    "readchangefeed": "use spark.readStream with the option change_feed, or lance_changes in SQL",
    "readchangedata": "use spark.readStream with the option change_feed, or lance_changes in SQL",
    "startingtimestamp": "use starting_version; DESCRIBE HISTORY has the versions of times",
    "endingversion": "use lance_changes(path, first, last) in SQL",
    "ignoredeletes": "use on_change with the value skip",
    "ignorechanges": "use on_change with the value skip",
    "skipchangecommits": "use on_change with the value skip",
    "maxfilespertrigger": "use max_rows_per_batch, max_bytes_per_batch or max_versions_per_batch",
    "maxbytespertrigger": "use max_bytes_per_batch",
    "txnappid": "use lancelet.spark.write(..., once=Once(sequence, batch))",
    "txnversion": "use lancelet.spark.write(..., once=Once(sequence, batch))",
    "datachange": "rows that are rewritten without a change are those of OPTIMIZE; omit the option",
    "optimizewrite": "use max_rows_per_file, and OPTIMIZE for existing files",
    "autocompact": "call lancelet.spark.maintain, or OPTIMIZE",
}
"""Options of Delta without an equivalent, and what to use instead."""
_EVERY_NAME: Final = READ_NAMES | STREAM_READ_NAMES | STREAM_WRITE_NAMES
_ROW_OPTIONS: Final = {
    "with_row_id": ("_rowid",),
    "with_row_address": ("_rowaddr",),
    "with_row_versions": ("_row_created_at_version", "_row_last_updated_at_version"),
}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The rows, columns and version to read.

    `row_columns` are the requested virtual columns, such as `_rowid`.
    """

    table: TableRef
    columns: tuple[str, ...] | None = None
    filter: str | None = None
    limit: int | None = None
    version: int | None = None
    tag: str | None = None
    asof: datetime | None = None
    row_columns: tuple[str, ...] = ()
    fragments: tuple[int, ...] | None = None
    split_bytes: int | None = None

    def __post_init__(self) -> None:
        """Raise if several options select a version, or numbers are too small."""
        for name, number, least in (("limit", self.limit, 0), ("split_bytes", self.split_bytes, 1)):
            if number is not None and number < least:
                raise InvalidInputError(f"{name} must be at least {least}", found=number)
        selectors = {"version": self.version, "tag": self.tag, "asof": self.asof}
        given = [name for name, value in selectors.items() if value is not None]
        if len(given) > 1:
            raise InvalidInputError("pass only one of `version`, `tag` and `asof`", given=given)

    @staticmethod
    def parse(options: Mapping[str, str], allowed: frozenset[str] = READ_NAMES) -> ReadOptions:
        """Parse the options of a read; `allowed` are the permitted names."""
        given = _checked(options, allowed, prefixes=(STORAGE_PREFIX,))
        row_columns = [
            name for option, names in _ROW_OPTIONS.items() if _flag(given, option) for name in names
        ]
        asof = given.get("asof")
        columns = given.get("columns")
        return ReadOptions(
            table_of(options),
            None if columns is None else _names(columns),
            given.get("filter"),
            _number(given, "limit"),
            _number(given, "version"),
            given.get("tag"),
            None if asof is None else _time(asof),
            tuple(row_columns),
            _numbers(given, "fragments"),
            _number(given, "split_bytes"),
        )


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The rows or changes that a stream reads, and the limits of a batch."""

    read: ReadOptions
    starting_version: str | None = None
    on_change: OnChange = OnChange.FAIL
    change_feed: bool = False
    change_keys: tuple[str, ...] = ()
    log: bool = False
    max_rows: int | None = None
    max_bytes: int | None = None
    max_versions: int | None = None

    def __post_init__(self) -> None:
        """Raise for conflicting options, and for limits and versions below 1."""
        limits = {
            "max_rows": self.max_rows,
            "max_bytes": self.max_bytes,
            "max_versions": self.max_versions,
        }
        given = [name for name, limit in limits.items() if limit is not None]
        if len(given) > 1 or len(given) > sum(map(bool, limits.values())):
            raise InvalidInputError(
                "a stream takes one limit per batch, which must be at least 1", given=given
            )
        if self.change_feed and self.on_change is not OnChange.FAIL:
            raise InvalidInputError("a change feed contains all changes; omit on_change")
        if self.change_keys and not self.change_feed:
            raise InvalidInputError("change_keys require a change feed: set change_feed=true")
        if self.log and (given or self.change_feed or self.starting_version is not None):
            raise InvalidInputError(
                "a stream of the log has no versions, limits or change feed; omit these options"
            )
        start = self.starting_version
        if start is not None and start != "latest" and not (start.isdigit() and int(start)):
            raise InvalidInputError(
                "`starting_version` must be a version from 1 on, or latest", found=start
            )

    @staticmethod
    def parse(options: Mapping[str, str]) -> StreamOptions:
        """Parse the options of a streaming source."""
        given = _checked(options, STREAM_READ_NAMES, prefixes=(STORAGE_PREFIX,))
        columns = given.get("columns")
        on_change = _choice(given, "on_change", [each.value for each in OnChange])
        return StreamOptions(
            ReadOptions(table_of(options), None if columns is None else _names(columns)),
            given.get("starting_version"),
            OnChange(on_change),
            _flag(given, "change_feed"),
            _names(given.get("change_keys", "")),
            _flag(given, "log"),
            _number(given, "max_rows_per_batch"),
            _number(given, "max_bytes_per_batch"),
            _number(given, "max_versions_per_batch"),
        )


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """Options of a write: file limits, and encoding options by lower-case column name."""

    table: TableRef
    limits: FileLimits = field(default_factory=FileLimits)
    version: FileVersion | None = None
    stable_row_ids: bool = False
    message: str | None = None
    dimensions: Mapping[str, int] = field(default_factory=dict)
    encodings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    initial_bases: tuple[BasePath, ...] = ()
    target_bases: tuple[str, ...] = ()
    ingests_blobs: bool = False
    allows_blobs_outside: bool = False
    merge_schema: bool = False
    replace_where: str | None = None
    stream_id: str | None = None
    upsert_on: tuple[str, ...] = ()
    log: bool = False

    @staticmethod
    def parse_stream(options: Mapping[str, str]) -> WriteSettings:
        """Parse the options of a streaming sink."""
        plain = WriteSettings.parse(options, allowed=STREAM_WRITE_NAMES)
        return replace(
            plain,
            stream_id=options.get("stream_id"),
            upsert_on=_names(options.get("upsert_on", "")),
            log=_flag(options, "log"),
        )

    @staticmethod
    def parse(options: Mapping[str, str], allowed: frozenset[str] = WRITE_NAMES) -> WriteSettings:
        """Parse the options of a write."""
        prefixes = (STORAGE_PREFIX, VECTOR_PREFIX, ENCODING_PREFIX)
        given = _checked(options, allowed, prefixes=prefixes, suffix=DIMENSION_SUFFIX)
        version = given.get("data_storage_version")
        return WriteSettings(
            table_of(options),
            FileLimits(
                max_rows_per_file=_number(given, "max_rows_per_file") or MAX_ROWS_PER_FILE,
                max_bytes_per_file=_number(given, "max_bytes_per_file") or MAX_BYTES_PER_FILE,
            ),
            None if version is None else FileVersion.parse(version),
            _flag(given, "enable_stable_row_ids"),
            given.get("commit_message"),
            _dimensions(given),
            _encodings(given),
            _bases(given.get("initial_bases", "")),
            _names(given.get("target_bases", "")),
            _choice(given, "external_blob_mode", ("reference", "ingest")) == "ingest",
            _flag(given, "allow_external_blob_outside_bases"),
            _flag(given, "merge_schema"),
            given.get("replace_where"),
        )


def table_of(options: Mapping[str, str]) -> TableRef:
    """Return the table that the options specify, at its latest version."""
    path = options.get("path")
    if not path:
        raise InvalidInputError(
            "missing path of a table: use .load(path), .save(path) or OPTIONS (path '...') of a "
            "temporary view; Spark does not pass the path of catalog tables"
        )
    storage = {
        name.removeprefix(STORAGE_PREFIX): value
        for name, value in options.items()
        if name.startswith(STORAGE_PREFIX)
    }
    table = TableRef.of(path, storage)
    branch = options.get("branch")
    return table if branch in {None, "main"} else table.on_branch(branch)


def text_of(value: Any) -> str:
    """Format a value as the text of an option."""
    is_structured = isinstance(value, bool | Mapping | list | tuple)
    return json.dumps(value) if is_structured else str(value)


def _checked(
    options: Mapping[str, str],
    allowed: frozenset[str],
    *,
    prefixes: tuple[str, ...],
    suffix: str | None = None,
) -> dict[str, str]:
    """Return the options of lancelet; raise for unknown names."""
    given: dict[str, str] = {}
    for spelled, value in options.items():
        name = _DELTA_NAMES.get(spelled, spelled)
        is_own_option = name in allowed or name.startswith(prefixes)
        if is_own_option or (suffix is not None and name.endswith(suffix)):
            given[name] = value
        elif name not in _SPARK_NAMES and name not in _EVERY_NAME:
            if name == "overwriteschema" and value.lower() == "true":
                continue
            if name in _REPLACEMENTS:
                raise InvalidInputError(
                    f"unknown option `{name}`: {_REPLACEMENTS[name]}", option=name, found=value
                )
            near = get_close_matches(name, allowed, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise InvalidInputError(f"unknown option{hint}", option=name, expected=sorted(allowed))
    return given


def _names(text: str) -> tuple[str, ...]:
    """Parse names separated by commas, or a JSON list."""
    if text.lstrip().startswith("["):
        names = json.loads(text)
        if not all(isinstance(name, str) for name in names):
            raise InvalidInputError("a JSON list of columns must contain strings", columns=text)
        return tuple(names)
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _number(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise InvalidInputError("the option must be an integer", option=name, found=text) from None


def _numbers(given: Mapping[str, str], name: str) -> tuple[int, ...] | None:
    text = given.get(name)
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.strip("[] ").split(",") if part.strip())
    except ValueError:
        raise InvalidInputError(
            "the option must be a list of integers separated by commas", option=name, found=text
        ) from None


def _flag(given: Mapping[str, str], name: str) -> bool:
    text = given.get(name, "false").lower()
    if text not in {"true", "false"}:
        raise InvalidInputError("the option must be true or false", option=name, found=given[name])
    return text == "true"


def _choice(given: Mapping[str, str], name: str, allowed: Sequence[str]) -> str:
    """Return one of the allowed values, by default the first."""
    text = given.get(name, allowed[0]).lower()
    if text not in allowed:
        raise InvalidInputError(f"unknown value of `{name}`", found=text, expected=allowed)
    return text


def _bases(text: str) -> tuple[BasePath, ...]:
    """Parse bases written as name=path, separated by commas, or as a JSON object.

    >>> [(base.name, base.path) for base in _bases("hot=s3://fast/t, cold=s3://slow/t")]
    [('hot', 's3://fast/t'), ('cold', 's3://slow/t')]
    """
    if text.lstrip().startswith("{"):
        parsed = json.loads(text)
        pairs = [(name, path) for name, path in parsed.items() if name and isinstance(path, str)]
        is_valid = len(pairs) == len(parsed)
    else:
        parts = [part.partition("=") for part in _names(text)]
        pairs = [(name.strip(), path.strip()) for name, _, path in parts]
        is_valid = all(name and path for name, path in pairs)
    if not is_valid:
        raise InvalidInputError(
            "`initial_bases` must be name=path pairs separated by commas, or a JSON object",
            found=text,
        )
    return number_bases([BasePath(0, absolute_path(path), name=name) for name, path in pairs])


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInputError("`asof` must be an ISO 8601 timestamp", found=text) from None


def _dimensions(given: Mapping[str, str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for option in given:
        column = ""
        if option.startswith(VECTOR_PREFIX):
            column = option.removeprefix(VECTOR_PREFIX)
        elif option.endswith(DIMENSION_SUFFIX):
            column = option.removesuffix(DIMENSION_SUFFIX)
        if column:
            size = _number(given, option) or 0
            if size < 1:
                raise InvalidInputError("a vector must have at least one item", option=option)
            found[column] = size
    return found


def _encodings(given: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Parse `encoding.<column>.<option>` options to field metadata by column."""
    found: dict[str, dict[str, str]] = {}
    for option, value in given.items():
        if option.startswith(ENCODING_PREFIX):
            column, dot, key = option.removeprefix(ENCODING_PREFIX).rpartition(".")
            if not dot:
                raise InvalidInputError(
                    "write encoding.<column>.<option>, as in encoding.name.compression",
                    option=option,
                )
            found.setdefault(column, {})[f"lance-encoding:{key}"] = value
    return found


def unused(names: Iterable[str], columns: Iterable[str]) -> list[str]:
    """Return the names, in lower case, that no column has.

    >>> unused(["v", "w"], ["V"])
    ['w']
    """
    lower_names = {column.lower() for column in columns}
    return sorted(set(names) - lower_names)
