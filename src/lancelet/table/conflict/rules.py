"""The conflict matrix of operations.

`RULES[ours, theirs]` decides whether our operation, computed from an older version, may be
committed after theirs. A cell is a verdict, or a function of both operations where it depends on
the changed fragments, fields or rows. A test checks that every pair has a cell.

    ours / theirs    Append   Delete            Overwrite
    Append           ok       ok                incompatible
    Delete           ok       rebase if they    incompatible
                              share fragments
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from lancelet.format.operation import (
    AddOverlays,
    Append,
    Clone,
    CreateIndex,
    DataReplacement,
    Delete,
    Merge,
    Operation,
    Overwrite,
    Project,
    ReserveFragments,
    Restore,
    Rewrite,
    UnknownOperation,
    Update,
    UpdateBases,
    UpdateConfig,
    UpdateMemWalState,
)
from lancelet.table.conflict import pairs
from lancelet.table.conflict.verdict import COMPATIBLE, Verdict, incompatible, retry

Kind: TypeAlias = type[Operation]
Rule: TypeAlias = Verdict | Callable[..., Verdict]

KINDS: Final[tuple[Kind, ...]] = (
    Append,
    Delete,
    Update,
    Rewrite,
    Merge,
    Project,
    DataReplacement,
    CreateIndex,
    Overwrite,
    Restore,
    UpdateConfig,
    ReserveFragments,
    UpdateBases,
    UpdateMemWalState,
    Clone,
    AddOverlays,
    UnknownOperation,
)

_OK: Final = COMPATIBLE
_REDO: Final = retry("their change to the schema or to all fragments came first")
_REPLACED: Final = incompatible("their commit replaced the rows that this one was computed from")
_SCHEMA: Final = incompatible("two changes to the schema cannot be combined")
_WAL: Final = incompatible("merging shards cannot be combined with other changes to rows")
_UNKNOWN: Final = incompatible("an operation unknown to this release was committed")

_RULES_BY_OURS: Final[dict[Kind, dict[Kind, Rule]]] = {
    Append: {
        Append: _OK,
        Delete: _OK,
        Update: _OK,
        Rewrite: _OK,
        Merge: pairs.append_and_merge,
        Project: pairs.check_nullability,
        DataReplacement: _OK,
        CreateIndex: _OK,
        Overwrite: _REPLACED,
        Restore: _REPLACED,
        UpdateConfig: _OK,
        UpdateMemWalState: _WAL,
        AddOverlays: _OK,
    },
    Delete: {
        Append: _OK,
        Delete: pairs.rows_and_rows,
        Update: pairs.rows_and_rows,
        Rewrite: pairs.same_fragments,
        Merge: _REDO,
        Project: _OK,
        DataReplacement: pairs.same_fragments,
        CreateIndex: _OK,
        Overwrite: _REPLACED,
        Restore: _REPLACED,
        UpdateConfig: _OK,
        UpdateMemWalState: _WAL,
        AddOverlays: pairs.same_fragments,
    },
    Update: {
        Append: pairs.update_and_append,
        Delete: pairs.rows_and_rows,
        Update: pairs.update_and_update,
        Rewrite: pairs.same_fragments,
        Merge: _REDO,
        Project: pairs.check_nullability,
        DataReplacement: pairs.same_fragments,
        CreateIndex: _OK,
        Overwrite: _REPLACED,
        Restore: _REPLACED,
        UpdateConfig: _OK,
        UpdateMemWalState: pairs.older_generations,
        AddOverlays: pairs.same_fragments,
    },
    Rewrite: {
        Append: _OK,
        Delete: pairs.rewrite_and_rows,
        Update: pairs.rewrite_and_rows,
        Rewrite: pairs.same_fragments,
        Merge: _REDO,
        Project: _OK,
        DataReplacement: pairs.same_fragments,
        CreateIndex: pairs.rewrite_and_index,
        Overwrite: _REPLACED,
        Restore: _REPLACED,
        UpdateConfig: _OK,
        UpdateMemWalState: _OK,
        AddOverlays: pairs.same_fragments,
    },
    Merge: {
        Append: _REDO,
        Delete: _REDO,
        Update: _REDO,
        Rewrite: _REDO,
        Merge: _REDO,
        Project: _SCHEMA,
        DataReplacement: _REDO,
        CreateIndex: _OK,
        Overwrite: _REPLACED,
        Restore: _REPLACED,
        UpdateConfig: pairs.schema_metadata_changed,
        UpdateMemWalState: _WAL,
        AddOverlays: _REDO,
    },
    Project: {
        Append: pairs.check_nullability,
        Delete: _OK,
        Update: pairs.check_nullability,
        Rewrite: _OK,
        Merge: _REDO,
        Project: _REDO,
        DataReplacement: pairs.check_nullability,
        CreateIndex: _OK,
        Overwrite: _REPLACED,
        Restore: _REPLACED,
        UpdateConfig: pairs.schema_metadata_changed,
        UpdateMemWalState: _WAL,
        AddOverlays: pairs.check_nullability,
    },
    DataReplacement: {
        Append: _OK,
        Delete: pairs.replaced_fragment_removed,
        Update: pairs.replacement_and_update,
        Rewrite: pairs.same_fragments,
        Merge: _REDO,
        Project: pairs.replacement_and_project,
        DataReplacement: pairs.same_replacement,
        CreateIndex: pairs.replacement_and_index,
        Overwrite: _REPLACED,
        Restore: _REPLACED,
        UpdateConfig: _OK,
        UpdateMemWalState: _WAL,
        AddOverlays: pairs.same_fragments,
    },
    CreateIndex: {
        Append: _OK,
        Delete: _OK,
        Update: pairs.index_and_update,
        Rewrite: pairs.index_and_rewrite,
        Merge: pairs.index_and_schema,
        Project: pairs.index_and_schema,
        DataReplacement: pairs.index_and_replacement,
        CreateIndex: pairs.same_index,
        Overwrite: _REPLACED,
        Restore: _REPLACED,
        UpdateConfig: _OK,
        UpdateMemWalState: pairs.index_and_mem_wal,
        AddOverlays: _OK,
    },
    Overwrite: {
        **dict.fromkeys(KINDS, _OK),
        Overwrite: retry("another commit replaced all rows first"),
        UpdateMemWalState: _WAL,
    },
    Restore: {
        **dict.fromkeys(KINDS, _OK),
        UpdateConfig: pairs.schema_metadata_lost,
        UpdateMemWalState: _WAL,
    },
    UpdateConfig: {
        **dict.fromkeys(KINDS, _OK),
        Merge: pairs.schema_metadata_changed,
        Overwrite: pairs.schema_metadata_lost,
        Restore: pairs.schema_metadata_lost,
        UpdateConfig: pairs.same_keys,
    },
    ReserveFragments: {**dict.fromkeys(KINDS, _OK), Overwrite: _REPLACED, Restore: _REPLACED},
    UpdateBases: {**dict.fromkeys(KINDS, _OK), UpdateBases: pairs.same_bases},
    UpdateMemWalState: {
        **dict.fromkeys(KINDS, _WAL),
        Update: pairs.older_generations,
        Rewrite: _OK,
        CreateIndex: pairs.index_and_mem_wal,
        UpdateConfig: _OK,
        ReserveFragments: _OK,
        UpdateBases: _OK,
        UpdateMemWalState: pairs.older_generations,
    },
    Clone: dict.fromkeys(KINDS, _OK),
    AddOverlays: {
        **dict.fromkeys(KINDS, _OK),
        Rewrite: pairs.same_fragments,
        Delete: pairs.replaced_fragment_removed,
        Update: pairs.same_fragments,
        DataReplacement: pairs.same_fragments,
        Merge: _REDO,
        Project: pairs.check_nullability,
        Overwrite: _REPLACED,
        Restore: _REPLACED,
        UpdateMemWalState: _WAL,
    },
    UnknownOperation: dict.fromkeys(KINDS, _UNKNOWN),
}

_COMMON_RULES: Final[dict[Kind, Rule]] = {
    ReserveFragments: _OK,
    UpdateBases: _OK,
    Clone: _OK,
    UnknownOperation: _UNKNOWN,
}
"""Rules shared by most operations: against operations that change no rows, and unknown ones."""

RULES: Final[dict[tuple[Kind, Kind], Rule]] = {
    (ours, theirs): rule
    for ours, row in _RULES_BY_OURS.items()
    for theirs, rule in {**_COMMON_RULES, **row}.items()
} | {(ours, UnknownOperation): _UNKNOWN for ours in KINDS}


def judge(ours: Operation, theirs: Operation) -> Verdict:
    """Return whether `ours` may be committed after `theirs`."""
    rule = RULES[type(ours), type(theirs)]
    return rule if isinstance(rule, Verdict) else rule(ours, theirs)
