"""Sharding, shuffling and resuming: every row once, reproducibly, without repeated reads."""

from __future__ import annotations

import builtins
import itertools
import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lancelet
import lancelet.arrow
import lancelet.torch
from lancelet.dataset.scan.sampling import Shard
from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.sampler import (
    FullScanSampler,
    ShardedBatchSampler,
    ShardedFixedBatchSampler,
    ShardedFragmentSampler,
    maybe_sample,
    reservoir_sampling,
)
from lancelet.torch.data import LanceDataset, SafeLanceDataset, _merge_batches
from lancelet.torch.dist import get_global_rank, get_global_world_size
from lancelet.torch.tensors import numbers_of

_counter = itertools.count()


def _table(rows: int, per_file: int = 7) -> lancelet.LanceDataset:
    data = pa.table({"id": pa.array(range(rows), pa.int64())})
    uri = f"memory://sampling-{next(_counter)}/t"
    return lancelet.write_dataset(data, uri, max_rows_per_file=per_file)


def _ids(batches) -> list[int]:
    return [number for batch in batches for number in batch["id"].to_pylist()]


_KINDS = [ShardedFragmentSampler, ShardedBatchSampler]


@settings(deadline=None, max_examples=30)
@given(
    rows=st.integers(1, 60),
    world_size=st.integers(1, 5),
    batch_size=st.integers(1, 9),
    randomize=st.booleans(),
    kind=st.sampled_from(_KINDS),
    filtered=st.booleans(),
)
def test_shards_have_every_row_once(
    rows, world_size, batch_size, randomize, kind, filtered
) -> None:
    dataset = _table(rows)
    condition = "id % 3 != 1" if filtered else None
    found = []
    for rank in range(world_size):
        sampler = kind(rank, world_size, randomize, seed=3)
        batches = list(sampler(dataset, batch_size=batch_size, filter=condition))
        assert all(batch.num_rows <= batch_size for batch in batches)
        assert _ids(sampler(dataset, batch_size=batch_size, filter=condition)) == _ids(batches)
        found += _ids(batches)
    assert sorted(found) == [i for i in range(rows) if not filtered or i % 3 != 1]


@settings(deadline=None, max_examples=30)
@given(
    skip=st.integers(0, 50),
    randomize=st.booleans(),
    kind=st.sampled_from(_KINDS),
    condition=st.sampled_from([None, "id % 3 != 1"]),
)
def test_resuming_skips_consumed_rows(skip, randomize, kind, condition) -> None:
    dataset = _table(40)
    sampler = kind(1, 2, randomize, seed=5)
    whole = _ids(sampler(dataset, batch_size=4, filter=condition))
    assert _ids(sampler(dataset, batch_size=4, filter=condition, skip_rows=skip)) == whole[skip:]


@pytest.mark.parametrize("kind", _KINDS)
def test_epochs_have_orders_of_their_own(kind) -> None:
    dataset = _table(200)
    sampler = kind(0, 1, True, seed=1)
    first = _ids(sampler(dataset, batch_size=5))
    sampler.set_epoch(1)
    second = _ids(sampler(dataset, batch_size=5))
    assert first != second
    assert sorted(first) == sorted(second)


def test_resuming_reads_no_row_again() -> None:
    dataset = _table(70)
    sampler = ShardedFragmentSampler(0, 1)
    dataset.io_stats_incremental()
    list(sampler(dataset, batch_size=7, skip_rows=63))
    rest = dataset.io_stats_incremental().read_bytes
    again = lancelet.dataset(dataset.uri)
    list(sampler(again, batch_size=7))
    assert rest < again.io_stats_incremental().read_bytes / 3


def test_row_ids_come_with_either_kind() -> None:
    dataset = _table(10, per_file=10)
    for sampler in (FullScanSampler(), ShardedBatchSampler(0, 1)):
        batches = list(sampler(dataset, batch_size=4, with_row_id=True))
        assert [number for batch in batches for number in batch["_rowid"].to_pylist()] == list(
            range(10)
        )


def test_a_shard_without_fragments_is_empty() -> None:
    assert list(ShardedFragmentSampler(4, 5)(_table(7))) == []
    with pytest.raises(InvalidInputError):
        Shard(2, 2)


@settings(deadline=None, max_examples=50)
@given(rows=st.integers(0, 100), world_size=st.integers(1, 6), batch_size=st.integers(1, 20))
def test_fixed_batches_have_every_place_once(rows, world_size, batch_size) -> None:
    found = []
    for rank in range(world_size):
        sampler = ShardedFixedBatchSampler(
            rank, world_size, batch_size=batch_size, total_num_rows=rows
        )
        batches = list(sampler)
        assert len(batches) <= len(sampler)
        found += [place for batch in batches for place in batch]
    assert found == list(range(rows))


@pytest.mark.parametrize(("n", "max_takes"), [(5, 2048), (50, 7), (50, 1), (1000, 3), (0, 4)])
@pytest.mark.parametrize("condition", [None, "id % 2 = 0"])
def test_samples_are_distinct_rows(n: int, max_takes: int, condition: str | None) -> None:
    dataset = _table(100, per_file=30)
    batches = list(maybe_sample(dataset, n, "id", 8, max_takes, condition))
    found = _ids(batches)
    assert len(found) == len(set(found)) == min(n, 50 if condition else 100)
    assert all(batch.num_rows <= 8 for batch in batches)
    if condition:
        assert all(number % 2 == 0 for number in found)


def test_a_reservoir_keeps_so_many_of_a_stream() -> None:
    assert len(set(reservoir_sampling(range(100), 10))) == 10
    assert sorted(reservoir_sampling(range(3), 10)) == [0, 1, 2]
    assert reservoir_sampling(range(3), 0) == []


# --- the classes of PyTorch, which work without it but for the tensors ---------------------------


def test_an_iterable_dataset_yields_batches_and_continues_where_it_was() -> None:
    table = _table(40)
    dataset = LanceDataset(table, 5, to_tensor_fn=None)
    assert dataset.schema.names == ["id"]
    assert _ids(dataset) == list(range(40))
    steps = iter(dataset)
    seen = _ids([next(steps), next(steps)])
    state = dataset.state_dict()
    lancelet.write_dataset(pa.table({"id": [99]}), table.uri, mode="append")
    later = LanceDataset(table.uri, 5, to_tensor_fn=None)
    later.load_state_dict(pickle.loads(pickle.dumps(state)))
    assert seen + _ids(later) == list(range(40))
    assert _ids(later) == list(range(40))


def test_processes_share_out_an_iterable_dataset() -> None:
    table = _table(40)
    for granularity in ("fragment", "batch"):
        parts = [
            LanceDataset(
                table, 3, rank=rank, world_size=3, shard_granularity=granularity, to_tensor_fn=None
            )
            for rank in range(3)
        ]
        assert sorted(number for part in parts for number in _ids(part)) == list(range(40))
    with pytest.raises(InvalidInputError):
        LanceDataset(table, 3, shard_granularity="row")


def test_samples_are_cached_on_request() -> None:
    table = _table(20)
    dataset = LanceDataset(table, 6, cache=True, to_tensor_fn=None)
    first = _ids(dataset)
    table.io_stats_incremental()
    assert _ids(dataset) == first
    assert table.io_stats_incremental().read_bytes == 0


def test_samplers_of_others_and_samples_are_used() -> None:
    table = _table(20)

    def backwards(dataset, **_options):
        return reversed(list(dataset.to_batches(batch_size=7)))

    dataset = LanceDataset(table, 7, sampler=backwards, to_tensor_fn=None)
    assert _ids(dataset)[0] == 14
    dataset.load_state_dict({"rows": 6, "version": 1})
    assert _ids(dataset)[0] == 7
    assert len(_ids(LanceDataset(table, 4, samples=9, to_tensor_fn=None))) == 9


def test_small_batches_are_merged_up_to_the_size() -> None:
    parts = [pa.record_batch({"id": [0] * size}) for size in (3, 2, 2, 9, 1)]
    assert [batch.num_rows for batch in _merge_batches(parts, 5)] == [5, 2, 9, 1]


def test_rows_are_looked_up_in_the_version_that_was_opened() -> None:
    table = _table(10)
    rows = SafeLanceDataset(table.uri)
    lancelet.write_dataset(pa.table({"id": [99]}), table.uri, mode="overwrite")
    assert len(rows) == 10
    assert rows[3] == {"id": 3}
    assert rows.__getitems__([7, 0]) == [{"id": 7}, {"id": 0}]
    assert pickle.loads(pickle.dumps(rows))[9] == {"id": 9}


READ_IN_CHILD = """
import os, sys
import pyarrow as pa
import lancelet
from {module} import LanceDataset, SafeLanceDataset

def ids(dataset):
    return [row for batch in dataset for row in batch["id"].to_pylist()]

table = lancelet.write_dataset(
    pa.table({{"id": pa.array(range(30), pa.int64())}}), sys.argv[1], max_rows_per_file=7
)
dataset, rows = LanceDataset(table, 4, to_tensor_fn=None), SafeLanceDataset(sys.argv[1])
first = ids(dataset), rows[1]["id"]
child = os.fork()
if not child:
    os._exit(0 if (ids(dataset), rows[1]["id"]) == first else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), first[0] == list(range(30)), first[1])
"""


def test_both_kinds_can_be_read_in_a_forked_process(tmp_path: Path, run_program) -> None:
    program = READ_IN_CHILD.format(module=LanceDataset.__module__)
    assert run_program(program, str(tmp_path)) == "0 True 1\n"


def test_numbers_are_ready_to_become_tensors() -> None:
    vectors = pa.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], pa.list_(pa.float32(), 2))
    values, is_bfloat16 = numbers_of(vectors[1:])
    assert (values.tolist(), is_bfloat16) == ([[3.0, 4.0], [5.0, 6.0]], False)
    halves = lancelet.arrow.bfloat16_array([1.0, None, 2.0])
    values, is_bfloat16 = numbers_of(halves[1:])
    assert is_bfloat16
    assert [hex(bits) for bits in values.tolist()] == ["0x7fc0", "0x4000"]
    assert numbers_of(pa.array(["a"])) == (None, False)


def test_without_pytorch_only_tensors_are_missing(monkeypatch) -> None:
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.partition(".")[0] == "torch":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    assert (get_global_rank(), get_global_world_size()) == (0, 1)
    for ask in (
        lambda: next(iter(LanceDataset(_table(3), 2))),
        ShardedBatchSampler.from_torch,
        lancelet.torch.preferred_device,
    ):
        with pytest.raises(UnsupportedError, match=r"lancelet\[torch\]"):
            ask()
