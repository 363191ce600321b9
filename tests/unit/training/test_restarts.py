"""A run that is interrupted at random has the order of an uninterrupted run."""

from __future__ import annotations

import json
import random
from itertools import islice

import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet import training

INTERRUPTIONS, EPOCHS = 50, 3
KINDS = ["rows", "clumps", "fragments", "none", "weights", "mixture", "windows", "packed"]


def source_of(kind):
    tokens = pa.array([[i] * (i % 5) for i in range(700)], pa.list_(pa.int32()))
    table = lancelet.write_dataset(
        pa.table({"id": range(700), "w": [i % 3 for i in range(700)], "tokens": tokens}),
        f"memory://restarts-{kind}",
        mode="overwrite",
        max_rows_per_file=90,
    )
    ids = training.plan(table, columns=["id"], filter="id <> 13", seed=1)
    if kind == "mixture":
        return training.mix([ids, training.plan(table, columns=["id"])], {0: [3, 1], 900: [1, 2]})
    if kind == "windows":
        return training.windows(training.plan(table, columns=["id"]), 3)
    if kind == "packed":
        return training.pack(training.plan(table, seed=5), "tokens", 3)
    if kind == "weights":
        return training.plan(table, columns=["id"], weights="w", seed=3)
    size = {"clump_size": 7} if kind == "clumps" else {}
    return training.plan(table, columns=["id"], shuffle=kind, seed=9, **size)


def samples(source, batches):
    """Return the values of each sample."""
    name = "tokens" if isinstance(source, training.PackedPlan) else "id"
    return [np.asarray(sample).tolist() for batch in batches for sample in batch[name]]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_interrupted_at_random_has_the_order_of_one_that_is_not(kind):
    source = source_of(kind)
    wanted = [
        samples(source, source.loader(64, epoch=epoch, to="numpy")) for epoch in range(EPOCHS)
    ]
    chance = random.Random(kind)
    state, found, interruptions = None, [[] for _ in range(EPOCHS)], 0
    while state is None or state["epoch"] < EPOCHS:
        world, size = chance.randint(1, 5), chance.randint(1, 8)
        options = {"world_size": world, "num_threads": chance.randint(1, 3), "to": "numpy"}
        ranks = [source.loader(size, rank=rank, **options) for rank in range(world)]
        if state is not None:
            for loader in ranks:
                loader.load_state_dict(state)
        epoch = ranks[0].epoch
        # Steps until the checkpoint, and steps after it that are lost.
        steps, lost = chance.randint(0, 3), chance.randint(0, 3)
        if interruptions >= INTERRUPTIONS:
            steps = 10**9
        running = zip(*ranks, strict=True)
        for parts in islice(running, steps):
            found[epoch] += samples(source, parts)
        # Ranks repeat the first samples if the last ones cannot be divided evenly.
        del found[epoch][len(source) :]
        states = {json.dumps(loader.state_dict()) for loader in ranks}
        assert len(states) == 1
        (text,) = states
        assert len(text) <= 1024
        list(islice(running, lost))
        state = json.loads(text)
        interruptions += 1
    assert interruptions > INTERRUPTIONS
    assert found == wanted


def test_states_are_small_for_any_plan():
    table = lancelet.write_dataset({"x": range(9)}, "memory://restarts-small", mode="overwrite")
    plans = [
        training.plan(table, filter=" or ".join(f"x = {i}" for i in range(9)), seed=seed)
        for seed in range(100)
    ]
    loader = training.mix(plans).loader(2)
    state = json.dumps(loader.state_dict())
    assert len(state) <= 1024
    loader.load_state_dict(json.loads(state))
    single = plans[0].loader(2)
    assert len(json.dumps(single.state_dict())) <= 1024
    # Earlier releases saved the whole description of plans.
    single.load_state_dict({**single.state_dict(), "plan": plans[0].name})


@pytest.mark.parametrize(
    ("options", "correlation_max", "adjacent"),
    [
        ({"shuffle": "rows"}, 0.02, (0, 0.001)),
        ({"shuffle": "clumps", "clump_size": 20}, 0.05, (0.94, 0.96)),
        ({"shuffle": "fragments"}, 0.6, (0.999, 1)),
        ({"replacement": True}, 0.02, (0, 0.001)),
        ({"shuffle": "none"}, 1, (1, 1)),
    ],
    ids=["rows", "clumps", "fragments", "replacement", "none"],
)
def test_the_quality_of_a_shuffle_is_as_documented(options, correlation_max, adjacent):
    table = lancelet.write_dataset(
        {"x": range(20_000)}, "memory://shuffle-quality", mode="overwrite", max_rows_per_file=1000
    )
    plan = training.plan(table, seed=7, **options)
    positions = np.arange(20_000)
    correlations = []
    for epoch in range(5):
        rows = plan.rows_at(positions, epoch)
        correlations.append(abs(np.corrcoef(positions, rows)[0, 1]))
        assert adjacent[0] <= np.mean(np.diff(rows) == 1) <= adjacent[1]
    assert np.mean(correlations) <= correlation_max + 1e-9
