"""Goal: small scenarios are correct in every interleaving, with each request failing once.

Each search ends by itself: it is complete for its actors, and for at most one request that is
refused or whose reply is lost. What is left out differs only in the order of requests that do not
meet. Three actors have too many orders: there it is complete for those in which actors are
interrupted at most so many times. The counts of the last full run are in
`results/interleavings.json`; `test_results.py` runs the short ones again.
"""

from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest

from lancelet.memwal import writer
from lancelet.table import commit, refs, removals, watermark
from lancelet.table.manifests import VersionFolder
from lancelet.upkeep.cleanup import run
from lancelet.values import replace
from tests.kit.simulation import casts
from tests.kit.simulation.interleavings import DeadlockError, Explorer
from tests.kit.simulation.machine import SimulatedCondition
from tests.kit.simulation.planted import planted
from tests.kit.simulation.records import SimulatedRecords
from tests.kit.simulation.row_casts import RowStage
from tests.kit.simulation.shard_casts import ShardStage

FAULTS = ("refused", "lost")


@pytest.fixture(scope="module")
def stage():
    return casts.Stage.built()


@pytest.fixture(scope="module")
def shards():
    return ShardStage.built()


@pytest.fixture(scope="module")
def recorded():
    return casts.Stage.built(num_records=4)


@pytest.fixture(scope="module")
def rows():
    return {stable: RowStage.built(stable_row_ids=stable) for stable in (False, True)}


def search_rows(stage, who, fates=(), *, switches_max=None):
    return Explorer(stage.stored, stage.scene(who), fates=fates, switches_max=switches_max).run()


def search_shards(shards, who, fates=(), *, switches_max=None):
    scene = shards.scene(who)
    return Explorer(shards.stored, scene, fates=fates, switches_max=switches_max).run()


def search(stage, name, fates=(), *more, switches_max=None):
    scene = getattr(casts, name)(stage, *more)
    return Explorer(stage.stored, scene, fates=fates, switches_max=switches_max).run()


def test_a_tag_and_a_cleanup_in_every_order(stage) -> None:
    counts = search(stage, "a_tag_and_a_cleanup")
    assert counts.executions > 100
    assert counts.states > 2_000


@pytest.mark.slow
def test_two_writers_of_an_external_store_in_every_order(stage) -> None:
    counts = search(stage, "an_external_store", (), "ab")
    assert counts.executions > 50
    assert counts.states > 500


def test_a_writer_and_a_reader_of_an_external_store_with_every_fault(stage) -> None:
    counts = search(stage, "an_external_store", FAULTS, "ar")
    assert counts.executions > 50
    assert counts.states > 200


def test_a_search_finds_commits_that_ignore_records(stage, monkeypatch) -> None:
    monkeypatch.setattr(removals.Removals, "load", staticmethod(lambda *_: removals.Removals()))
    with pytest.raises((AssertionError, LookupError)) as caught:
        search(stage, "a_tag_and_a_cleanup")
    assert "_refs/tags/x.json" in caught.value.__notes__[-1]


@pytest.mark.parametrize(
    ("name", "more"), [("two_commits_and_a_cleanup", ()), ("an_external_store", ("abr",))]
)
def test_three_actors_hold_where_one_is_interrupted(stage, name, more) -> None:
    assert search(stage, name, (), *more, switches_max=1).executions > 50


def test_a_late_commit_is_found_after_records_are_joined(recorded) -> None:
    counts = search(recorded, "a_late_commit_and_joined_records", switches_max=1)
    assert counts.executions > 20


ROWS = ("de", "du", "dc", "uc", "wc", "wu", "wd", "dp", "wp", "st", "kd", "kc", "mf", "mc")


@pytest.mark.slow
@pytest.mark.parametrize("who", [*ROWS, "dec", "duc", "wdc", "stc", "dep", "wup", "kdc"])
@pytest.mark.parametrize("stable_row_ids", [False, True], ids=["addresses", "stable"])
def test_changes_of_rows_and_columns_hold_with_every_fault(rows, who, stable_row_ids) -> None:
    fates = FAULTS if len(who) == 2 else ()
    assert search_rows(rows[stable_row_ids], who, fates, switches_max=1).states > 400


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a_moved_tag_and_a_cleanup", "a_branch_and_a_cleanup"])
@pytest.mark.parametrize("fates", [(), FAULTS], ids=["none", "faults"])
def test_references_hold_in_every_order(stage, name, fates) -> None:
    assert search(stage, name, fates).states > 3_000


PLANTED_ROWS = {
    "rows that both deleted do not conflict": (
        "eu",
        np,
        "isin",
        lambda a, _: np.zeros(len(a), bool),
    ),
    "the batch of a stream is checked before the commit only": (
        "st",
        watermark.BatchWatermark,
        "is_reached",
        lambda *_: False,
    ),
}


@pytest.mark.parametrize("name", PLANTED_ROWS)
def test_a_search_of_rows_finds(rows, monkeypatch, name) -> None:
    who, owner, attribute, other = PLANTED_ROWS[name]
    monkeypatch.setattr(owner, attribute, other)
    with pytest.raises(AssertionError, match=r"after|twice"):
        search_rows(rows[False], who, switches_max=1)


def test_a_search_finds_a_batch_that_is_compared_in_the_first_attempt_only(
    rows, monkeypatch
) -> None:
    follow = commit._follow

    def following(location, resolver, options, latest):
        if resolver.num_tried > 1:
            options = replace(options, watermark=None)
        return follow(location, resolver, options, latest)

    monkeypatch.setattr(commit, "_follow", following)
    with pytest.raises(AssertionError, match="twice"):
        search_rows(rows[False], "st", switches_max=1)


def test_a_search_finds_holds_that_end_early(stage, monkeypatch) -> None:
    @contextmanager
    def ending_early(location, version):
        with removals.hold_version(location, version) as entry:
            pass
        yield entry

    monkeypatch.setattr(refs, "hold_version", ending_early)
    for name in ("a_moved_tag_and_a_cleanup", "a_branch_and_a_cleanup"):
        with pytest.raises((AssertionError, LookupError)):
            search(stage, name)


def test_a_search_finds_records_that_are_joined_too_late(monkeypatch) -> None:
    """The old records are deleted before there is a new one."""
    stage = casts.Stage.built(num_records=3)

    def joined(store, removed):
        folder = VersionFolder.of(store)
        earlier, ours = removals.Removals.load(store, folder), removals.Removals(removed)
        files = removals.filter_records(folder.dotted)
        new = frozenset(removed) - earlier.transactions.keys()
        if len(files) < removals._RECORDS_MAX:
            return removals.NewRecord(removals._put(store, ours), new)
        store.delete_many([f"_versions/{name}" for name in files])
        path = removals._put(store, removals.Removals.merged([earlier, ours]))
        return removals.NewRecord(path, new)

    monkeypatch.setattr(run, "record_removals", joined)
    with pytest.raises((AssertionError, LookupError)):
        search(stage, "a_tag_and_joined_records", switches_max=2)


@pytest.mark.slow
def test_a_tag_holds_while_records_are_joined() -> None:
    stage = casts.Stage.built(num_records=3)
    assert search(stage, "a_tag_and_joined_records", switches_max=2).executions > 500


def test_bounds_leave_out_orders_and_nothing_else(stage) -> None:
    """Without a bound, orders that come to the same are left out, and so no count is compared."""
    few, some = (
        search(stage, "an_external_store", (), "ar", switches_max=bound).executions
        for bound in (0, 1)
    )
    assert few == 2  # either goes first
    assert some > few


def test_one_interruption_finds_an_undetected_late_commit(stage) -> None:
    plant = planted("a commit does not check whether it was late")
    with plant, pytest.raises(AssertionError):
        search(stage, "a_commit_and_cleanups", switches_max=1)
    search(stage, "a_commit_and_cleanups", switches_max=1)


@pytest.mark.slow
@pytest.mark.parametrize(("who", "fates"), [("xd", FAULTS), ("xdi", ())])
def test_a_log_that_is_dropped_has_no_rows_with_every_fault(who, fates) -> None:
    assert search_shards(ShardStage.built(()), who, fates).states > 1_000


@pytest.mark.slow
def test_a_log_that_two_begin_while_it_is_dropped_has_no_rows() -> None:
    assert search_shards(ShardStage.built(()), "xyd", switches_max=1).states > 1_000


def search_threads(shards, who, fates=(), *, is_durable=True, switches_max):
    scene = shards.scene_of_threads(who, is_durable=is_durable)
    return Explorer(shards.stored, scene, fates=fates, switches_max=switches_max).run()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("who", "fates", "switches_max"),
    [("pqf", (), 1), ("pfv", (), 1), ("pq", (), 2), ("pf", FAULTS, 1), ("pq", FAULTS, 1)],
)
@pytest.mark.parametrize("is_durable", [True, False], ids=["durable", "buffered"])
def test_threads_of_a_writer_hold(shards, who, fates, switches_max, is_durable) -> None:
    counts = search_threads(shards, who, fates, is_durable=is_durable, switches_max=switches_max)
    assert counts.states > 200


def test_a_search_finds_a_turn_that_is_taken_outside_of_the_lock(shards, monkeypatch) -> None:
    def exclusively(self, work, *, skip_if=lambda: False):
        with self._lock:
            while not skip_if() and self._is_busy:
                self._lock.wait()
            if skip_if():
                return
        self._is_busy = True
        try:
            work()
        finally:
            with self._lock:
                self._is_busy = False
                self._lock.notify_all()

    monkeypatch.setattr(writer.MemWalWriter, "_exclusively", exclusively)
    with pytest.raises(AssertionError):
        search_threads(shards, "pq", switches_max=2)


def test_a_search_finds_views_of_two_moments(shards, monkeypatch) -> None:
    def view(self):
        with self._lock:
            manifest = self.manifest
        with self._lock:
            return writer.WriterView(manifest, pa.Table.from_batches(self._visible(), self._arrow))

    monkeypatch.setattr(writer.MemWalWriter, "view", view)
    with pytest.raises(AssertionError):
        search_threads(shards, "fv", switches_max=1)


def test_a_search_finds_threads_that_wait_for_each_other(shards, monkeypatch) -> None:
    monkeypatch.setattr(SimulatedCondition, "notify_all", lambda _: None)
    with pytest.raises(DeadlockError):
        search_threads(shards, "pq", switches_max=1)


def test_a_search_finds_an_unrecorded_shard(monkeypatch) -> None:
    """A drop that has listed the shards takes the log from those that begin later."""
    monkeypatch.setattr(writer, "record_shard", lambda *_: None)
    with pytest.raises(AssertionError, match="after"):
        search_shards(ShardStage.built(()), "xd")


def test_a_search_finds_a_collection_of_unmerged_tables(shards) -> None:
    plant = planted("flushed tables are collected before they are merged")
    with plant, pytest.raises(AssertionError, match="after"):
        search_shards(shards, "mc")


def test_a_search_finds_a_database_that_records_a_version_twice(stage, monkeypatch) -> None:
    monkeypatch.setattr(SimulatedRecords, "put_if_absent", SimulatedRecords.update)
    with pytest.raises(AssertionError):
        search(stage, "an_external_store", (), "ab")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("who", "fates"),
    [("ab", ()), ("fm", ()), *((who, FAULTS) for who in ("mn", "mc", "ac", "am"))],
)
def test_the_log_of_a_shard_holds_with_every_fault(shards, who, fates) -> None:
    assert search_shards(shards, who, fates).states > 1_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "fates", "more"),
    [
        ("a_tag_and_a_cleanup", FAULTS, ()),
        ("a_commit_and_cleanups", (), ()),
        ("a_restore_and_a_cleanup", (), ()),
        ("an_external_store", FAULTS, ("ab",)),
    ],
)
def test_larger_scenarios_in_every_order(stage, name, fates, more) -> None:
    assert search(stage, name, fates, *more).states > 5_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "fates", "more", "switches_max"),
    [
        ("two_commits_and_a_cleanup", (), (), 2),
        ("two_commits_and_a_cleanup", FAULTS, (), 1),
        ("an_external_store", (), ("abr",), 2),
        ("an_external_store", FAULTS, ("abr",), 1),
    ],
)
def test_three_actors_hold_where_some_are_interrupted(
    stage, name, fates, more, switches_max
) -> None:
    counts = search(stage, name, fates, *more, switches_max=switches_max)
    assert counts.states > 10_000
