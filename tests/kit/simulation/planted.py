"""Reintroduced defects: the histories of some seed must detect each of them.

    with planted("nothing is recorded before manifests are deleted"):
        run(Scenario.of(seed)).violation        is not None

These tests fail if a change makes the judge miss a defect.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from unittest import mock

import numpy as np

from lancelet.errors import CommitConflictError, CommitOutcomeUnknownError
from lancelet.format.shard_manifest import ShardManifest
from lancelet.io import unfinished
from lancelet.memwal import upkeep
from lancelet.memwal.shard import Shard, list_shards
from lancelet.table import commit, refs
from lancelet.table.apply import dispatch, overwrite, rows
from lancelet.table.conflict import resolve
from lancelet.table.conflict.rebase import Rebased
from lancelet.table.conflict.verdict import COMPATIBLE
from lancelet.table.manifests import VersionFolder
from lancelet.table.watermark import BatchWatermark
from lancelet.upkeep.cleanup import mentions, plan, run
from lancelet.values import replace

Plant = Callable[[], Any]
"""Returns a context that reintroduces a defect."""


def _with(owner: ModuleType | type, name: str, other: object) -> Plant:
    return lambda: mock.patch.object(owner, name, other)


@contextmanager
def _both(*plants: Plant) -> Iterator[None]:
    if not plants:
        yield
        return
    with plants[0](), _both(*plants[1:]):
        yield


def _nothing(*_: object, **__: object) -> None:
    """Do nothing."""


def _listed(published: Any, *_: Any) -> VersionFolder:
    """Accept every manifest."""
    return VersionFolder.of(published.location.store)


def _checked_once(published: Any, base: Any, handler: Any) -> VersionFolder | None:
    """Check whether the manifest exists, as before versions were recorded."""
    del base, handler
    return _listed(published) if published.exists() else None


@contextmanager
def _referring_without_a_hold(location: Any, version: int) -> Iterator[Any]:
    yield location.handler.find_version(location.store, version, uri=location.uri)


def _unknown_is_conflict(*args: Any) -> Any:
    try:
        return _COMMIT(*args)
    except CommitOutcomeUnknownError as error:
        raise CommitConflictError("refused", retryable=True) from error


def _no_fence(shard: Shard, manifest: ShardManifest) -> int:
    del shard
    return max(manifest.last_seen, manifest.replay_after)


def _all_entries(shard: Shard, manifest: ShardManifest) -> int:
    """Delete the entries of a log, including those not in any table."""
    del manifest
    found = [info.path for info in shard.store.list("wal")]
    for path in found:
        shard.store.delete(path)
    return len(found)


def _claimed(temporary: str, native: str, *, is_taken_over: bool) -> None:
    """Claim a name with an empty file that is replaced later; readers may see the empty file."""
    drive: Any = vars(unfinished)["os"]
    handle = drive.open(native, drive.O_CREAT | (0 if is_taken_over else drive.O_EXCL), 0o666)
    try:
        drive.flock(handle, drive.LOCK_EX)
        claim = drive.fstat(handle)
        if claim.st_size or not drive.path.samestat(claim, drive.stat(native)):
            raise FileExistsError(errno.EEXIST, "the name exists", native)
        drive.replace(temporary, native)
    except BlockingIOError as error:
        raise FileExistsError(errno.EEXIST, "the name is claimed", native) from error
    finally:
        drive.close(handle)


def _restored_with_its_counter(operation: Any, state: Any, context: Any) -> Any:
    restored = _APPLY_RESTORE(operation, state, context)
    number = context.restored.manifest.next_row_id
    return replace(restored, manifest=replace(restored.manifest, next_row_id=number))


_COMMIT: Final = commit._commit
_APPLY_RESTORE: Final = overwrite.apply_restore


PLANTED: Final[Mapping[str, Plant]] = {
    "a lost reply is treated as a failure": lambda: _both(
        _with(commit, "_load_if_ours", _nothing),
        _with(resolve.Resolver, "add_pending", _nothing),
        _with(resolve.Resolver, "_if_ours", _nothing),
    ),
    "a commit checks only that its manifest exists": _with(
        commit, "confirm_version", _checked_once
    ),
    "a cleanup does not check tags and holds again": _with(run, "referred_since", lambda _: set()),
    "a cleanup ignores tags": _with(plan, "_branch_tags", lambda *_: {}),
    "a commit does not check whether it was late": _with(commit, "confirm_version", _listed),
    "a cleanup ignores holds": _with(plan, "held_versions", lambda _: set()),
    "tags and branches are created without a hold": lambda: _both(
        _with(refs, "hold_version", _referring_without_a_hold),
        _with(commit, "hold_version", _referring_without_a_hold),
    ),
    "a cleanup ignores newer versions": _with(
        run, "mentioned_since", lambda *_: mentions.Mentions()
    ),
    "a cleanup deletes the files of active writers": _with(plan, "UNVERIFIED_AGE", timedelta(0)),
    "an unknown outcome is reported as a conflict": _with(commit, "_commit", _unknown_is_conflict),
    "concurrent deletions are not merged": _with(
        resolve, "rebase_rows", lambda ours, *_: Rebased(ours, {})
    ),
    "no operations conflict": _with(resolve, "judge", lambda *_: COMPATIBLE),
    "a shard is claimed without a fence in its log": _with(Shard, "_write_fence", _no_fence),
    "a log is not replayed": _with(Shard, "entries", lambda *_: iter(())),
    "log entries are collected before they are flushed": _with(
        upkeep, "_delete_entries", _all_entries
    ),
    "flushed tables are collected before they are merged": _with(
        upkeep,
        "_compacted_everywhere",
        lambda snapshot: dict.fromkeys(list_shards(snapshot.location), 1 << 40),
    ),
    "row ids are given again after a restore": _with(
        dispatch, "apply_restore", _restored_with_its_counter
    ),
    "a compaction undoes deletions": _with(
        resolve, "_removed_since", lambda *_: np.empty(0, np.uint64)
    ),
    "a compaction undoes rewritten columns": _with(resolve, "file_layout", lambda _: ()),
    "a batch of a stream is not compared with the table": _with(
        BatchWatermark, "is_reached", lambda *_: False
    ),
    "rows that change in place keep their version": _with(
        rows, "_with_updated_versions", lambda fragment, *_: fragment
    ),
    "an empty claim is never replaced": _with(
        unfinished, "_rename_if_absent", partial(_claimed, is_taken_over=False)
    ),
    "names are claimed by empty files": _with(
        unfinished, "_rename_if_absent", partial(_claimed, is_taken_over=True)
    ),
}

_SEEDS: Final = Path(__file__).with_name("seeds.json")

SEEDS: Final[Mapping[str, int]] = json.loads(_SEEDS.read_text())
"""A seed that detects each defect; `make seeds` finds new ones after a change of the requests."""

_FIRST_SEED: Final = 60_000
"""The first seed that is tried for a new defect."""

_TRIES: Final = 500
"""The number of seeds tried for a defect whose seed no longer detects it."""


def find_seeds(names: Iterable[str], detects: Callable[[str, int], bool]) -> dict[str, int]:
    """Return the first seed for each name, from the current one on, that detects the defect."""
    found = {}
    for name in names:
        first = SEEDS.get(name, _FIRST_SEED)
        seeds = (seed for seed in range(first, first + _TRIES) if detects(name, seed))
        found[name] = next(seeds, first)
    return found


def keep_seeds(seeds: Mapping[str, int]) -> None:
    """Store seeds."""
    _SEEDS.write_text(json.dumps(seeds, indent=2) + "\n")


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Reintroduce a defect within a context."""
    with PLANTED[name]():
        yield
