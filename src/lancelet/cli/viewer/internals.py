"""Requests of the viewer about storage: pages, indices, plans of queries, and health."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from lancelet.cli.pages import pages_of_table
from lancelet.cli.viewer.tables import Shown, names_of, text_of
from lancelet.dataset.file.describe import short_encoding
from lancelet.upkeep.check import Level

PAGES_MAX: Final = 5_000
_STEP: Final = re.compile(r"([^:]*)(?:: ?(.*?))?(?:, metrics=\[([^\]]*)\])?", re.DOTALL)
_PROPERTY: Final = re.compile(r", (?=[a-z_]+=)")


def pages(shown: Shown, request: Mapping[str, str]) -> dict[str, Any]:
    """Return the extents and encodings of the pages of columns."""
    snapshot = shown.open(request).snapshot
    names = ("fragment", "file", "column", "page", "rows", "bytes", "encoding")
    found: list[dict[str, Any]] = []
    for row in pages_of_table(snapshot, prefix=request.get("column", "")):
        if len(found) == PAGES_MAX:
            return {"pages": found, "cut": True}
        found.append({**dict(zip(names, row, strict=True)), "encoding": short_encoding(row[-1])})
    return {"pages": found, "cut": False}


def indices(shown: Shown, request: Mapping[str, str]) -> dict[str, Any]:
    """Return the indices with their coverage."""
    table = shown.open(request)
    found = []
    for index in table.describe_indices():
        statistics = table.stats.index_stats(index.name)
        found.append(
            {
                "name": index.name,
                "type": index.index_type,
                "columns": index.field_names,
                "segments": len(index.segments),
                "bytes": index.total_size_bytes,
                "indexed_rows": statistics["num_indexed_rows"],
                "other_rows": statistics["num_unindexed_rows"],
                "is_vector": statistics["index_type"].startswith("IVF"),
                "statistics": statistics,
            }
        )
    return {"indices": found}


def recall(shown: Shown, request: Mapping[str, str]) -> dict[str, Any]:
    """Return the recall of a vector index."""
    report = shown.open(request).recall_report(text_of(request, "column"), store=False)
    return {"text": str(report)}


def plan(shown: Shown, request: Mapping[str, str]) -> dict[str, Any]:
    """Return the steps of a query, last step first, with measurements if requested."""
    scanner = shown.open(request).scanner(
        columns=names_of(request), filter=request.get("filter") or None
    )
    text = scanner.analyze_plan() if request.get("measure") == "1" else scanner.explain_plan()
    *lines, last = str(text).split("\n")
    is_measured = last.startswith("measured: ")
    steps = lines if is_measured else [*lines, last]
    return {
        "steps": [plan_step(line) for line in steps],
        "measured": last.removeprefix("measured: ") if is_measured else None,
    }


def plan_step(line: str) -> dict[str, Any]:
    """Parse a line of a plan.

    >>> plan_step("  Take: projection=[a, b], rows=3, metrics=[output_rows=3]")["properties"]
    [['projection', '[a, b]'], ['rows', '3']]
    """
    matched = _STEP.fullmatch(line.strip())
    assert matched is not None, "all parts are optional"
    name, text, metrics = matched[1], matched[2] or "", matched[3]
    # The text of a filter is an expression.
    is_expression = name == "Filter" or "=" not in text.partition(", ")[0]
    parts = [] if is_expression else _PROPERTY.split(text)
    return {
        "depth": (len(line) - len(line.lstrip())) // 2,
        "name": name,
        "text": text if is_expression else "",
        "properties": [list(each.split("=", 1)) for each in parts],
        "metrics": dict(each.split("=", 1) for each in metrics.split(", ")) if metrics else {},
    }


def health(shown: Shown, request: Mapping[str, str]) -> dict[str, Any]:
    """Return the findings of a check of a version, and the recommended maintenance of the table."""
    table = shown.open(request)
    found = table.check(Level.parse(request.get("level", "footers")))
    report = table.maintain(dry_run=True).to_dict()
    return {
        "findings": [{**asdict(each), "severity": each.severity.value} for each in found],
        "steps": report["steps"],
        "counts": report["before"],
    }
