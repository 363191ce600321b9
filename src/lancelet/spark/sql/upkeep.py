"""Statements for maintenance, indices, tags and branches.

For example:

    OPTIMIZE t    VACUUM t RETAIN 7 DAYS DRY RUN    RESTORE TABLE t TO VERSION AS OF 3
    CREATE INDEX by_id ON t (id) USING BTREE        REFRESH INDEX by_id ON t
    CREATE TAG v1 ON t VERSION AS OF 3              DROP BRANCH dev ON t
"""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import timedelta
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the customary alias
from pyspark.sql.types import AtomicType, NullType, StructType

from lancelet.errors import similar_names
from lancelet.scan.execute import count_rows
from lancelet.scan.plan import plan_scan
from lancelet.scan.scan_options import ScanOptions
from lancelet.spark import change, indexing
from lancelet.spark.frames import quoted
from lancelet.spark.reader import pinned
from lancelet.spark.sql.names import Reference, read_options, time_text
from lancelet.spark.sql.parser import StatementParser
from lancelet.spark.sql.session import Session
from lancelet.spark.sql.target import TARGET, Target, empty_result, exact_filter
from lancelet.spark.write_schema import target_schema
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.compact.options import CompactionOptions

_CHECK: Final = "spark.lancelet.retentionDurationCheck.enabled"
_TEXT_OPTIONS: Final = {"compaction_mode", "data_storage_version"}
_UNITS: Final = {"HOUR": "hours", "DAY": "days", "WEEK": "weeks", "MINUTE": "minutes"}


def optimize(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run OPTIMIZE: compact small fragments and remove deleted rows."""
    parser.need("OPTIMIZE")
    reference = parser.table()
    if reference is None:
        return None
    options = _given(reference)
    target = Target.of(session, parser, reference, options.keys())
    if parser.take("WHERE"):
        start = parser.position
        condition = parser.text_until(("WITH",), ("ZORDER",))
        snapshot = target.open()
        where = exact_filter(session, snapshot, condition)
        if where is None:
            parser.source.fail(
                "OPTIMIZE supports only comparisons of columns with constants", start
            )
        options["excluded_fragment_ids"] = _without(snapshot, where)
    if parser.take("WITH"):
        options |= {name: _value(text) for name, text in parser.properties().items()}
    if parser.at("ZORDER"):
        parser.fail("rows are not sorted; use an index: CREATE INDEX name ON table (column)")
    parser.end()
    valid = sorted(each.name for each in fields(CompactionOptions))
    for name, value in options.items():
        start = max(parser.source.text.lower().rfind(name), 0)
        if name not in valid:
            parser.source.fail(
                f"unknown option `{name}`{similar_names(name, valid)}", start, expected=valid
            )
        if isinstance(value, str) and name not in _TEXT_OPTIONS:
            parser.source.fail(f"`{name}` must be a number or a boolean", start, found=value)
    done = change.compact(target.table.uri, options=options, **target.running)
    row = (
        done.version,
        done.metrics.fragments_removed,
        done.metrics.fragments_added,
        done.metrics.files_removed,
        done.metrics.files_added,
    )
    return session.spark.createDataFrame(
        [row],
        "version long, fragments_removed long, fragments_added long, files_removed long, "
        "files_added long",
    )


def _without(snapshot: Any, where: str) -> tuple[int, ...]:
    """Return the fragments without rows that match a condition."""
    found = []
    for fragment in snapshot.fragments:
        number = int(fragment.id)
        options = ScanOptions(columns=(), filter=where, fragments=(number,), limit=1)
        if not count_rows(plan_scan(snapshot, options)):
            found.append(number)
    return tuple(found)


def vacuum(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run VACUUM: delete old versions and files of failed jobs."""
    parser.need("VACUUM")
    reference = parser.table()
    if reference is None:
        return None
    target = Target.of(session, parser, reference)
    older_than, versions = None, None
    start = parser.position
    if parser.take("RETAIN"):
        amount = parser.whole("a retention period or a number of versions")
        if parser.take("VERSIONS") or parser.take("VERSION"):
            versions = amount
        else:
            unit = parser.name("HOURS, DAYS or VERSIONS").upper().removesuffix("S")
            if unit not in _UNITS:
                parser.number -= 1
                parser.fail("expected HOURS, DAYS or VERSIONS")
            older_than = timedelta(**{_UNITS[unit]: amount})
    is_dry = parser.take("DRY", "RUN")
    parser.end()
    if is_dry:
        if older_than is None and versions is None:
            older_than = timedelta(days=14)
        plan = target.dataset().explain_cleanup_old_versions(
            older_than,
            versions,
            error_if_tagged_old_versions=False,
            include_files=True,
            max_files=100_000,
        )
        rows = [(each.path, each.size_bytes) for each in plan.candidate_files]
        return session.spark.createDataFrame(rows, "path string, bytes long")
    if older_than == timedelta(0) and _is_retention_checked(session):
        parser.source.fail(
            "a retention period of 0 deletes versions that running queries and streams may still "
            "read; use RETAIN 1 VERSIONS to keep only the latest version, or set "
            f"{_CHECK} to false",
            start,
        )
    gone = change.cleanup(
        target.table.uri,
        older_than=older_than,
        retain_versions=versions,
        error_if_tagged_old_versions=False,
        **target.running,
    )
    files = (
        gone.data_files_removed
        + gone.transaction_files_removed
        + gone.index_files_removed
        + gone.deletion_files_removed
    )
    row = (gone.old_versions, files, gone.bytes_removed)
    return session.spark.createDataFrame(
        [row], "versions_removed long, files_removed long, bytes_removed long"
    )


def _is_retention_checked(session: Session) -> bool:
    names = (_CHECK, "spark.databricks.delta.retentionDurationCheck.enabled")
    return all(str(session.spark.conf.get(name, "true")).lower() == "true" for name in names)


def analyze(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run ANALYZE TABLE: return the statistics of a table or of its columns.

    Nothing is stored, because Spark accepts no statistics from Python data sources.
    """
    parser.need("ANALYZE", "TABLE")
    reference = parser.table()
    if reference is None:
        return None
    target = Target.of(session, parser, reference)
    parser.need("COMPUTE", "STATISTICS")
    snapshot = target.open()
    schema = target_schema(snapshot)
    columns: list[str] = []
    if parser.take("FOR", "ALL", "COLUMNS"):
        columns = schema.fieldNames()
    elif parser.take("FOR", "COLUMNS"):
        more = True
        while more:
            start = parser.position
            columns.append(target.column(schema, parser.name("a column"), start))
            more = parser.take("COMMA")
    else:
        parser.take("NOSCAN")
    parser.end()
    if not columns:
        row = (snapshot.version, snapshot.num_rows, snapshot.data_bytes, len(snapshot.fragments))
        return session.spark.createDataFrame(
            [row], "version long, num_rows long, num_bytes long, num_fragments long"
        )
    return _column_statistics(target, snapshot, schema, columns)


def _column_statistics(
    target: Target, snapshot: Snapshot, schema: StructType, columns: list[str]
) -> DataFrame:
    """Return a row of statistics for each column.

    Row counts, minima and maxima are read from the statistics of the files, if they are exact.
    Distinct values are estimated from the values.
    """
    ordered = {name for name in columns if isinstance(schema[name].dataType, AtomicType | NullType)}
    bounds = ["count(*) AS rows"]
    estimates = ["0 AS nothing"]
    for number, name in enumerate(columns):
        bounds.append(f"count({quoted(name)}) AS c{number}")
        if name in ordered:
            bounds += [f"min({quoted(name)}) AS l{number}", f"max({quoted(name)}) AS h{number}"]
            estimates.append(f"approx_count_distinct({quoted(name)}) AS d{number}")

    def values(expressions: list[str]) -> dict[str, Any]:
        frame = target.query(snapshot, f"SELECT {', '.join(expressions)} FROM {TARGET}")
        texts = [F.col(each).cast("string").alias(each) for each in frame.columns]
        return frame.select(*texts).collect()[0].asDict()

    found = {**values(bounds), **values(estimates)}
    rows = [
        (
            name,
            int(found["rows"]) - int(found[f"c{number}"]),
            None if name not in ordered else int(found[f"d{number}"]),
            found.get(f"l{number}"),
            found.get(f"h{number}"),
        )
        for number, name in enumerate(columns)
    ]
    return target.session.spark.createDataFrame(
        rows, "column string, num_nulls long, num_distinct long, min string, max string"
    )


def restore(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run RESTORE: an old version becomes the latest again, as a new version."""
    parser.need("RESTORE")
    parser.take("TABLE")
    reference = parser.table()
    if reference is None:
        return None
    if not reference.is_pinned:
        parser.need("TO")
        reference = _pinned(parser, reference)
    parser.end()
    options = read_options(session.spark, parser.source, reference)
    snapshot = pinned(options)
    plain = Reference(reference.parts, reference.start, reference.stop, reference.branch)
    dataset = Target.of(session, parser, plain).dataset()
    old = dataset.checkout_version(snapshot.version)
    old.restore()
    return session.spark.createDataFrame(
        [(old.version, snapshot.version)], "version long, restored long"
    )


def _pinned(parser: StatementParser, reference: Reference) -> Reference:
    """Parse VERSION AS OF or TIMESTAMP AS OF after a table."""
    if parser.take("VERSION", "AS", "OF"):
        token = parser.token
        if token is None or token.kind not in {"NUMBER", "STRING"}:
            parser.fail("expected the number or tag of a version")
        parser.number += 1
        return Reference(
            reference.parts, reference.start, token.stop, reference.branch, version=token.text
        )
    parser.need("TIMESTAMP", "AS", "OF")
    text, parser.number = time_text(parser.source, parser.number)
    stop = parser.source.tokens[parser.number - 1].stop
    return Reference(reference.parts, reference.start, stop, reference.branch, asof=text)


def create_ref(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run CREATE TAG and CREATE BRANCH."""
    parser.need("CREATE")
    replaces = parser.take("OR", "REPLACE")
    kind = parser.take_any("TAG", "BRANCH")
    if kind is None:
        return None
    may_be_there = parser.take("IF", "NOT", "EXISTS")
    name = parser.name("a name")
    if not parser.take_any("ON", "FOR"):
        parser.fail("expected ON and a table")
    reference = parser.need_table()
    parser.end()
    options = read_options(session.spark, parser.source, reference)
    plain = Reference(reference.parts, reference.start, reference.stop, reference.branch)
    dataset = Target.of(session, parser, plain).dataset()
    version = pinned(options).version
    at = version if options.table.branch is None else (options.table.branch, version)
    if kind == "TAG":
        if name in dataset.tags.list():
            if replaces:
                dataset.tags.update(name, at)
                return empty_result(session)
            if may_be_there:
                return empty_result(session)
        dataset.tags.create(name, at)
    elif not (may_be_there and name in dataset.branches.list()):
        dataset.create_branch(name, at)
    return empty_result(session)


def drop_ref(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run DROP TAG, DROP BRANCH and DROP INDEX."""
    parser.need("DROP")
    kind = parser.take_any("TAG", "BRANCH", "INDEX")
    if kind is None:
        return None
    may_be_missing = parser.take("IF", "EXISTS")
    name = parser.name("a name")
    parser.need("ON")
    parser.take("TABLE")
    reference = parser.table()
    if reference is None:
        return None
    parser.end()
    dataset = Target.of(session, parser, reference).dataset()
    if kind == "INDEX":
        names = {each.name for each in dataset.describe_indices()}
    else:
        names = set(dataset.tags.list() if kind == "TAG" else dataset.branches.list())
    if may_be_missing and name not in names:
        return empty_result(session)
    if kind == "INDEX":
        dataset.drop_index(name)
    else:
        (dataset.tags if kind == "TAG" else dataset.branches).delete(name)
    return empty_result(session)


def create_index(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run CREATE INDEX ... USING."""
    if not parser.take("CREATE", "INDEX"):
        return None
    may_be_there = parser.take("IF", "NOT", "EXISTS")
    name = parser.name("a name")
    parser.need("ON")
    parser.take("TABLE")
    reference = parser.table()
    if reference is None:
        return None
    target = Target.of(session, parser, reference)
    column = kind = None
    options: dict[str, Any] = {}
    while parser.token is not None:
        if parser.at("L_PAREN"):
            start = parser.position
            columns = parser.names("a column")
            if len(columns) > 1:
                parser.source.fail("an index has exactly one column", start)
            column = columns[0]
        elif parser.take("USING"):
            kind = parser.name("a kind of index").upper()
        elif parser.take_any("WITH", "OPTIONS"):
            options |= {key: _value(text) for key, text in parser.properties().items()}
        else:
            parser.fail("expected (column), USING or WITH")
    if column is None or kind is None:
        parser.fail("expected a column in parentheses and USING with a kind of index")
    dataset = target.dataset()
    if name in {each.name for each in dataset.describe_indices()}:
        if may_be_there:
            return empty_result(session)
        parser.source.fail("the index exists already; drop it first", parser.position)
    metric = str(options.pop("metric", "L2"))
    done = indexing.create_index(
        target.table.uri,
        column,
        kind,
        name=name,
        metric=metric,
        replace=False,
        parameters=options,
        **target.running,
    )
    return session.spark.createDataFrame([(done.version, done.num_rows)], _INDEXED)


_INDEXED: Final = "version long, num_rows long"


def refresh(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run REFRESH INDEX: add unindexed rows to indices."""
    parser.need("REFRESH")
    if parser.take("INDEX"):
        names: list[str] | None = [parser.name("a name")]
    elif parser.take_any("INDEXES", "INDICES"):
        names = None
    else:
        return None
    parser.need("ON")
    parser.take("TABLE")
    reference = parser.table()
    if reference is None:
        return None
    options = _given(reference)
    target = Target.of(session, parser, reference, options.keys())
    parser.end()
    done = indexing.optimize_indices(target.table.uri, names=names, **options, **target.running)
    return session.spark.createDataFrame([(done.version, done.num_rows)], _INDEXED)


def _given(reference: Reference) -> dict[str, Any]:
    """Return the options in the WITH clause of a table."""
    return {name: _value(text) for name, text in reference.select_options(storage=False).items()}


def _value(text: str) -> Any:
    """Parse the value of an option: a number, a boolean or text."""
    try:
        return json.loads(text.lower() if text.lower() in {"true", "false"} else text)
    except ValueError:
        return text
