"""Requests that plans predict for scans of ranges are within a factor of two of what is measured.

Random ranges of a clustered column are scanned, with random columns returned. Statistics leave few
rows of such a scan, which are read with all of their columns at once: the estimate has to follow
the same decision as the run.
"""

import random
import re

import numpy as np
import pyarrow as pa
import pytest

import lancelet

ROWS = 200_000
FACTOR, SLACK = 2, 6


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    rng = np.random.default_rng(0)
    columns = {
        "key": np.arange(ROWS),
        "near": np.arange(ROWS) // 100 * 100 + rng.integers(0, 100, ROWS),
        "any": rng.random(ROWS),
        "small": rng.integers(0, 40, ROWS),
        "name": [f"name {number % 977}" for number in range(ROWS)],
        "wide": [f"{'y' * 40}{number}" for number in range(ROWS)],
    }
    path = tmp_path_factory.mktemp("requests") / "t.lance"
    lancelet.write_dataset(pa.table(columns), path, max_rows_per_file=ROWS // 2)
    return path


def requests_of(plan):
    """Return the predicted and the measured number of requests of all nodes.

    A node that received no rows made no requests, so its prediction is left out.
    """
    predicted = measured = 0
    for line in plan.splitlines():
        done = re.search(r"metrics=\[.*requests=(\d+)", line)
        if done is not None:
            expected = re.search(r", requests=(\d+), bytes", line.partition(", metrics=")[0])
            received_rows = "Take:" not in line or "output_rows=0," not in line
            predicted += int(expected[1]) if expected and received_rows else 0
            measured += int(done[1])
    return predicted, measured


@pytest.mark.parametrize("seed", range(60))
def test_a_scan_of_a_range_makes_about_as_many_requests_as_predicted(path, seed):
    rng = random.Random(seed)
    column, low = rng.choice(("key", "near")), rng.randrange(ROWS)
    high = low + rng.choice((1, 10, 100, 1000, 5000))
    columns = rng.sample(("key", "near", "any", "small", "name", "wide"), rng.randrange(1, 6))
    condition = f"{column} >= {low} AND {column} < {high}"
    plan = lancelet.dataset(path).scanner(filter=condition, columns=columns).analyze_plan()
    predicted, measured = requests_of(plan)
    assert max(predicted, measured) <= FACTOR * min(predicted, measured) + SLACK, plan
    explained = lancelet.dataset(path).scanner(filter=condition, columns=columns).explain_plan()
    assert [line.split(":")[0].strip() for line in explained.splitlines()] == [
        line.split(":")[0].strip() for line in plan.splitlines() if "Version:" not in line
    ][:-1]
