"""Statements that keep tables in shape, and name versions.

OPTIMIZE t    VACUUM t RETAIN 7 DAYS DRY RUN    RESTORE TABLE t TO VERSION AS OF 3
CREATE INDEX by_id ON t (id) USING BTREE        REFRESH INDEX by_id ON t
CREATE TAG v1 ON t VERSION AS OF 3              DROP BRANCH dev ON t
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any, Final

from pyspark.sql import DataFrame

from lancelet.query.execute import count_rows
from lancelet.query.plan import plan_scan
from lancelet.query.scan_options import ScanOptions
from lancelet.spark import change, indexing
from lancelet.spark.reader import pinned
from lancelet.spark.sql.changes import Target, exact_filter
from lancelet.spark.sql.definitions import dataset_of, nothing
from lancelet.spark.sql.names import Reference, read_options
from lancelet.spark.sql.query import Session
from lancelet.spark.sql.words import Words

_UNITS: Final = {"HOUR": "hours", "DAY": "days", "WEEK": "weeks", "MINUTE": "minutes"}


def optimize(session: Session, words: Words) -> DataFrame | None:
    """Run OPTIMIZE: small fragments are joined, deleted rows dropped."""
    words.need("OPTIMIZE")
    reference = words.table()
    if reference is None:
        return None
    options = _given(reference)
    target = Target.of(session, words.source, reference, options.keys())
    if words.take("WHERE"):
        start = words.position
        condition = words.text_until(("WITH",))
        snapshot = target.open()
        where = exact_filter(session, snapshot, condition)
        if where is None:
            words.source.fail("OPTIMIZE takes comparisons of columns with constants", start)
        options["excluded_fragment_ids"] = _without(snapshot, where)
    if words.take("WITH"):
        options |= {name: _value(text) for name, text in words.properties().items()}
    words.end()
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
    """Return the fragments that have no row for which a condition is true."""
    found = []
    for fragment in snapshot.fragments:
        number = int(fragment.id)
        options = ScanOptions(columns=(), filter=where, fragments=(number,), limit=1)
        if not count_rows(plan_scan(snapshot, options)):
            found.append(number)
    return tuple(found)


def vacuum(session: Session, words: Words) -> DataFrame | None:
    """Run VACUUM: old versions and files of failed jobs go."""
    words.need("VACUUM")
    reference = words.table()
    if reference is None:
        return None
    target = Target.of(session, words.source, reference)
    older_than, versions = None, None
    if words.take("RETAIN"):
        amount = words.whole("how long or how many")
        if words.take("VERSIONS") or words.take("VERSION"):
            versions = amount
        else:
            unit = words.name("HOURS, DAYS or VERSIONS").upper().removesuffix("S")
            if unit not in _UNITS:
                words.number -= 1
                words.fail("expected HOURS, DAYS or VERSIONS")
            older_than = timedelta(**{_UNITS[unit]: amount})
    is_dry = words.take("DRY", "RUN")
    words.end()
    if is_dry:
        if older_than is None and versions is None:
            older_than = timedelta(days=14)
        plan = dataset_of(target).explain_cleanup_old_versions(
            older_than, versions, include_files=True, max_files=100_000
        )
        rows = [(each.path, each.size_bytes) for each in plan.candidate_files]
        return session.spark.createDataFrame(rows, "path string, bytes long")
    gone = change.cleanup(
        target.table.uri, older_than=older_than, retain_versions=versions, **target.running
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


def restore(session: Session, words: Words) -> DataFrame | None:
    """Run RESTORE: an old version becomes the latest again, as a new version."""
    words.need("RESTORE")
    words.take("TABLE")
    reference = words.table()
    if reference is None:
        return None
    if not reference.is_pinned:
        words.need("TO")
        reference = _pinned(words, reference)
    words.end()
    wanted = read_options(session.spark, words.source, reference)
    snapshot = pinned(wanted)
    plain = Reference(reference.parts, reference.start, reference.stop, reference.branch)
    dataset = dataset_of(Target.of(session, words.source, plain))
    old = dataset.checkout_version(snapshot.version)
    old.restore()
    return session.spark.createDataFrame(
        [(old.version, snapshot.version)], "version long, restored long"
    )


def _pinned(words: Words, reference: Reference) -> Reference:
    """Read VERSION AS OF or TIMESTAMP AS OF behind a table."""
    if words.take("VERSION", "AS", "OF"):
        token = words.token
        if token is None or token.kind not in {"NUMBER", "STRING"}:
            words.fail("expected the number or the tag of a version")
        words.number += 1
        return Reference(
            reference.parts, reference.start, token.stop, reference.branch, version=token.text
        )
    words.need("TIMESTAMP", "AS", "OF")
    text = words.string("a time")
    stop = words.source.tokens[words.number - 1].stop
    return Reference(reference.parts, reference.start, stop, reference.branch, asof=text)


def create_ref(session: Session, words: Words) -> DataFrame | None:
    """Run CREATE TAG and CREATE BRANCH."""
    words.need("CREATE")
    replaces = words.take("OR", "REPLACE")
    kind = words.take_any("TAG", "BRANCH")
    if kind is None:
        return None
    may_be_there = words.take("IF", "NOT", "EXISTS")
    name = words.name("a name")
    if not words.take_any("ON", "FOR"):
        words.fail("expected ON and a table")
    reference = words.need_table()
    words.end()
    wanted = read_options(session.spark, words.source, reference)
    plain = Reference(reference.parts, reference.start, reference.stop, reference.branch)
    dataset = dataset_of(Target.of(session, words.source, plain))
    version = pinned(wanted).version
    at = version if wanted.table.branch is None else (wanted.table.branch, version)
    if kind == "TAG":
        if name in dataset.tags.list():
            if replaces:
                dataset.tags.update(name, at)
                return nothing(session)
            if may_be_there:
                return nothing(session)
        dataset.tags.create(name, at)
    elif not (may_be_there and name in dataset.branches.list()):
        dataset.create_branch(name, at)
    return nothing(session)


def drop_ref(session: Session, words: Words) -> DataFrame | None:
    """Run DROP TAG, DROP BRANCH and DROP INDEX."""
    words.need("DROP")
    kind = words.take_any("TAG", "BRANCH", "INDEX")
    if kind is None:
        return None
    may_be_missing = words.take("IF", "EXISTS")
    name = words.name("a name")
    words.need("ON")
    words.take("TABLE")
    reference = words.table()
    if reference is None:
        return None
    words.end()
    dataset = dataset_of(Target.of(session, words.source, reference))
    if kind == "INDEX":
        known = {each.name for each in dataset.describe_indices()}
    else:
        known = set(dataset.tags.list() if kind == "TAG" else dataset.branches.list())
    if may_be_missing and name not in known:
        return nothing(session)
    if kind == "INDEX":
        dataset.drop_index(name)
    else:
        (dataset.tags if kind == "TAG" else dataset.branches).delete(name)
    return nothing(session)


def create_index(session: Session, words: Words) -> DataFrame | None:
    """Run CREATE INDEX ... USING."""
    if not words.take("CREATE", "INDEX"):
        return None
    may_be_there = words.take("IF", "NOT", "EXISTS")
    name = words.name("a name")
    words.need("ON")
    words.take("TABLE")
    reference = words.table()
    if reference is None:
        return None
    target = Target.of(session, words.source, reference)
    column = kind = None
    options: dict[str, Any] = {}
    while words.token is not None:
        if words.at("L_PAREN"):
            place = words.position
            columns = words.names("a column")
            if len(columns) > 1:
                words.source.fail("an index is of one column", place)
            column = columns[0]
        elif words.take("USING"):
            kind = words.name("a kind of index").upper()
        elif words.take_any("WITH", "OPTIONS"):
            options |= {key: _value(text) for key, text in words.properties().items()}
        else:
            words.fail("expected (column), USING or WITH")
    if column is None or kind is None:
        words.fail("expected a column in parentheses and USING with a kind of index")
    dataset = dataset_of(target)
    if name in {each.name for each in dataset.describe_indices()}:
        if may_be_there:
            return nothing(session)
        words.source.fail("there is an index of that name; drop it first", words.position)
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


def refresh(session: Session, words: Words) -> DataFrame | None:
    """Run REFRESH INDEX: rows that were written since become part of it."""
    words.need("REFRESH")
    if words.take("INDEX"):
        names: list[str] | None = [words.name("a name")]
    elif words.take_any("INDEXES", "INDICES"):
        names = None
    else:
        return None
    words.need("ON")
    words.take("TABLE")
    reference = words.table()
    if reference is None:
        return None
    options = _given(reference)
    target = Target.of(session, words.source, reference, options.keys())
    words.end()
    done = indexing.optimize_indices(target.table.uri, names=names, **options, **target.running)
    return session.spark.createDataFrame([(done.version, done.num_rows)], _INDEXED)


def _given(reference: Reference) -> dict[str, Any]:
    """Return the options of a statement that stand behind its table."""
    return {name: _value(text) for name, text in reference.select_options(storage=False).items()}


def _value(text: str) -> Any:
    """Return the value of an option: a number, truth or text."""
    try:
        return json.loads(text.lower() if text.lower() in {"true", "false"} else text)
    except ValueError:
        return text
