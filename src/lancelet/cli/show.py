"""`lancelet show TABLE`: shows the contents of a version."""

from __future__ import annotations

import argparse

from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output
from lancelet.cli.table_arguments import add_table, add_version, open_table
from lancelet.cli.versions import committed_at, operation_of
from lancelet.dataset.show.display import size_text
from lancelet.debug import format_manifest
from lancelet.format.flags import Feature


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    add_table(parser)
    add_version(parser)
    parser.add_argument("--manifest", action="store_true", help="show the whole manifest")


def run(arguments: argparse.Namespace, out: Output) -> ExitCode:
    """Print the facts."""
    table = open_table(arguments)
    if arguments.manifest:
        text = format_manifest(table)
        out.text(text, {"manifest": text})
        return ExitCode.DONE
    snapshot = table.snapshot
    manifest, fragments = snapshot.manifest, snapshot.fragments
    size = snapshot.data_bytes
    writer = manifest.writer_version
    out.facts(
        {
            "uri": snapshot.location.uri,
            "version": snapshot.version,
            "branch": manifest.branch,
            "committed": committed_at(snapshot),
            "operation": operation_of(snapshot),
            "rows": snapshot.num_rows,
            "deleted_rows": int(snapshot.deleted_by_fragment.sum()),
            "fragments": len(fragments),
            "bytes": size if not out.is_for_people else size_text(size),
            "columns": len(snapshot.schema.fields),
            "file_version": manifest.data_version.value,
            "features": _names(manifest.reader_flags | manifest.writer_flags),
            "written_by": None if writer is None else str(writer),
            "legacy_tag": manifest.tag or None,
            "indices": sorted({index.name for index in snapshot.indices.indices}),
            "bases": [base.path for base in manifest.base_paths],
            "config": dict(manifest.config),
            "metadata": dict(manifest.table_metadata),
            "manifest": snapshot.entry.path,
        }
    )
    return ExitCode.DONE


def _names(flags: int) -> list[str]:
    return [each.name.lower() for each in Feature if flags & each and each.name]
