"""Requests of the viewer about versions: the list of versions, and differences between two."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

import pyarrow as pa

from lancelet.cli.versions import committed_at, operation_of
from lancelet.cli.viewer.cells import cell
from lancelet.cli.viewer.tables import Shown, number_of
from lancelet.dataset import LanceDataset
from lancelet.table.snapshot import open_entries
from lancelet.upkeep.changes.between import RowsNotTrackedError

VERSIONS_MAX: Final = 500
CHANGES_MAX: Final = 200
_PARTS: Final = ("schema", "config", "metadata", "files", "indices")


def versions(shown: Shown, request: Mapping[str, str]) -> dict[str, Any]:
    """Return the versions of a table, newest first, with branches and tags."""
    table = shown.open(request)
    location = table.snapshot.location
    tags: dict[tuple[str | None, int], list[str]] = {}
    for name, tag in table.tags.list().items():
        tags.setdefault((tag["branch"], tag["version"]), []).append(name)
    branch = table.snapshot.manifest.branch
    newest = reversed(location.handler.list_versions(location.store)[-VERSIONS_MAX:])
    found = [
        {
            "version": snapshot.version,
            "committed": committed_at(snapshot),
            "operation": operation_of(snapshot),
            "rows": snapshot.num_rows,
            "fragments": len(snapshot.fragments),
            "bytes": snapshot.data_bytes,
            "tags": sorted(tags.get((branch, snapshot.version), [])),
        }
        for snapshot in open_entries(location, newest)
    ]
    branches = [
        {"name": name, "parent": each["parent_branch"], "version": each["parent_version"]}
        for name, each in sorted(table.branches.list().items())
    ]
    return {"branch": branch, "versions": found, "branches": branches}


def difference(shown: Shown, request: Mapping[str, str]) -> dict[str, Any]:
    """Return the differences between two versions: their metadata, and the first changed rows.

    `on` is a key column that matches the rows of tables that do not track them.
    """
    table = shown.open(request)
    begin, end = sorted((number_of(request, "begin", 1), number_of(request, "end", 1)))
    found = table.diff(begin, end)
    parts = [
        {"part": part, "kind": each.side.value, **asdict(each)}
        for part in _PARTS
        for each in getattr(found, part)
    ]
    answer = {"begin": begin, "end": end, "parts": parts, "before": found.rows.before}
    answer |= {"after": found.rows.after, "changes": [], "columns": [], "cut": False}
    answer["counts"] = [found.rows.inserted, found.rows.updated, found.rows.deleted]
    if begin == end:
        return answer
    try:
        columns, changes = _changes(table, begin, end, request.get("on") or None)
    except RowsNotTrackedError as error:
        return {**answer, "unknown": error.message}
    shown_changes = list(itertools.islice(changes, CHANGES_MAX + 1))
    answer |= {"columns": columns, "changes": shown_changes[:CHANGES_MAX]}
    return {**answer, "cut": len(shown_changes) > CHANGES_MAX}


def _changes(
    table: LanceDataset, begin: int, end: int, on: str | None
) -> tuple[list[str], Iterator[dict[str, Any]]]:
    """Return the columns of either version, and the changed rows."""
    reader = table.changes(begin, end, on=on)
    sides = [reader.schema.field(side).type for side in ("after", "before")]
    types = {each.name: each.type for side in sides for each in side}
    blobs = frozenset(each.name for each in table.snapshot.schema.fields if each.is_blob)
    changes = (_change(each, types, blobs) for batch in reader for each in batch.to_pylist())
    return list(types), changes


def _change(
    change: Mapping[str, Any], types: Mapping[str, pa.DataType], blobs: frozenset[str]
) -> dict[str, Any]:
    """Return a changed row; of blobs, only the sizes are compared."""
    before, after = (
        {
            name: f"{value['size']} bytes" if name in blobs and value is not None else value
            for name, value in (change[side] or {}).items()
        }
        for side in ("before", "after")
    )
    # `repr` regards NaN as equal to itself.
    is_changed = [
        bool(before and after) and repr(before.get(name)) != repr(after.get(name)) for name in types
    ]
    return {
        "kind": change["kind"],
        "id": str(change["_rowid"]),
        "cells": [cell((after or before).get(name), types[name]) for name in types],
        "before": [
            cell(before.get(name), types[name]) if differs else None
            for name, differs in zip(types, is_changed, strict=True)
        ],
        "changed": is_changed,
    }
