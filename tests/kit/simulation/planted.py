"""Mends of the product taken back: each must be found by the histories of some seed.

    with planted("nothing is recorded before manifests are deleted"):
        run(Scenario.of(seed)).violation        is not None

Whoever weakens what judges histories sees here that something is no longer found.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from types import ModuleType
from typing import Any, Final
from unittest import mock

from lancelet.errors import CommitConflictError, CommitOutcomeUnknownError
from lancelet.format.shard_manifest import ShardManifest
from lancelet.io import unfinished
from lancelet.memwal import upkeep
from lancelet.memwal.shard import Shard, list_shards
from lancelet.table import commit, refs
from lancelet.table.conflict import resolve
from lancelet.table.conflict.rebase import Rebased
from lancelet.table.conflict.verdict import COMPATIBLE
from lancelet.table.manifests import VersionFolder
from lancelet.upkeep.cleanup import mentions, plan, run

Plant = Callable[[], Any]
"""Returns a context in which a mend is taken back."""


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
    """Accept every manifest that was put."""
    return VersionFolder.of(published.location.store)


def _looked_up_once(published: Any, base: Any, handler: Any) -> VersionFolder | None:
    """Judge by whether the manifest is there, as before records were kept."""
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
    """Delete the entries of a log, also those that no table has."""
    del manifest
    found = [info.path for info in shard.store.list("wal")]
    for path in found:
        shard.store.delete(path)
    return len(found)


def _claimed(temporary: str, native: str, *, is_taken_over: bool) -> None:
    """Claim a name by an empty file, which is replaced; whoever looks meanwhile finds it."""
    drive: Any = vars(unfinished)["os"]
    handle = drive.open(native, drive.O_CREAT | (0 if is_taken_over else drive.O_EXCL), 0o666)
    try:
        drive.flock(handle, drive.LOCK_EX)
        claim = drive.fstat(handle)
        if claim.st_size or not drive.path.samestat(claim, drive.stat(native)):
            raise FileExistsError(errno.EEXIST, "somebody has the name", native)
        drive.replace(temporary, native)
    except BlockingIOError as error:
        raise FileExistsError(errno.EEXIST, "somebody claims the name", native) from error
    finally:
        drive.close(handle)


_COMMIT: Final = commit._commit


PLANTED: Final[Mapping[str, Plant]] = {
    "a lost reply is taken for a failure": lambda: _both(
        _with(commit, "_load_if_ours", _nothing),
        _with(resolve.Resolver, "add_pending", _nothing),
        _with(resolve.Resolver, "_if_ours", _nothing),
    ),
    "a commit looks only whether its manifest is there": _with(
        commit, "confirm_version", _looked_up_once
    ),
    "a cleanup does not look again at tags and holds": _with(
        run, "referred_since", lambda _: set()
    ),
    "a cleanup does not look at tags": _with(plan, "_branch_tags", lambda *_: {}),
    "a commit does not look whether it came too late": _with(commit, "confirm_version", _listed),
    "a cleanup does not look at holds": _with(plan, "held_versions", lambda _: set()),
    "who refers to a version does not hold it": lambda: _both(
        _with(refs, "hold_version", _referring_without_a_hold),
        _with(commit, "hold_version", _referring_without_a_hold),
    ),
    "a cleanup does not look at versions that came since": _with(
        run, "mentioned_since", lambda *_: mentions.Mentions()
    ),
    "a cleanup takes the files of writers for garbage": _with(plan, "UNVERIFIED_AGE", timedelta(0)),
    "what nobody knows is told as a conflict": _with(commit, "_commit", _unknown_is_conflict),
    "deletions by others are not joined": _with(
        resolve, "rebase_rows", lambda ours, *_: Rebased(ours, {})
    ),
    "nothing conflicts": _with(resolve, "judge", lambda *_: COMPATIBLE),
    "who claims a shard leaves no fence in its log": _with(Shard, "_mark", _no_fence),
    "a log is not replayed": _with(Shard, "entries", lambda *_: iter(())),
    "entries of a log are collected before a table has them": _with(
        upkeep, "_delete_entries", _all_entries
    ),
    "flushed tables are collected before they are merged": _with(
        upkeep,
        "_compacted_everywhere",
        lambda snapshot: dict.fromkeys(list_shards(snapshot.location), 1 << 40),
    ),
    "an empty claim is not taken over": _with(
        unfinished, "_rename_if_absent", partial(_claimed, is_taken_over=False)
    ),
    "names are claimed by empty files": _with(
        unfinished, "_rename_if_absent", partial(_claimed, is_taken_over=True)
    ),
}

SEEDS: Final[Mapping[str, int]] = {
    "a lost reply is taken for a failure": 10,
    "a commit looks only whether its manifest is there": 1,
    "a cleanup does not look again at tags and holds": 101,
    "a cleanup does not look at tags": 7,
    "a commit does not look whether it came too late": 87,
    "who refers to a version does not hold it": 1142,
    "a cleanup does not look at holds": 651,
    "a cleanup does not look at versions that came since": 73,
    "a cleanup takes the files of writers for garbage": 1,
    "what nobody knows is told as a conflict": 1081,
    "deletions by others are not joined": 1,
    "nothing conflicts": 1,
    "who claims a shard leaves no fence in its log": 667,
    "a log is not replayed": 2,
    "entries of a log are collected before a table has them": 6,
    "flushed tables are collected before they are merged": 97,
    "an empty claim is not taken over": 20007,
    "names are claimed by empty files": 20019,
}
"""For each a seed that finds it."""


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Take a mend back for a while."""
    with PLANTED[name]():
        yield
