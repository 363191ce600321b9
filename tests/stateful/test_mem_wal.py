"""After any sequence of operations, reads of a shard and its table match the model.

The model knows each column by an identity of its own, and of each key the values that were put
last under the columns that its writer knew. Rows are put and deleted, flushed, merged, collected;
columns are added, dropped, renamed; writers are closed, left alone or replaced by the reference's.
"""

import itertools
import shutil
import tempfile
import uuid

import lance
import lance.mem_wal
import pyarrow as pa
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import lancelet
import lancelet.mem_wal
from lancelet.errors import CommitError

KEY = pa.field("id", pa.int64(), False, {"lance-schema:unenforced-primary-key": "true"})
SHARD = str(uuid.UUID(int=7))
NAMES = ("a", "b", "c")
KEYS = st.lists(st.integers(0, 7), min_size=1, max_size=4)
WITHOUT_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)


class ShardMachine(RuleBasedStateMachine):
    """A table with one shard; writers are of the libraries in `writers`."""

    writers = (lancelet,)

    @initialize()
    def begin(self):
        self.folder = tempfile.mkdtemp()
        self.uri = f"{self.folder}/t"
        self.fresh = itertools.count(1)
        self.left = []
        self.columns = {0: "a"}
        self.rows = {key: {0: key} for key in (1, 2, 9)}
        schema = pa.schema([KEY, ("a", pa.int64())])
        dataset = lancelet.write_dataset(
            pa.table({"id": [1, 2, 9], "a": [1, 2, 9]}, schema), self.uri
        )
        dataset.initialize_mem_wal(unsharded=True)
        self.open(lancelet)

    def open(self, module):
        self.writer = module.dataset(self.uri).mem_wal_writer(SHARD)
        self.known = dict(self.columns)

    @rule(keys=KEYS)
    def put(self, keys):
        number = next(self.fresh)
        values = {"id": pa.array(keys, pa.int64())}
        for identity, name in self.known.items():
            values[name] = pa.array([1000 * number + identity] * len(keys), pa.int64())
        self.writer.put(pa.table(values))
        for key in keys:
            self.rows[key] = {each: 1000 * number + each for each in self.known}

    @rule(keys=KEYS)
    def delete(self, keys):
        self.writer.delete(pa.table({"id": pa.array(keys, pa.int64())}))
        for key in keys:
            self.rows.pop(key, None)

    @precondition(lambda self: len(self.columns) < len(NAMES))
    @rule(data=st.data())
    def add(self, data):
        name = data.draw(
            st.sampled_from([each for each in NAMES if each not in self.columns.values()])
        )
        lancelet.dataset(self.uri).add_columns(pa.schema([(name, pa.int64())]))
        self.columns[next(self.fresh)] = name

    @precondition(lambda self: self.columns)
    @rule(data=st.data())
    def drop(self, data):
        identity = data.draw(st.sampled_from(sorted(self.columns)))
        lancelet.dataset(self.uri).drop_columns([self.columns.pop(identity)])

    @precondition(lambda self: 0 < len(self.columns) < len(NAMES))
    @rule(data=st.data())
    def rename(self, data):
        identity = data.draw(st.sampled_from(sorted(self.columns)))
        name = data.draw(
            st.sampled_from([each for each in NAMES if each not in self.columns.values()])
        )
        lancelet.dataset(self.uri).alter_columns({"path": self.columns[identity], "name": name})
        self.columns[identity] = name

    @rule(data=st.data())
    def replace(self, data):
        """Another writer comes, and the one before finds out."""
        before, known = self.writer, self.known
        self.open(data.draw(st.sampled_from(self.writers)))
        with pytest.raises((CommitError, OSError)):
            before.put(pa.table({"id": [5], **{name: [0] for name in known.values()}}))
        self.left.append(before)

    @rule(data=st.data())
    def flush(self, data):
        self.writer.close()
        self.check_flushed()
        self.open(data.draw(st.sampled_from(self.writers)))

    @rule()
    def merge(self):
        """Merge what is flushed; the writer goes on, and late merges of the same are refused."""
        dataset = lancelet.dataset(self.uri)
        done = dataset.compact_mem_wal()
        if done.sstables:
            last = max(g for each in dataset.mem_wal_shards() for g in each.tables.sstables)
            mark = lancelet.mem_wal.CompactedSsTable(SHARD, last)
            stale = dataset.merge_insert("id").when_matched_update_all()
            with pytest.raises(CommitError):
                stale.mark_sstables_as_compacted([mark]).execute(
                    pa.table({"id": [1], **{name: [-1] for name in self.columns.values()}})
                )
        assert dataset.compact_mem_wal().sstables == 0

    @rule(data=st.data())
    def collect(self, data):
        self.writer.close()
        dataset = lancelet.dataset(self.uri)
        dataset.compact_mem_wal()
        if data.draw(st.booleans()):
            dataset.cleanup_old_versions(retain_versions=1)
        dataset.collect_mem_wal()
        self.check_flushed()
        self.open(data.draw(st.sampled_from(self.writers)))

    @rule()
    def note(self):
        lancelet.dataset(self.uri).note_mem_wal_shards()

    @invariant()
    def rows_are_those_of_the_model(self):
        if not hasattr(self, "writer"):
            return
        found = self.writer.lsm_scanner().to_table().to_pylist()
        assert self.seen(found, self.known) == self.model(self.known)

    def check_flushed(self):
        for module in (lancelet, lance):
            dataset = module.dataset(self.uri)
            shards = []
            for each in lancelet.dataset(self.uri).mem_wal_shards():
                shard = module.mem_wal.ShardSnapshot(SHARD)
                for generation, path in each.tables.sstables.items():
                    shard = shard.with_sstable(generation, path)
                shards.append(shard.with_current_generation(each.tables.current_generation))
            found = module.mem_wal.LsmScanner.from_snapshots(dataset, shards).to_table().to_pylist()
            assert self.seen(found, self.columns) == self.model(self.columns)

    def seen(self, rows, columns):
        found = {row["id"]: {each: row[name] for each, name in columns.items()} for row in rows}
        assert len(found) == len(rows)
        return found

    def model(self, columns):
        return {key: {each: row.get(each) for each in columns} for key, row in self.rows.items()}

    def teardown(self):
        if hasattr(self, "writer"):
            self.writer.close()
            self.check_flushed()
            lancelet.dataset(self.uri).compact_mem_wal()
            found = lancelet.dataset(self.uri).to_table().to_pylist()
            assert self.seen(found, self.columns) == self.model(self.columns)
            # Writers of the reference that were left alone may still be at work there.
            shutil.rmtree(self.folder, ignore_errors=True)


class BothWrite(ShardMachine):
    """The reference writes the shard half of the time."""

    writers = (lancelet, lance)


@pytest.mark.parametrize(("machine", "examples"), [(ShardMachine, 8), (BothWrite, 6)])
def test_any_life_of_a_shard_and_its_table_matches_the_model(machine, examples):
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=12, phases=WITHOUT_SHRINKING, deadline=None
        ),
    )
