"""Index metrics of filters match pylance."""

import re

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancelet

pytestmark = pytest.mark.interop

NUM_ROWS = 20_000
KINDS = {"a": "BTREE", "b": "BITMAP", "z": "ZONEMAP", "y": "BLOOMFILTER", "s": "NGRAM"}
KINDS |= {"l": "LABEL_LIST"}
FILTERS = (
    "a = 5",
    "a < 100",
    "a IN (1, 2, 3)",
    "b = 3",
    "b < 10",
    "z < 10",
    "z = 5",
    "y = 7",
    "contains(s, 'ord77')",
    "array_has(l, 3)",
)


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    numbers = np.arange(NUM_ROWS)
    rows = pa.table(
        {
            "a": np.random.default_rng(0).permutation(NUM_ROWS),
            "b": numbers % 50,
            "z": numbers,
            "y": numbers,
            "s": [f"word{number}" for number in numbers],
            "l": [[number % 7] for number in numbers.tolist()],
        }
    )
    found = {}
    for library in (lancelet, lance):
        found[library] = str(tmp_path_factory.mktemp(library.__name__) / "t")
        dataset = library.write_dataset(rows, found[library])
        for column, kind in KINDS.items():
            dataset.create_scalar_index(column, kind)
    return found


@pytest.mark.parametrize("text", FILTERS)
def test_comparisons_are_counted_as_the_reference_does(paths, text):
    counted = {}
    for library, path in paths.items():
        told = []
        scanner = library.dataset(path).scanner(filter=text, scan_stats_callback=told.append)
        scanner.to_table()
        counted[library] = (told[0].index_comparisons, told[0].indices_loaded)
    assert counted[lancelet] == counted[lance]


@pytest.mark.parametrize("text", FILTERS)
def test_the_index_node_reports_its_work(paths, text):
    for library, path in paths.items():
        plan = library.dataset(path).scanner(filter=text).analyze_plan()
        (step,) = [line for line in plan.splitlines() if "ScalarIndexQuery:" in line]
        for name in ("index_comparisons", "indices_loaded", "parts_loaded", "index_cache_hits"):
            assert re.search(rf"metrics=\[.*\b{name}=[\d.]+", step), (library, name)
