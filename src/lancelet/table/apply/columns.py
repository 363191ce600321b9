"""Operations on columns: added or retyped (Merge), dropped or renamed (Project), swapped."""

from __future__ import annotations

from dataclasses import replace

from lancelet.errors import InvalidInputError
from lancelet.format.fragment import DataFile, Fragment
from lancelet.format.fragment_list import FragmentList
from lancelet.format.operation import DataReplacement, Merge, Project
from lancelet.table.apply.coverage import retain_covering
from lancelet.table.apply.state import CommitContext, State, without_dead_files


def apply_merge(operation: Merge, state: State, context: CommitContext) -> State:
    """Return the state with the operation's schema and its complete list of fragments."""
    del context
    fragments = FragmentList.of(without_dead_files(fragment) for fragment in operation.fragments)
    return retain_covering(state.with_schema(operation.schema).with_fragments(fragments))


def apply_project(operation: Project, state: State, context: CommitContext) -> State:
    """Return the state with another schema, without files of which no field remains."""
    del context
    remaining = {field.id for field in operation.schema.walk()}
    changed: dict[int, Fragment] = {}
    for fragment in state.manifest.fragments:
        files = tuple(file for file in fragment.files if not remaining.isdisjoint(file.fields))
        if len(files) < len(fragment.files):
            changed[fragment.id] = replace(fragment, files=files)
    fragments = state.manifest.fragments.changed(replaced=changed)
    return retain_covering(state.with_schema(operation.schema).with_fragments(fragments))


def apply_data_replacement(
    operation: DataReplacement, state: State, context: CommitContext
) -> State:
    """Return the state in which new files took over their fields."""
    del context
    if len({group.new_file.fields for group in operation.replacements}) > 1:
        raise InvalidInputError("all files of one replacement must have the same fields")
    fragments = state.manifest.fragments
    replaced = {
        group.fragment_id: _with_file(fragments.by_id(group.fragment_id), group.new_file)
        for group in operation.replacements
    }
    return state.with_fragments(fragments.changed(replaced=replaced))


def _with_file(fragment: Fragment, new: DataFile) -> Fragment:
    """Put a file in the place of the one with the same fields, or add it for fields without."""
    held = {field_id for file in fragment.files for field_id in file.fields}
    if held.isdisjoint(new.fields):
        return replace(fragment, files=(*fragment.files, new))
    same = [
        file for file in fragment.files if file.fields == new.fields and file.version is new.version
    ]
    if not same:
        raise InvalidInputError(
            "a file can only take the place of one with the same fields and version",
            fragment_id=fragment.id,
            fields=list(new.fields),
            held=[list(file.fields) for file in fragment.files],
        )
    files = tuple(new if file is same[0] else file for file in fragment.files)
    return replace(fragment, files=files)
