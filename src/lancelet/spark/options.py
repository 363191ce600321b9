"""What a caller asks of `format("lance")`, as frozen values made of Spark's options.

    .option("path", "s3://b/t")  .option("columns", "id, name")  .option("storage.region", "eu")
    ReadOptions(table=TableRef("s3://b/t", (("region", "eu"),)), columns=("id", "name"))

Spark passes every option as text and its name in lower case. A name that is not known is an
error with the nearest one that is, since a filter that is misspelt would otherwise be no filter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final

from lancelet.errors import InvalidInputError
from lancelet.format.base_paths import BasePath
from lancelet.format.version import FileVersion
from lancelet.ops.bases import absolute_path, number_bases
from lancelet.ops.jobs.inserts import OnChange
from lancelet.ops.jobs.table_ref import TableRef
from lancelet.ops.write import MAX_BYTES_PER_FILE, MAX_ROWS_PER_FILE, FileLimits
from lancelet.values import dataclass

STORAGE_PREFIX: Final = "storage."
VECTOR_PREFIX: Final = "vector."
ENCODING_PREFIX: Final = "encoding."
DIMENSION_SUFFIX: Final = ".arrow.fixed-size-list.size"

READ_NAMES: Final = frozenset(
    {
        "columns",
        "filter",
        "limit",
        "version",
        "tag",
        "branch",
        "asof",
        "with_row_id",
        "with_row_address",
        "with_row_versions",
        "fragments",
        "split_bytes",
    }
)
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
    }
)
ROW_NAMES: Final = frozenset(
    {
        "max_rows_per_file",
        "max_bytes_per_file",
        "target_bases",
        "external_blob_mode",
        "allow_external_blob_outside_bases",
    }
)
"""Options of a write that mean something for rows of a table that is there."""
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
# What Spark adds of its own to some calls; none of it is for us.
_SPARK_NAMES: Final = frozenset(
    {"path", "paths", "provider", "owner", "location", "checkpointlocation", "queryname"}
)
_EVERY_NAME: Final = READ_NAMES | STREAM_READ_NAMES | STREAM_WRITE_NAMES
_ROW_OPTIONS: Final = {
    "with_row_id": ("_rowid",),
    "with_row_address": ("_rowaddr",),
    "with_row_versions": ("_row_created_at_version", "_row_last_updated_at_version"),
}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Which rows and columns of which version to read.

    `row_columns` are the names of columns that no file has and that were asked for by options.
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
        """Refuse two ways to name a version at once, and numbers that mean nothing."""
        for name, least in (("limit", 0), ("split_bytes", 1)):
            number = getattr(self, name)
            if number is not None and number < least:
                raise InvalidInputError(f"{name} must be at least {least}", found=number)
        given = [name for name in ("version", "tag", "asof") if getattr(self, name) is not None]
        if len(given) > 1:
            raise InvalidInputError("a version can be named in one way only", given=given)

    @staticmethod
    def parse(options: Mapping[str, str], known: frozenset[str] = READ_NAMES) -> ReadOptions:
        """Return the options of a read, of which some may be known."""
        given = _checked(options, known, prefixes=(STORAGE_PREFIX,))
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
    """Which new rows, or changes of rows, a stream reads, and how many at a time."""

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
        """Refuse more than one limit, limits of nothing, and versions that are none."""
        limits = [each for each in (self.max_rows, self.max_bytes, self.max_versions) if each]
        given = [
            name
            for name in ("max_rows", "max_bytes", "max_versions")
            if getattr(self, name) is not None
        ]
        if len(given) > 1 or len(limits) < len(given):
            raise InvalidInputError("a stream has one limit per batch, of 1 at least", given=given)
        if self.change_feed and self.on_change is not OnChange.FAIL:
            raise InvalidInputError("a change feed tells every change; leave on_change")
        if self.change_keys and not self.change_feed:
            raise InvalidInputError("change_keys belong to a change feed: set change_feed=true")
        if self.log and (given or self.change_feed or self.starting_version is not None):
            raise InvalidInputError(
                "a stream of the log has no versions, limits or change feed; leave these options"
            )
        start = self.starting_version
        if start is not None and start != "latest" and not (start.isdigit() and int(start)):
            raise InvalidInputError(
                "`starting_version` is a number from 1 on, or latest", found=start
            )

    @staticmethod
    def parse(options: Mapping[str, str]) -> StreamOptions:
        """Return the options of a stream's source."""
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
    """How rows are written: limits of files, and encoding options by lower-case column name."""

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
    stream_id: str | None = None
    upsert_on: tuple[str, ...] = ()
    log: bool = False

    @staticmethod
    def parse_stream(options: Mapping[str, str]) -> WriteSettings:
        """Return the options of a stream's sink."""
        plain = WriteSettings.parse(options, known=STREAM_WRITE_NAMES)
        return replace(
            plain,
            stream_id=options.get("stream_id"),
            upsert_on=_names(options.get("upsert_on", "")),
            log=_flag(options, "log"),
        )

    @staticmethod
    def parse(options: Mapping[str, str], known: frozenset[str] = WRITE_NAMES) -> WriteSettings:
        """Return the options of a write."""
        prefixes = (STORAGE_PREFIX, VECTOR_PREFIX, ENCODING_PREFIX)
        given = _checked(options, known, prefixes=prefixes, suffix=DIMENSION_SUFFIX)
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
        )


def table_of(options: Mapping[str, str]) -> TableRef:
    """Return the table that options name, at its latest version."""
    path = options.get("path")
    if not path:
        raise InvalidInputError(
            "the format needs the path of a table: .load(path), .save(path) or "
            "OPTIONS (path '...') of a temporary view; Spark does not keep the path of tables "
            "in a catalog"
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
    """Return a value as the text that options have for it."""
    is_structured = isinstance(value, bool | Mapping | list | tuple)
    return json.dumps(value) if is_structured else str(value)


def _checked(
    options: Mapping[str, str],
    known: frozenset[str],
    *,
    prefixes: tuple[str, ...],
    suffix: str | None = None,
) -> dict[str, str]:
    """Return the options that are for us; refuse those that nobody knows."""
    given: dict[str, str] = {}
    for name, value in options.items():
        is_ours = name in known or name.startswith(prefixes)
        if is_ours or (suffix is not None and name.endswith(suffix)):
            given[name] = value
        elif name not in _SPARK_NAMES and name not in _EVERY_NAME:
            near = get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise InvalidInputError(
                f"no option has this name{hint}", option=name, known=sorted(known)
            )
    return given


def _names(text: str) -> tuple[str, ...]:
    """Return names that are written with commas between, or as a JSON list."""
    if text.lstrip().startswith("["):
        found = json.loads(text)
        if not all(isinstance(name, str) for name in found):
            raise InvalidInputError("a list of columns holds names", columns=text)
        return tuple(found)
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _number(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise InvalidInputError("the option takes an integer", option=name, found=text) from None


def _numbers(given: Mapping[str, str], name: str) -> tuple[int, ...] | None:
    text = given.get(name)
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.strip("[] ").split(",") if part.strip())
    except ValueError:
        raise InvalidInputError(
            "the option takes comma-separated integers", option=name, found=text
        ) from None


def _flag(given: Mapping[str, str], name: str) -> bool:
    text = given.get(name, "false").lower()
    if text not in {"true", "false"}:
        raise InvalidInputError("the option is true or false", option=name, found=given[name])
    return text == "true"


def _choice(given: Mapping[str, str], name: str, known: Sequence[str]) -> str:
    """Return one of some words, by default the first."""
    text = given.get(name, known[0]).lower()
    if text not in known:
        raise InvalidInputError(f"`{name}` has no such value", found=text, known=known)
    return text


def _bases(text: str) -> tuple[BasePath, ...]:
    """Return the bases that are written as name=path, with commas between, or as a JSON object.

    >>> [(base.name, base.path) for base in _bases("hot=s3://fast/t, cold=s3://slow/t")]
    [('hot', 's3://fast/t'), ('cold', 's3://slow/t')]
    """
    if text.lstrip().startswith("{"):
        found = json.loads(text)
        pairs = [(name, path) for name, path in found.items() if name and isinstance(path, str)]
        is_sound = len(pairs) == len(found)
    else:
        parts = [part.partition("=") for part in _names(text)]
        pairs = [(name.strip(), path.strip()) for name, _, path in parts]
        is_sound = all(name and path for name, path in pairs)
    if not is_sound:
        raise InvalidInputError(
            "`initial_bases` is written as name=path, with commas between", found=text
        )
    return number_bases([BasePath(0, absolute_path(path), name=name) for name, path in pairs])


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInputError("`asof` is a time as ISO 8601 has it", found=text) from None


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
                raise InvalidInputError("a vector has at least one item", option=option)
            found[column] = size
    return found


def _encodings(given: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return what `encoding.<column>.<option>` asks, as metadata of fields by column."""
    found: dict[str, dict[str, str]] = {}
    for option, value in given.items():
        if option.startswith(ENCODING_PREFIX):
            column, dot, wish = option.removeprefix(ENCODING_PREFIX).rpartition(".")
            if not dot:
                raise InvalidInputError(
                    "write encoding.<column>.<option>, as in encoding.name.compression",
                    option=option,
                )
            found.setdefault(column, {})[f"lance-encoding:{wish}"] = value
    return found


def unused(names: Iterable[str], columns: Iterable[str]) -> list[str]:
    """Return the names, in lower case, that no column has.

    >>> unused(["v", "w"], ["V"])
    ['w']
    """
    known = {column.lower() for column in columns}
    return sorted(set(names) - known)
