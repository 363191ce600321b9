"""Append: more fragments behind those that are there."""

from __future__ import annotations

from dataclasses import replace

from lancelet.errors import InvalidInputError
from lancelet.format.flags import Feature
from lancelet.format.operation import Append
from lancelet.format.version import FileVersion
from lancelet.table.apply.numbering import number_fragments, with_row_ids, with_versions
from lancelet.table.apply.state import CommitContext, State


def apply_append(operation: Append, state: State, context: CommitContext) -> State:
    """Return the state with the operation's fragments added."""
    state = _with_versions_of(operation, state)
    manifest = state.manifest
    fragments = number_fragments(operation.fragments, manifest)
    if manifest.uses_stable_row_ids:
        fragments, next_row_id = with_row_ids(fragments, manifest.next_row_id)
        fragments = tuple(with_versions(fragment, context.version) for fragment in fragments)
        state = replace(state, manifest=replace(manifest, next_row_id=next_row_id))
    return state.with_fragments(manifest.fragments.appended(fragments))


def _with_versions_of(operation: Append, state: State) -> State:
    """Return the state with the flag that files of several versions need, if they are several."""
    manifest = state.manifest
    own = manifest.data_version
    others = {
        file.version
        for fragment in operation.fragments
        for file in fragment.files
        if file.version is not own
    }
    if FileVersion.V0_1 in others or (others and own is FileVersion.V0_1):
        found = sorted(version.value for version in others)
        raise InvalidInputError(
            "files of version 0.1 cannot be in one table with others", table=own.value, files=found
        )
    if not others:
        return state
    mixed = int(Feature.MIXED_FILE_VERSIONS)
    flagged = replace(
        manifest,
        reader_flags=manifest.reader_flags | mixed,
        writer_flags=manifest.writer_flags | mixed,
    )
    return replace(state, manifest=flagged)
