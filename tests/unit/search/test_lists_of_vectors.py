"""Rows that are lists of vectors, searched through an index.

A search returns `k` rows if there are as many, also if many vectors of one row are near. At every
refine factor, it finds at least as many of the nearest rows as the reference.
"""

import lance as reference
import numpy as np
import pyarrow as pa
import pytest

import lancelet

DIMENSION = 16
ROWS = 300
CENTERS = np.random.default_rng(2).normal(size=(20, DIMENSION)) * 3


def vectors(random, count):
    found = CENTERS[random.integers(0, 20, count)] + random.normal(size=(count, DIMENSION))
    return found.astype(np.float32)


def write(path, lists, module=lancelet):
    column = pa.array(lists, pa.list_(pa.list_(pa.float32(), DIMENSION)))
    dataset = lancelet.write_dataset(pa.table({"id": range(len(lists)), "m": column}), path)
    module.dataset(path).create_index("m", "IVF_FLAT", metric="cosine", num_partitions=2)
    return dataset


def nearest(module, path, query, **options):
    wanted = {"column": "m", "q": query.tolist(), "k": 10, "metric": "cosine", **options}
    return module.dataset(path).to_table(columns=["id"], nearest=wanted)["id"].to_pylist()


@pytest.mark.parametrize("count", [1, 10, ROWS - 1, ROWS, 2 * ROWS])
def test_as_many_rows_as_there_are_are_found(tmp_path, count):
    random = np.random.default_rng(3)
    noise = random.normal(size=(ROWS, 50, DIMENSION)) * 1e-3
    lists = (vectors(random, ROWS)[:, None] + noise).astype(np.float32).tolist()
    path = str(tmp_path)
    write(path, lists)
    found = nearest(lancelet, path, vectors(random, 2), k=count)
    assert len(found) == len(set(found)) == min(count, ROWS)


@pytest.mark.parametrize("options", [{}, {"refine_factor": 1}, {"refine_factor": 5}])
@pytest.mark.parametrize("writer", [lancelet, reference])
def test_no_fewer_of_the_nearest_rows_are_found_than_elsewhere(tmp_path, options, writer):
    random = np.random.default_rng(4)
    lists = [vectors(random, int(size)).tolist() for size in random.integers(1, 5, ROWS)]
    path = str(tmp_path)
    write(path, lists, writer)
    hits = {lancelet: 0, reference: 0}
    for query in (vectors(random, 3) for _ in range(10)):
        exact = set(nearest(lancelet, path, query, use_index=False))
        for module in hits:
            hits[module] += len(exact & set(nearest(module, path, query, nprobes=2, **options)))
    assert hits[lancelet] >= max(95, hits[reference] - 2)
