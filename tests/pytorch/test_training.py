"""Plans in PyTorch's loaders: workers, resuming, and processes that train together."""

from __future__ import annotations

import json
import os
import pickle
import random
import socket
import subprocess
import sys
from functools import partial
from itertools import islice

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import lancelet
from lancelet import training
from lancelet.errors import InvalidInputError
from lancelet.sampler import FullScanSampler
from lancelet.torch.data import LanceDataset
from lancelet.torch.tensors import to_tensor

ROWS = 500
pytestmark = [
    pytest.mark.filterwarnings("ignore:lance is not fork-safe"),  # pylance, if imported
    pytest.mark.filterwarnings("ignore:os.fork.* was called:RuntimeWarning"),  # JAX, if imported
]


@pytest.fixture
def table(tmp_path):
    rows = pa.table(
        {
            "id": range(ROWS),
            "x": np.arange(ROWS, dtype=np.float32),
            "v": pa.array([[i, 1.0] for i in range(ROWS)], pa.list_(pa.float32(), 2)),
        }
    )
    return lancelet.write_dataset(rows, str(tmp_path / "t.lance"), max_rows_per_file=90)


def ids_of(loader):
    return [number for batch in loader for number in batch["id"].to_pylist()]


def seen(batches):
    return [number for batch in batches for number in batch["id"].tolist()]


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_yield_the_order_of_one_process(table, context):
    made = {"batch_size": 32, "columns": ["id", "v"], "shuffle": "rows", "seed": 4}
    wanted = seen(LanceDataset(table.uri, **made))
    assert sorted(wanted) == list(range(ROWS))
    loader = DataLoader(
        LanceDataset(table.uri, **made),
        batch_size=None,
        num_workers=2,
        multiprocessing_context=context,
    )
    batches = list(loader)
    assert seen(batches) == wanted
    assert batches[0]["v"].shape == (32, 2)
    assert batches[0]["v"].dtype == torch.float32


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata calls it
def test_a_stateful_loader_continues_in_the_middle(table):
    def loader():
        made = LanceDataset(table.uri, batch_size=20, columns=["id", "x"], shuffle="rows", seed=1)
        return StatefulDataLoader(made, batch_size=None, num_workers=2)

    wanted = seen(loader())
    for stop in (1, 2, 7):
        first = loader()
        begun = iter(first)
        before = [next(begun) for _ in range(stop)]
        state = first.state_dict()
        second = loader()
        second.load_state_dict(state)
        assert seen(before) + seen(second) == wanted


def stateful(table, batch_size, workers, rank=0, world=1, state=None):
    made = LanceDataset(
        table.uri,
        batch_size=batch_size,
        columns=["id", "x"],
        shuffle="rows",
        seed=1,
        rank=rank,
        world_size=world,
    )
    if state is not None:
        made.load_state_dict(state)
    return StatefulDataLoader(made, batch_size=None, num_workers=workers)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more than cores
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata calls it
def test_a_stateful_loader_continues_with_other_ranks_workers_and_batches(table):
    wanted = seen(stateful(table, 20, 0))
    found, state = [], None
    # Ranks, workers, samples of a batch, steps; the last one ends the epoch.
    for world, workers, size, steps in (
        (1, 2, 20, 3),
        (2, 0, 13, 2),
        (3, 1, 11, 2),
        (4, 2, 9, 3),
        (1, 3, 17, 2),
        (1, 0, 500, 1),
    ):
        loaders = [stateful(table, size, workers, rank, world, state) for rank in range(world)]
        running = [iter(loader) for loader in loaders]
        for _ in range(steps):
            found += seen(next(each) for each in running)
        states = [loader.state_dict() for loader in loaders]
        state = json.loads(json.dumps(states[-1]))
        del running
    assert found == wanted


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata calls it
@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
@pytest.mark.parametrize("workers", [1, 2])
def test_epochs_after_one_that_was_left_early_are_whole(table, kind, workers):
    """Workers yield batches ahead, which are discarded; the next epoch has them again."""
    made = LanceDataset(table.uri, batch_size=20, columns=["id"], shuffle="rows", seed=1)
    plan = training.plan(table, columns=["id"], shuffle="rows", seed=1)
    wanted = [ids_of(plan.loader(20, epoch=epoch)) for epoch in range(8)]
    loader = kind(made, batch_size=None, num_workers=workers, persistent_workers=True)
    for epoch, stop in enumerate((1, 7, 24, None, 23, 22, None, 3)):
        found = seen({"id": batch} for batch in islice(loader, stop))
        assert found == wanted[epoch][: len(found)]
        assert len(found) == (ROWS if stop is None else 20 * stop)


def epochs_of(table, count=8):
    """Return the ids of each epoch in the order of one process."""
    plan = training.plan(table, columns=["id"], shuffle="rows", seed=1)
    return [ids_of(plan.loader(20, epoch=epoch)) for epoch in range(count)]


def shuffled(table):
    return LanceDataset(table.uri, batch_size=20, columns=["id", "x"], shuffle="rows", seed=1)


def in_workers(dataset, persistent, kind=DataLoader):
    return kind(dataset, batch_size=None, num_workers=2, persistent_workers=persistent)


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata calls it
@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
@pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "restarted"])
def test_epochs_advance_with_workers(table, kind, persistent):
    wanted = epochs_of(table)
    dataset = shuffled(table)
    loader = in_workers(dataset, persistent, kind)
    for epoch in range(3):
        torch.manual_seed(5)  # equal seeds of workers are not one iteration
        assert seen(loader) == wanted[epoch]
        assert dataset.epoch == epoch
    dataset.set_epoch(6)
    assert seen(loader) == wanted[6]
    dataset.set_epoch(6)  # again, as it was read
    assert seen(loader) == wanted[6]
    assert seen(loader) == wanted[7]
    dataset.set_epoch(0)
    assert seen(islice(loader, 3)) == wanted[0][:60]
    assert seen(loader) == wanted[1]


def test_spawned_workers_share_the_epoch(table):
    wanted = epochs_of(table, 3)
    dataset = shuffled(table)
    loader = DataLoader(
        dataset,
        batch_size=None,
        num_workers=2,
        multiprocessing_context="spawn",
        persistent_workers=True,
    )
    assert seen(loader) == wanted[0]
    dataset.set_epoch(2)
    assert seen(loader) == wanted[2]
    del loader
    again = DataLoader(dataset, batch_size=None, num_workers=1, multiprocessing_context="spawn")
    dataset.set_epoch(1)
    assert seen(again) == wanted[1]


@pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "restarted"])
def test_a_resumed_epoch_is_followed_by_whole_ones(table, persistent):
    wanted = epochs_of(table)
    state = (
        training.plan(table, columns=["id", "x"], shuffle="rows", seed=1).loader(20).state_dict()
    )
    dataset = shuffled(table)
    loader = in_workers(dataset, persistent)
    for _ in range(2):  # the second time, workers have started
        dataset.load_state_dict({**state, "epoch": 3, "position": 200})
        dataset.set_epoch(3)  # the epoch of the state keeps its position
        assert seen(loader) == wanted[3][200:]
        assert seen(loader) == wanted[4]
    assert seen(dataset) == wanted[5]  # without workers
    assert seen(loader) == wanted[6]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more than cores
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata calls it
@pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "restarted"])
@pytest.mark.parametrize("stop", [3, 99, 100])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_epochs_advance_after_a_stateful_loader_resumes(table, persistent, workers, stop):
    """A caller that counts the 100 batches of the epoch continues with the next epoch."""
    wanted = epochs_of(table)

    def loader():
        return StatefulDataLoader(
            LanceDataset(table.uri, 5, columns=["id", "x"], shuffle="rows", seed=1),
            batch_size=None,
            num_workers=workers,
            persistent_workers=persistent,
        )

    first = loader()
    assert seen(first) == wanted[0]
    begun = iter(first)
    before = seen(next(begun) for _ in range(stop))
    second = loader()
    second.load_state_dict(first.state_dict())
    assert before + seen(second) == wanted[1] + (wanted[2] if stop == 100 else [])
    following = wanted[3 if stop == 100 else 2 :]
    third = loader()
    third.load_state_dict(second.state_dict())  # after the end of an iteration
    assert [seen(third), seen(third)] == following[:2]
    assert [seen(second), seen(second)] == following[:2]


def test_only_workers_have_the_position_in_their_epoch(table):
    dataset = shuffled(table)
    next(iter(in_workers(dataset, persistent=False)))
    with pytest.raises(InvalidInputError, match="StatefulDataLoader"):
        dataset.state_dict()


def test_copies_of_a_dataset_have_their_own_epochs(table):
    dataset = shuffled(table)
    copied = pickle.loads(pickle.dumps(dataset))
    copied.set_epoch(4)
    assert seen(in_workers(dataset, persistent=False)) == epochs_of(table, 1)[0]
    assert seen(in_workers(copied, persistent=False)) == epochs_of(table, 5)[4]


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata calls it
def test_a_run_resumes_from_an_epoch_that_was_left_early(table):
    def loader():
        made = LanceDataset(table.uri, batch_size=20, columns=["id", "x"], shuffle="rows", seed=1)
        return StatefulDataLoader(made, batch_size=None, num_workers=2, persistent_workers=True)

    first = loader()
    list(islice(first, 3))
    before = seen(islice(first, 4))
    second = loader()
    second.load_state_dict(first.state_dict())
    assert sorted(before + seen(second)) == list(range(ROWS))


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata calls it
def test_the_state_of_workers_is_rejected_by_others(table):
    first = stateful(table, 20, 2)
    running = iter(first)
    for _ in range(3):
        next(running)
    other = stateful(table, 30, 2)
    other.load_state_dict(first.state_dict())
    with pytest.raises(InvalidInputError, match="whole StatefulDataLoader"):
        list(other)
    with pytest.raises(InvalidInputError, match="expected the state"):
        stateful(table, 20, 2, state={"rows": 3})
    with pytest.raises(InvalidInputError, match="snapshot_every_n_steps"):
        stateful(table, 20, 2, state={**first.state_dict(), "_steps_since_snapshot": 1})


def test_tensors_are_pinned_where_cuda_is_and_not_by_workers(table, monkeypatch):
    loader = training.plan(table).loader(8, to="torch", pin_memory=True)
    assert not next(iter(loader))["x"].is_pinned()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self + 1000)
    assert next(iter(loader))["id"].min() >= 1000
    with pytest.raises(InvalidInputError, match="DataLoader"):
        loader.share(0, 2)


def test_decoded_tensors_of_one_shape_are_one(table):
    plan = training.plan(table, columns=["id"], shuffle="none")
    (batch, *_) = plan.loader(3, to="torch", decode={"id": lambda value: torch.full((2,), value)})
    assert batch["id"].tolist() == [[0, 0], [1, 1], [2, 2]]
    for made in (torch.full((2,), 1.0, dtype=torch.bfloat16), torch.ones(2, requires_grad=True)):
        (batch, *_) = plan.loader(3, to="torch", decode={"id": lambda _, made=made: made})
        assert torch.equal(batch["id"], torch.stack([made] * 3))
    ragged = plan.loader(3, to="torch", decode={"id": torch.zeros})
    assert [len(each) for each in next(iter(ragged))["id"]] == [0, 1, 2]


def test_options_that_are_unknown_are_rejected(table):
    with pytest.raises(InvalidInputError, match="did you mean shuffle"):
        LanceDataset(table.uri, batch_size=2, shufle="rows")
    with pytest.raises(InvalidInputError, match="cannot be combined"):
        LanceDataset(table.uri, batch_size=2, shuffle="rows", samples=3)


def test_tensors_are_writable_and_decoded(table):
    loader = training.plan(table, columns=["id", "v"]).loader(
        8, to="torch", decode={"v": lambda value: np.asarray(value, np.float32) * 2}
    )
    batch = next(iter(loader))
    assert batch["v"][:, 1].tolist() == [2.0] * 8
    batch["id"] += 1


TRAIN = """
import json, sys
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import lancelet
from lancelet import training

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
table = lancelet.dataset(sys.argv[1])
plan = training.plan(table, columns=["id", "x"], filter="id % 7 <> 0", shuffle="rows", seed=2)
model = DistributedDataParallel(torch.nn.Linear(1, 1))
ids = []
for batch in plan.loader(16, rank=rank, world_size=size, to="torch"):
    loss = (model(batch["x"][:, None] / 500) ** 2).mean()
    loss.backward()  # waits for the other: a rank with fewer steps would hang here
    ids += batch["id"].tolist()
print(json.dumps(ids))
dist.barrier()  # the first rank serves the store of the others
dist.destroy_process_group()
"""


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def test_processes_that_train_together_have_equal_steps_under_a_filter(table, tmp_path):
    program = tmp_path / "train.py"
    program.write_text(TRAIN)
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(program), table.uri],
            env={**os.environ, **meeting, "RANK": str(rank), "PYTHONFAULTHANDLER": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [rank.communicate() for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], [errors for _, errors in outputs]
    first, second = (json.loads(ids.splitlines()[-1]) for ids, _ in outputs)
    assert len(first) == len(second)
    assert set(first) | set(second) == {i for i in range(ROWS) if i % 7}
    assert len(first) + len(second) - len({*first, *second}) <= 1


@pytest.mark.parametrize("batch_size", [7, 40, 90])
def test_batches_are_those_that_each_would_be_converted_to_alone(tmp_path, batch_size):
    halves = pa.array([1.5, None, 2.0, 3.0] * 50, pa.float32())
    rows = pa.table(
        {
            "whole": pa.array(range(200), pa.uint64()),
            "gaps": pa.array([None if 20 <= i < 30 else i for i in range(200)], pa.int32()),
            "halves": halves,
            "bits": pa.array([i % 3 == 0 for i in range(200)]),
            "vector": pa.array([[i, -i] for i in range(200)], pa.list_(pa.float16(), 2)),
        }
    )
    table = lancelet.write_dataset(rows, str(tmp_path / "t.lance"), max_rows_per_file=60)
    at_once = list(LanceDataset(table, batch_size, shuffle="none"))
    alone = list(LanceDataset(table, batch_size, shuffle="none", to_tensor_fn=partial(to_tensor)))
    assert len(at_once) == len(alone) == -(-200 // batch_size)
    for found, expected in zip(at_once, alone, strict=True):
        assert list(found) == list(expected)
        for name, values in expected.items():
            assert found[name].dtype == values.dtype, name
            np.testing.assert_array_equal(found[name].numpy(), values.numpy())


def test_a_column_alone_is_no_dictionary(table):
    first = next(iter(LanceDataset(table, 50, columns=["v"], shuffle="none")))
    assert first.shape == (50, 2)


@pytest.mark.parametrize(
    "options",
    [
        {"with_row_id": True},
        {"cache": True},
        {"to_tensor_fn": lambda batch, **_: batch, "decode": {"id": int}},
    ],
    ids=["with_row_id", "cache", "to_tensor_fn"],
)
def test_arguments_without_effect_on_a_plan_are_rejected(options):
    table = lancelet.write_dataset({"id": range(10)}, "memory://plan-arguments", mode="overwrite")
    with pytest.raises(InvalidInputError, match=next(iter(options))):
        LanceDataset(table, 2, shuffle="rows", **options)


@pytest.mark.parametrize("create", [None, lambda plan: training.windows(plan, 2)])
@pytest.mark.parametrize(
    "options",
    [{"samples": 3}, {"sampler": FullScanSampler()}, {"shard_granularity": "batch"}],
    ids=lambda each: next(iter(each)),
)
def test_arguments_without_effect_on_a_source_are_rejected(create, options):
    table = lancelet.write_dataset({"id": range(10)}, "memory://source-options", mode="overwrite")
    source = training.plan(table, shuffle="none")
    with pytest.raises(InvalidInputError, match="created the plan"):
        LanceDataset(source if create is None else create(source), 2, **options)


def test_functions_that_create_tensors_require_a_plan():
    table = lancelet.write_dataset({"id": range(10)}, "memory://source-tensors", mode="overwrite")
    windows = training.windows(training.plan(table, shuffle="none"), 2)
    with pytest.raises(InvalidInputError, match="to_tensor_fn requires a plan"):
        LanceDataset(windows, 2, to_tensor_fn=lambda batch, **_: batch)


def test_a_world_size_requires_a_rank():
    table = lancelet.write_dataset({"id": range(10)}, "memory://plan-world", mode="overwrite")
    with pytest.raises(InvalidInputError, match="rank and world_size"):
        LanceDataset(table, 2, world_size=2)


def test_the_length_of_a_plan_is_its_number_of_batches():
    table = lancelet.write_dataset({"id": range(10)}, "memory://plan-length", mode="overwrite")
    dataset = LanceDataset(table, 3, shuffle="rows")
    assert len(dataset) == len(list(dataset)) == 4
    with pytest.raises(TypeError, match="only plans"):
        len(LanceDataset(table, 3))


def sources(table):
    """Return a source of each kind, with the column `id`."""
    plan = training.plan(table, columns=["id"], shuffle="rows", seed=1)
    return {
        "plan": plan,
        "windows": training.windows(plan, 3, step=3),
        "mixture": training.mix([plan, training.plan(table, columns=["id"])], [2, 1], seed=4),
        "packed": training.pack(training.plan(table, seed=2), "tokens", 7, lengths="n"),
    }


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata calls it
@pytest.mark.parametrize("kind", ["plan", "windows", "mixture", "packed"])
def test_sources_of_every_kind_are_read_by_workers_and_resumed(kind):
    uri = f"memory://torch-source-{kind}"
    tokens = pa.array([[i] * (i % 5) for i in range(200)], pa.list_(pa.int32()))
    rows = pa.table({"id": range(200), "tokens": tokens, "n": [i % 5 for i in range(200)]})
    source = sources(lancelet.write_dataset(rows, uri, mode="overwrite"))[kind]
    key = "tokens" if kind == "packed" else "id"

    def values(batches):
        return [value for batch in batches for value in batch[key].ravel().tolist()]

    def loader():
        return in_workers(
            LanceDataset(source, 4, ragged=[]), persistent=True, kind=StatefulDataLoader
        )

    wanted = [values(source.loader(4, to="numpy", epoch=epoch)) for epoch in range(3)]
    first = loader()
    assert values(first) == wanted[0]
    begun = iter(first)
    before = values(next(begun) for _ in range(3))
    second = loader()
    second.load_state_dict(first.state_dict())
    assert before + values(second) == wanted[1]
    assert values(second) == wanted[2]
    with pytest.raises(InvalidInputError, match="created the plan"):
        LanceDataset(source, 4, columns=["id"], seed=3)


def test_workers_count_skipped_samples(table):
    def decode(value):
        if value % 100 == 7:
            raise ValueError(value)
        return value

    dataset = LanceDataset(
        table, 20, columns=["id"], shuffle="rows", decode={"id": decode}, undecodable="skip"
    )
    found = [i for batch in in_workers(dataset, persistent=False) for i in batch["id"]]
    assert sorted(found) == [i for i in range(ROWS) if i % 100 != 7]
    assert dataset.skipped == 5


def test_binary_values_and_ragged_columns_are_tensors(tmp_path):
    images = [bytes([i]) * i for i in range(9)] + [None]
    rows = pa.table({"image": images, "tokens": [[i, 2 * i] for i in range(10)]})
    table = lancelet.write_dataset(rows, str(tmp_path / "t.lance"))
    dataset = LanceDataset(table, 4, shuffle="none", ragged=["tokens"])
    batches = list(DataLoader(dataset, batch_size=None, num_workers=1))
    found = [image for batch in batches for image in batch["image"]]
    assert [None if each is None else bytes(each.tolist()) for each in found] == images
    values, offsets = batches[1]["tokens"]
    nested = torch.nested.nested_tensor_from_jagged(values, offsets)
    assert [each.tolist() for each in nested.unbind()] == [[i, 2 * i] for i in range(4, 8)]
    values += 1  # tensors of numbers are writable


def test_ragged_tensors_are_pinned(monkeypatch):
    rows = {"tokens": [[1, 2, 3], [4]]}
    table = lancelet.write_dataset(rows, "memory://training-pinned", mode="overwrite")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    pinned = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: pinned.append(self) or self)
    plan = training.plan(table, shuffle="none")
    (batch,) = plan.loader(2, to="torch", pin_memory=True, ragged=["tokens"])
    assert [each.tolist() for each in batch["tokens"]] == [each.tolist() for each in pinned]
    assert pinned[0].tolist() == [1, 2, 3, 4]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more than cores
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata calls it
def test_a_run_of_workers_interrupted_at_random_has_the_order_of_one_that_is_not(table):
    chance = random.Random(11)
    wanted = epochs_of(table, 2)
    found, state, interruptions = [[], []], None, 0
    while True:
        world, workers, size = chance.randint(1, 3), chance.randint(0, 2), chance.randint(1, 6)
        loaders = [stateful(table, size, workers, rank, world, state) for rank in range(world)]
        epoch = loaders[0].dataset.epoch
        if epoch == len(wanted):
            break
        running = zip(*loaders, strict=True)
        steps = chance.randint(1, 4) if interruptions < 50 else ROWS
        for parts in islice(running, steps):
            found[epoch] += seen(parts)
        # Ranks repeat the first samples if the last ones cannot be divided evenly.
        del found[epoch][ROWS:]
        state = json.loads(json.dumps(loaders[0].state_dict()))
        list(islice(running, chance.randint(0, 2)))  # lost
        interruptions += 1
    assert interruptions > 50
    assert found == wanted
