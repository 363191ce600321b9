"""Batches of a stream whose rows replace those with the same key.

    files of the tasks     id 7, 9, 12               written before the commit
    table                  id 7 at 40, id 9 at 44
    version                40 and 44 deleted, the files added

The commit reads only keys: of the files, and of the table, where zones and indices are used. Keys
that exceed the memory limit are stored in temporary files.
"""

from __future__ import annotations

from contextlib import closing
from typing import Final

import numpy as np

from lancelet.change.delete import write_deletions
from lancelet.change.merge.execute import keys_are_new
from lancelet.change.merge.join import join
from lancelet.change.merge.key_columns import KeyColumns
from lancelet.change.merge.key_filters import InsertedKeys
from lancelet.change.merge.key_index import Keys
from lancelet.change.merge.key_passes import KeyPasses
from lancelet.change.merge.prepared_source import KeyRanges
from lancelet.change.merge.spec import MergeSpec
from lancelet.change.moved_rows import rows_by_fragment
from lancelet.change.publish import CommitProperties, Retries, publish, with_retries
from lancelet.encodings.take import filter_batch
from lancelet.format.operation import Update, UpdateMode
from lancelet.spark.staged import StagedRows
from lancelet.table.commit import CommitOptions
from lancelet.table.snapshot import Snapshot
from lancelet.values import replace

UPSERT_RETRIES: Final = Retries(max_retries=20, seconds=300.0)


def upsert_fragments(
    snapshot: Snapshot,
    staged: StagedRows,
    committing: CommitOptions,
    properties: CommitProperties,
) -> bool:
    """Add fragments, and delete the rows with the same keys, in one version.

    Returns False, without a commit, if the rows need values of the table, or if several rows of the
    table have the same key.
    """
    key = KeyColumns.of(snapshot.schema, staged.on)
    ranges = KeyRanges(key)
    with closing(KeyPasses(MergeSpec(on=staged.on).memory_limit)) as keys:
        for batch in staged.keys(snapshot, key):
            columns = key.of_rows(batch)
            keys.add(Keys.of(columns, with_span=True))
            ranges.add(columns)
        steps = ranges.steps()

        def attempt(current: Snapshot) -> bool:
            if not staged.has_all_values(current):
                return False
            joined = join(current, key, keys, steps)
            if len(joined.repeated):
                raise staged.repeated_keys_error(len(joined.repeated))
            matched = joined.matches.rows
            if (matched[1:] == matched[:-1]).any():
                return False
            inserted = np.ones(keys.num_rows, np.bool_)
            inserted[matched] = False
            added = InsertedKeys(key)
            start = 0
            for batch in staged.keys(current, key):
                added.add(filter_batch(batch, inserted[start : start + batch.num_rows]))
                start += batch.num_rows
            affected = rows_by_fragment(joined.matches.addresses)
            removal = write_deletions(current, affected)
            operation = Update(
                removed_fragment_ids=removal.removed,
                updated_fragments=removal.updated,
                new_fragments=staged.fragments,
                fields_for_preserving_bitmap=tuple(int(each.id) for each in staged.schema.walk()),
                mode=UpdateMode.REWRITE_ROWS,
                inserted_rows=added.filter(),
            )
            check = keys_are_new(current, key, keys, steps, inserted)
            options = replace(committing, affected=affected, keys_are_new=check)
            publish(current, operation, options, properties)
            return True

        return with_retries(snapshot, attempt, UPSERT_RETRIES)
