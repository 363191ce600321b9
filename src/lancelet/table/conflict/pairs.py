"""Conflict rules for pairs of operations that depend on the changed fragments, fields or rows.

Each rule takes our and their operation and returns a verdict. Symmetric rules serve both orders.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from lancelet.format.index_metadata import FRAGMENT_REUSE_INDEX, MEM_WAL_INDEX, IndexMetadata
from lancelet.format.operation import (
    Append,
    CompactedSsTable,
    CreateIndex,
    DataReplacement,
    Merge,
    Operation,
    Project,
    Rewrite,
    Update,
    UpdateBases,
    UpdateConfig,
    UpdateMap,
    UpdateMemWalState,
    UpdateMode,
)
from lancelet.table.conflict.verdict import (
    COMPATIBLE,
    Outcome,
    Verdict,
    incompatible,
    removed_fragments,
    retry,
    touched_fragments,
)

_OVER_LISTS: Final = frozenset({"LabelListIndexDetails", "InvertedIndexDetails"})
"""Index types that can be built on a list field."""


def same_fragments(ours: Operation, theirs: Operation) -> Verdict:
    """Retry if both change the same fragment."""
    shared = touched_fragments(ours) & touched_fragments(theirs)
    return retry("both change the same fragments", fragments=shared) if shared else COMPATIBLE


def rows_and_rows(ours: Operation, theirs: Operation) -> Verdict:
    """Compare the changed rows if both change the same fragment: different rows do not conflict."""
    shared = touched_fragments(ours) & touched_fragments(theirs)
    if not shared:
        return COMPATIBLE
    removed = shared & removed_fragments(theirs)
    if removed:
        return retry("they removed fragments that ours changes", fragments=removed)
    if isinstance(theirs, Update) and theirs.mode is UpdateMode.REWRITE_COLUMNS:
        return retry("they rewrote columns of rows that ours may change", fragments=shared)
    return Verdict(Outcome.REBASE, "both change rows of the same fragments", shared)


def rewrite_and_rows(ours: Rewrite, theirs: Operation) -> Verdict:
    """Compare the rows if they deleted or moved rows of fragments that ours rewrites."""
    shared = touched_fragments(ours) & touched_fragments(theirs)
    if not shared:
        return COMPATIBLE
    return Verdict(Outcome.REBASE, "both change rows of the same fragments", shared)


def check_nullability(ours: Operation, theirs: Operation) -> Verdict:
    """Retry if a schema change may have made new rows invalid."""
    for operation in (ours, theirs):
        if isinstance(operation, Merge | Project) and not operation.preserves_nullability:
            return retry("a schema change may not fit the rows of the other commit")
    return COMPATIBLE


def append_and_merge(ours: Append, theirs: Merge) -> Verdict:
    """Retry if fields of new rows were given other ids, as they would be read as null."""
    remaining = {field.id for field in theirs.schema.walk()}
    written = {
        field_id
        for fragment in ours.fragments
        for file in fragment.files
        for field_id in file.fields
        if field_id >= 0
    }
    if not written <= remaining:
        return retry("a column of the new rows has changed its type")
    return check_nullability(ours, theirs)


def update_and_append(ours: Update, theirs: Append) -> Verdict:
    """Retry an upsert if rows were added, as it would update those with its keys."""
    del theirs
    if ours.inserted_rows is None or ours.inserted_rows.is_empty:
        return COMPATIBLE
    return _same_keys("rows were added that may have the keys of the inserted ones", COMPATIBLE)


def update_and_update(ours: Update, theirs: Update) -> Verdict:
    """Compare the inserted keys, then the changed rows."""
    generations = _compare_generations(ours.compacted_sstables, theirs.compacted_sstables)
    rows = generations or rows_and_rows(ours, theirs)
    inserted = ours.inserted_rows
    if inserted is None or inserted.is_empty:
        return rows
    if theirs.inserted_rows is None and _may_add_keys(theirs, inserted.field_ids):
        return _same_keys("they added rows without listing their keys", rows)
    if theirs.inserted_rows is not None and inserted.may_intersect(theirs.inserted_rows):
        return _same_keys("both may have inserted rows with the same keys", rows)
    return rows


def _same_keys(reason: str, otherwise: Verdict) -> Verdict:
    """Retry if rows were added with keys that ours inserted."""
    if otherwise.outcome in {Outcome.RETRY, Outcome.INCOMPATIBLE}:
        return otherwise
    return Verdict(Outcome.RETRY, reason, if_keys_disjoint=otherwise)


def _may_add_keys(update: Update, key_fields: tuple[int, ...]) -> bool:
    """Return whether an update may have added rows with new keys."""
    changed = set(update.fields_for_preserving_bitmap)
    return bool(update.new_fragments) and (not changed or not changed.isdisjoint(key_fields))


def older_generations(ours: Operation, theirs: Operation) -> Verdict:
    """Reject the merge of a shard's generation that is already in the table."""
    return _compare_generations(_compacted(ours), _compacted(theirs)) or COMPATIBLE


def rewrite_and_index(ours: Rewrite, theirs: CreateIndex) -> Verdict:
    """Retry a rewrite of fragments that a new index covers."""
    rewritten = touched_fragments(ours)
    reuses = any(index.name == FRAGMENT_REUSE_INDEX for index in theirs.new_indices)
    covered = frozenset[int]()
    for index in theirs.new_indices:
        if index.is_system:
            continue
        covered |= (
            rewritten if index.fragment_bitmap is None else rewritten & set(index.fragment_bitmap)
        )
    if covered:
        return retry("a new index covers fragments that ours rewrites", fragments=covered)
    return retry("both change the fragment reuse index") if reuses else COMPATIBLE


def index_and_rewrite(ours: CreateIndex, theirs: Rewrite) -> Verdict:
    """Retry an index build over fragments that were rewritten."""
    verdict = rewrite_and_index(theirs, ours)
    if verdict.outcome is Outcome.COMPATIBLE:
        return COMPATIBLE
    return retry("fragments that the index covers were rewritten", fragments=verdict.fragments)


def same_index(ours: CreateIndex, theirs: CreateIndex) -> Verdict:
    """Retry if both create an index of the same name or replace the same segment."""
    names = {index.name for index in ours.new_indices} & {
        index.name for index in theirs.new_indices
    }
    removed = {index.uuid for index in ours.removed_indices} & {
        index.uuid for index in theirs.removed_indices
    }
    if not names and not removed:
        return COMPATIBLE
    return Verdict(
        Outcome.RETRY, "both change the same index", names=frozenset(names) or _names(ours)
    )


def index_and_mem_wal(ours: Operation, theirs: Operation) -> Verdict:
    """Retry if an index commit and a merge of shards both change the system index."""
    for operation in (ours, theirs):
        if isinstance(operation, CreateIndex) and MEM_WAL_INDEX in _names(operation):
            return retry("both change the state of merged shards")
    return COMPATIBLE


def index_and_update(ours: CreateIndex, theirs: Update) -> Verdict:
    """Retry an index build if indexed columns were rewritten or shards were merged."""
    if theirs.compacted_sstables:
        verdict = index_and_mem_wal(ours, theirs)
        if verdict.outcome is not Outcome.COMPATIBLE:
            return verdict
    return _indexed_columns(ours, theirs.fields_modified, touched_fragments(theirs))


def replaced_fragment_removed(ours: Operation, theirs: Operation) -> Verdict:
    """Reject if the fragment that gets a new file was removed."""
    removed = touched_fragments(ours) & removed_fragments(theirs)
    if removed:
        return incompatible("they removed fragments that ours adds files to", fragments=removed)
    return COMPATIBLE


def replacement_and_update(ours: DataReplacement, theirs: Update) -> Verdict:
    """Retry a replacement if rows of its fragments moved or its fields were rewritten."""
    removed = replaced_fragment_removed(ours, theirs)
    if removed.outcome is not Outcome.COMPATIBLE:
        return removed
    shared = touched_fragments(ours) & touched_fragments(theirs)
    fields = {field_id for group in ours.replacements for field_id in group.new_file.fields}
    rewritten = fields & set(theirs.fields_modified)
    if shared and (theirs.mode is UpdateMode.REWRITE_ROWS or rewritten):
        return retry(
            "they changed rows of fragments that ours adds files to",
            fragments=shared,
            fields=frozenset(rewritten),
        )
    return COMPATIBLE


def replacement_and_project(ours: DataReplacement, theirs: Project) -> Verdict:
    """Retry if the schema does not fit; reject if a replaced field was dropped."""
    verdict = check_nullability(ours, theirs)
    if verdict.outcome is not Outcome.COMPATIBLE:
        return verdict
    remaining = {field.id for field in theirs.schema.walk()}
    replaced = {field_id for group in ours.replacements for field_id in group.new_file.fields}
    dropped = {field_id for field_id in replaced - remaining if field_id >= 0}
    if dropped:
        return Verdict(
            Outcome.INCOMPATIBLE, "a replaced field was dropped", fields=frozenset(dropped)
        )
    return COMPATIBLE


def same_replacement(ours: DataReplacement, theirs: DataReplacement) -> Verdict:
    """Retry a replacement of fields that were replaced in the same fragment."""
    their_fields = {
        (group.fragment_id, field_id)
        for group in theirs.replacements
        for field_id in group.new_file.fields
    }
    shared_fields = {
        (group.fragment_id, field_id)
        for group in ours.replacements
        for field_id in group.new_file.fields
        if (group.fragment_id, field_id) in their_fields
    }
    if not shared_fields:
        return COMPATIBLE
    return retry(
        "both replace the same fields",
        fragments=frozenset(fragment_id for fragment_id, _ in shared_fields),
        fields=frozenset(field_id for _, field_id in shared_fields),
    )


def replacement_and_index(ours: DataReplacement, theirs: CreateIndex) -> Verdict:
    """Retry a replacement of a field that was indexed concurrently."""
    replaced = {field_id for group in ours.replacements for field_id in group.new_file.fields}
    return _indexed_columns(theirs, replaced, touched_fragments(ours))


def _indexed_columns(
    build: CreateIndex, rewritten: Collection[int], fragments: frozenset[int]
) -> Verdict:
    """Retry if an index build and an in-place rewrite affect the same columns."""
    indexed = {field_id for index in build.new_indices for field_id in index.fields}
    shared = frozenset(indexed.intersection(rewritten))
    if shared:
        return retry("values of an indexed column were replaced", fields=shared)
    for index in build.new_indices if rewritten else ():
        covered = fragments & frozenset(index.fragment_bitmap or ())
        if covered and index.details is not None and index.details.type_name in _OVER_LISTS:
            # A data file lists the items of a list, the index the list itself, and no schema is
            # available.
            return retry("the items of an indexed list may be replaced", fragments=covered)
    return COMPATIBLE


def index_and_replacement(ours: CreateIndex, theirs: DataReplacement) -> Verdict:
    """Retry an index build over a field that was replaced."""
    return replacement_and_index(theirs, ours)


def index_and_schema(ours: CreateIndex, theirs: Merge | Project) -> Verdict:
    """Retry an index build on a field that was dropped or changed its type."""
    remaining = theirs.schema.by_id
    missing = frozenset(
        field_id for index in ours.new_indices for field_id in index.missing_fields(remaining)
    )
    if not missing:
        return COMPATIBLE
    return retry("an indexed column was dropped or has changed its type", fields=missing)


def schema_metadata_changed(ours: Operation, theirs: Operation) -> Verdict:
    """Retry if one changes the schema and the other the schema metadata."""
    for operation in (ours, theirs):
        if isinstance(operation, UpdateConfig) and _touches_schema(operation):
            return retry("one commit changes the schema and the other its metadata")
    return COMPATIBLE


def schema_metadata_lost(ours: Operation, theirs: Operation) -> Verdict:
    """Reject if one replaces the schema and the other changes the schema metadata."""
    for operation in (ours, theirs):
        if isinstance(operation, UpdateConfig) and _touches_schema(operation):
            return incompatible("one commit replaces the schema and the other changes its metadata")
    return COMPATIBLE


def same_keys(ours: UpdateConfig, theirs: UpdateConfig) -> Verdict:
    """Reject if both change the same config key or the metadata of the same object."""
    keys = _config_keys(ours.config, theirs.config)
    keys |= _metadata_keys(ours.table_metadata, theirs.table_metadata)
    if ours.schema_metadata is not None and theirs.schema_metadata is not None:
        keys |= {"the metadata of the schema"}
    fields = set(ours.field_metadata) & set(theirs.field_metadata)
    if not keys and not fields:
        return COMPATIBLE
    return Verdict(
        Outcome.INCOMPATIBLE,
        "both change the same settings",
        fields=frozenset(fields),
        names=frozenset(keys),
    )


def same_bases(ours: UpdateBases, theirs: UpdateBases) -> Verdict:
    """Reject if both register a base with the same id, name or path."""
    for base in ours.new_bases:
        for other in theirs.new_bases:
            same_name = base.name is not None and base.name == other.name
            if same_name or base.path == other.path or (base.id and base.id == other.id):
                return incompatible(
                    "both register the same base", names=frozenset({base.name or base.path})
                )
    return COMPATIBLE


def _config_keys(ours: UpdateMap | None, theirs: UpdateMap | None) -> set[str]:
    """Return the keys that both change, except those that both delete."""
    if ours is None or theirs is None:
        return set()
    shared = set(ours.entries) & set(theirs.entries)
    return {key for key in shared if (ours.entries[key], theirs.entries[key]) != (None, None)}


def _metadata_keys(ours: UpdateMap | None, theirs: UpdateMap | None) -> set[str]:
    """Return the keys that both change; replacing a map changes all keys."""
    if ours is None or theirs is None:
        return set()
    if ours.replace or theirs.replace:
        return set(ours.entries) | set(theirs.entries) or {"all keys"}
    return set(ours.entries) & set(theirs.entries)


def _touches_schema(operation: UpdateConfig) -> bool:
    return operation.schema_metadata is not None or bool(operation.field_metadata)


def _names(operation: CreateIndex) -> frozenset[str]:
    changed: tuple[IndexMetadata, ...] = (*operation.new_indices, *operation.removed_indices)
    return frozenset(index.name for index in changed)


def _compacted(operation: Operation) -> tuple[CompactedSsTable, ...]:
    match operation:
        case Update(compacted_sstables=compacted) | UpdateMemWalState(compacted_sstables=compacted):
            return compacted
        case _:
            return ()


def _compare_generations(
    ours: tuple[CompactedSsTable, ...], theirs: tuple[CompactedSsTable, ...]
) -> Verdict | None:
    committed = {entry.shard_id: entry.generation for entry in theirs}
    shared = [entry for entry in ours if entry.shard_id in committed]
    if not shared:
        return None
    if any(committed[entry.shard_id] >= entry.generation for entry in shared):
        return incompatible(
            "a shard's generation is in the table already",
            names=frozenset(str(entry.shard_id) for entry in shared),
        )
    return retry("an earlier generation of the same shard was merged first")
