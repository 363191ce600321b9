"""Plans in JAX by the plain iterator: its arrays, a jitted step, and a run that resumes."""

from __future__ import annotations

import json

import jax
import numpy as np
import pyarrow as pa
import pytest
from jax import numpy as jnp

import lancelet
from lancelet import training

ROWS = 300
SLOPE = np.array([2.0, -1.0, 0.5], np.float32)


@pytest.fixture
def plan(tmp_path):
    features = np.random.default_rng(3).normal(size=(ROWS, 3)).astype(np.float32)
    rows = pa.table(
        {
            "id": range(ROWS),
            "x": pa.FixedSizeListArray.from_arrays(features.reshape(-1), 3),
            "y": features @ SLOPE,
        }
    )
    table = lancelet.write_dataset(rows, str(tmp_path / "t.lance"), max_rows_per_file=70)
    return training.plan(table, shuffle="rows", seed=5)


def test_batches_are_arrays_of_jax_with_the_values_of_numpy(plan):
    arrays = list(plan.loader(32, to="jax"))
    expected = list(plan.loader(32, to="numpy"))
    assert len(arrays) == len(expected) == 10
    for batch, same in zip(arrays, expected, strict=True):
        assert all(isinstance(each, jax.Array) for each in batch.values())
        assert batch["x"].shape == same["x"].shape
        for name, values in same.items():
            np.testing.assert_array_equal(np.asarray(batch[name]), values)


@jax.jit
def step(slope, x, y):
    return slope - 0.1 * jax.grad(lambda w: jnp.mean((x @ w - y) ** 2))(slope)


def test_a_run_that_stops_and_resumes_ends_where_the_whole_one_does(plan):
    whole = jnp.zeros(3)
    loader = plan.loader(20, to="jax")
    for _ in range(4):
        for batch in loader:
            whole = step(whole, batch["x"], batch["y"])
    np.testing.assert_allclose(whole, SLOPE, atol=0.02)

    parts, first = jnp.zeros(3), plan.loader(20, to="jax")
    for _, batch in zip(range(7), first, strict=False):
        parts = step(parts, batch["x"], batch["y"])
    resumed = plan.loader(20, to="jax")
    resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for _ in range(4):
        for batch in resumed:
            parts = step(parts, batch["x"], batch["y"])
    np.testing.assert_array_equal(parts, whole)
