"""From which version on row ids are stable, in a table that was made without.

    fragments   ids 0..3, ids (7 << 32)..(7 << 32) + 2
    after       flagged as stable, and the next id is (7 << 32) + 2

What recorded where rows moved goes, since ids need no translation any more.
"""

from __future__ import annotations

from collections.abc import Iterable

from lancelet.errors import InvalidInputError
from lancelet.format.flags import Feature
from lancelet.format.fragment import Fragment, Inline
from lancelet.format.index_metadata import FRAGMENT_REUSE_INDEX
from lancelet.rowids.sequence import RowIdSequence
from lancelet.table.apply.state import State
from lancelet.values import replace


def with_active_row_ids(state: State, fragments: Iterable[Fragment]) -> State:
    """Return the state of a table whose fragments bring a row id for each of their rows."""
    manifest = state.manifest
    following = max((_following(fragment) for fragment in fragments), default=0)
    flag = int(Feature.STABLE_ROW_IDS)
    return replace(
        state,
        manifest=replace(
            manifest,
            reader_flags=manifest.reader_flags | flag,
            writer_flags=manifest.writer_flags | flag,
            next_row_id=max(manifest.next_row_id, following),
        ),
        indices=tuple(index for index in state.indices if index.name != FRAGMENT_REUSE_INDEX),
    )


def _following(fragment: Fragment) -> int:
    """Return the first id after those of a fragment."""
    if not isinstance(fragment.row_ids, Inline):
        raise InvalidInputError(
            "row ids become stable only if every fragment brings them", fragment_id=fragment.id
        )
    ids = RowIdSequence.parse(fragment.row_ids.data, expected_rows=fragment.physical_rows)
    return max(
        (int(segment.to_array().max()) + 1 for segment in ids.segments if len(segment)), default=0
    )
