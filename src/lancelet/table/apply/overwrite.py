"""Overwrite: another schema and other rows; also how a table begins.

Config, metadata and bases stay, as do the counters: fragment ids and row ids are never used
twice. Index segments go, as they cover nothing any more.
"""

from __future__ import annotations

from lancelet.format.flags import Feature
from lancelet.format.fragment_list import FragmentList
from lancelet.format.manifest import Manifest
from lancelet.format.operation import Overwrite
from lancelet.format.version import DEFAULT_VERSION, FileVersion
from lancelet.table.apply.numbering import number_fragments, with_row_ids, with_versions
from lancelet.table.apply.state import CommitContext, State
from lancelet.values import replace


def apply_overwrite(operation: Overwrite, before: State | None, context: CommitContext) -> State:
    """Return the state that has only the operation's schema and fragments."""
    manifest = _empty(operation, context) if before is None else before.manifest
    if before is not None and context.data_version is not None:
        manifest = replace(manifest, data_version=context.data_version)
    fragments = number_fragments(operation.fragments, manifest)
    next_row_id = manifest.next_row_id
    if manifest.uses_stable_row_ids:
        fragments, next_row_id = with_row_ids(fragments, next_row_id)
        fragments = tuple(with_versions(fragment, context.version) for fragment in fragments)
    manifest = replace(
        manifest,
        schema=operation.schema,
        next_row_id=next_row_id,
        config={**manifest.config, **operation.config_upsert_values},
    )
    return State(manifest).with_fragments(FragmentList.of(fragments))


def _empty(operation: Overwrite, context: CommitContext) -> Manifest:
    flags = int(Feature.STABLE_ROW_IDS) if context.stable_row_ids else 0
    return Manifest(
        schema=operation.schema,
        fragments=FragmentList.of(()),
        version=0,
        data_version=context.data_version or _version_of_files(operation),
        reader_flags=flags,
        writer_flags=flags,
        base_paths=operation.initial_bases,
    )


def _version_of_files(operation: Overwrite) -> FileVersion:
    versions = [file.version for fragment in operation.fragments for file in fragment.files]
    return max(versions, key=lambda version: version.value, default=DEFAULT_VERSION)
