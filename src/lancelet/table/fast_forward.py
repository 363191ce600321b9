r"""Fast-forward a parent branch to the latest version of a branch.

    main      1 - 2                        main      1 - 2 - 3'     content of version 5
                  \                                      \
    trial          2 - 3 - 4 - 5           trial           2 - 3 - 4 - 5

All changes of the branch become one version of the parent, which must not have newer versions.
Files of the branch are copied, so the branch can be deleted afterwards. Row versions that exceed
the new version of the parent are set to it, and so is the record of computed columns.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lancelet import surroundings
from lancelet.errors import AlreadyExistsError, CommitConflictError
from lancelet.format.base_paths import BasePath
from lancelet.format.fragment import Fragment, Inline, StoredSequence
from lancelet.format.fragment_list import FragmentList
from lancelet.format.operation import Overwrite
from lancelet.format.transaction import Transaction
from lancelet.rowids.versions import VersionSequence
from lancelet.table.apply.state import State
from lancelet.table.clone import copy_files, with_bases
from lancelet.table.commit import publish_first
from lancelet.table.computed_columns import entries_after_limit
from lancelet.table.location import TableLocation
from lancelet.table.refs import branch_location, get_branch
from lancelet.table.snapshot import Snapshot, open_snapshot
from lancelet.values import replace


def fast_forward(main: TableLocation, name: str) -> Snapshot:
    """Publish the latest version of a branch as the next version of its parent.

    Raises:
        CommitConflictError: The parent has newer versions than the start of the branch.
    """
    branch = get_branch(main, name)
    parent = open_snapshot(branch_location(main, branch.parent_branch))
    source = open_snapshot(branch_location(main, name))
    parent.check_changeable()
    source.check_changeable()
    if parent.version != branch.parent_version:
        raise _diverged_error(parent, name, branch.parent_version)
    if source.version == branch.parent_version:
        return parent
    copy_files(source, parent.location, own_only=True)
    operation = Overwrite(tuple(source.fragments), source.schema)
    transaction = Transaction(parent.version, str(surroundings.new_uuid()), operation)
    state = _relocated_state(source, parent)
    try:
        naming = parent.entry.naming
        return publish_first(parent.location, transaction, state, naming, base=parent)
    except AlreadyExistsError as error:
        raise _diverged_error(parent, name, branch.parent_version) from error


def _relocated_state(source: Snapshot, parent: Snapshot) -> State:
    """Return the state of the branch with files and bases relative to the parent."""
    version, root = parent.version + 1, parent.location.store.uri
    location = source.location
    parent_base_ids = {
        base.id
        for base in source.manifest.base_paths
        if base.is_dataset_root and location.base_store(base).uri == root
    }
    bases: Mapping[int, BasePath] = {
        **parent.manifest.bases,
        **{key: base for key, base in source.manifest.bases.items() if key not in parent_base_ids},
    }
    config: dict[str, str | None] = {
        **source.manifest.config,
        **entries_after_limit(source, version),
    }
    manifest = replace(
        source.manifest,
        version=version,
        config={key: value for key, value in config.items() if value is not None},
        branch=parent.manifest.branch,
        base_paths=tuple(bases.values()),
        tag="",
        version_aux_data=0,
    )
    state = with_bases(
        source,
        State(manifest, source.indices.indices),
        lambda base_id: None if base_id in parent_base_ids else base_id,
    )
    fragments = FragmentList.of(_limit_versions(version, each) for each in state.manifest.fragments)
    indices = tuple(
        replace(index, dataset_version=min(index.dataset_version, version))
        for index in state.indices
    )
    return State(replace(state.manifest, fragments=fragments).with_flags(), indices)


def _limit_versions(version: int, fragment: Fragment) -> Fragment:
    return replace(
        fragment,
        created_at_versions=_limit_sequence(version, fragment.created_at_versions),
        last_updated_at_versions=_limit_sequence(version, fragment.last_updated_at_versions),
    )


def _limit_sequence(version: int, stored: StoredSequence | None) -> StoredSequence | None:
    if not isinstance(stored, Inline):
        return stored
    sequence = VersionSequence.parse(stored.data)
    versions = np.minimum(sequence.versions, np.uint64(version))
    return Inline(VersionSequence(sequence.lengths, versions).render())


def _diverged_error(parent: Snapshot, name: str, start_version: int) -> CommitConflictError:
    return CommitConflictError(
        "the parent of the branch has newer versions and cannot be fast-forwarded",
        branch=name,
        parent=parent.manifest.branch or "main",
        started_from=start_version,
        latest=parent.version,
        retryable=False,
    )
