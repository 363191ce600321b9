"""Restore: an older version becomes the latest, under a new number.

Schema, rows, config and index segments are those of the old version. Counters never go back, or a
later fragment would take the name of one that newer versions still show.
"""

from __future__ import annotations

from dataclasses import replace

from lancelet.errors import InternalError
from lancelet.format.operation import Restore
from lancelet.table.apply.state import CommitContext, State


def apply_restore(operation: Restore, state: State, context: CommitContext) -> State:
    """Return the state of the version that is restored, with the counters of the latest."""
    old = context.restored
    if old is None or old.manifest.version != operation.version:
        raise InternalError("a restore needs the state it goes back to", version=operation.version)
    counters = [m.max_fragment_id for m in (old.manifest, state.manifest)]
    manifest = replace(
        old.manifest,
        max_fragment_id=max((n for n in counters if n is not None), default=None),
        next_row_id=max(old.manifest.next_row_id, state.manifest.next_row_id),
    )
    return replace(old, manifest=manifest)
