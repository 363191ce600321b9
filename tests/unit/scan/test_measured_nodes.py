"""Nodes of an analyzed plan report their reads, and their sum is that of the storage."""

import re

import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.io.metered import PROCESS_METER

ROWS = 1000
ZEROS = np.zeros(8, np.float32)
NEAREST = {"column": "x", "q": ZEROS, "k": 5}
REFINED = {**NEAREST, "refine_factor": 3}
TEXT = {"full_text_query": "word3", "columns": ["k"]}
SCANS = {
    "all": {},
    "limit": {"columns": ["v"], "limit": 7, "offset": 3},
    "late columns": {"filter": "k > 5", "columns": ["v"]},
    "two steps": {"filter": "k > 5 AND v < 0.5", "columns": ["s"]},
    "sorted": {"filter": "v < 0.9", "columns": ["s"], "order_by": ["v"], "limit": 5},
    "first rows": {"order_by": ["k"], "limit": 3, "columns": ["s"]},
    "nearest": {"nearest": NEAREST, "columns": ["k"]},
    "nearest refined": {"nearest": REFINED, "columns": ["k", "x"]},
    "prefiltered": {"nearest": REFINED, "filter": "k < 500", "prefilter": True, "columns": ["k"]},
    "filtered after": {"nearest": NEAREST, "filter": "v < 0.5", "columns": ["s"]},
    "text": TEXT,
    "text beside a filter": {**TEXT, "filter": "k < 90", "prefilter": True},
    "lookup": {"filter": "k = 7"},
    "lookup and rest": {"filter": "k IN (3, 9) AND v < 2", "columns": ["s"]},
}


def table(start):
    random = np.random.default_rng(start)
    vectors = random.random(8 * ROWS).astype(np.float32)
    return pa.table(
        {
            "k": range(start, start + ROWS),
            "v": random.random(ROWS),
            "s": [f"word{number % 10} fox" for number in range(ROWS)],
            "x": pa.FixedSizeListArray.from_arrays(vectors, 8),
        }
    )


@pytest.fixture(scope="module", params=["plain", "indexed", "partly indexed", "small fragments"])
def path(request, tmp_path_factory):
    where = str(tmp_path_factory.mktemp("nodes"))
    most = 50 if request.param == "small fragments" else ROWS
    dataset = lancelet.write_dataset(table(0), where, max_rows_per_file=most)
    dataset.create_scalar_index("s", "INVERTED")
    if "indexed" in request.param:
        dataset.create_scalar_index("k", "BTREE")
        dataset.create_index("x", "IVF_PQ", num_partitions=2, num_sub_vectors=4)
    if request.param == "partly indexed":
        lancelet.write_dataset(table(ROWS), where, mode="append")
        lancelet.dataset(where).delete("k % 7 = 0")
    return where


def metrics(plan):
    """Return the measurements of the nodes of a plan by name; of equal names the last."""
    found = {}
    for line in plan.splitlines():
        if "metrics=[" in line:
            name, said = line.strip().split(":")[0], line.rpartition("metrics=[")[2].rstrip("]")
            found[name] = {each: float(number) for each, number in pairs(said)}
    return found


def pairs(said):
    return [each.split("=") for each in said.split(", ")]


def sum_of(plan, name):
    return sum(int(number) for number in re.findall(rf"[ \[]{name}=(\d+)", plan_nodes(plan)))


def plan_nodes(plan):
    lines = [line.rpartition("metrics=")[2] for line in plan.splitlines() if "metrics=" in line]
    return "\n".join(lines)


def analysed(dataset, scan):
    """Return an analyzed plan, and the storage requests meanwhile."""
    scanner = dataset.scanner(**scan)
    scanner.explain_plan()  # what is predicted by files is known from then on
    before = PROCESS_METER.counts
    plan = scanner.analyze_plan()
    after = PROCESS_METER.counts
    scanner.explain_plan()  # of which the last part of an analysis is one
    own = PROCESS_METER.counts
    requests = 2 * after.read_iops - before.read_iops - own.read_iops
    return plan, (requests, 2 * after.read_bytes - before.read_bytes - own.read_bytes)


@pytest.mark.parametrize("name", SCANS)
def test_reads_of_all_nodes_equal_the_storage_requests(path, name):
    scan = SCANS[name]
    for _ in range(2):  # with indices closed, and open
        dataset = lancelet.dataset(path)
        for _ in range(2):
            rows = dataset.to_table(**scan).num_rows
            plan, asked = analysed(dataset, scan)
            assert (sum_of(plan, "requests"), sum_of(plan, "bytes_read")) == asked, plan
            assert f"measured: rows={rows} requests={asked[0]} bytes={asked[1]} " in plan
            assert metrics(plan)["Project"]["output_rows"] == rows


def test_late_columns_are_predicted_and_measured_separately(tmp_path):
    dataset = lancelet.write_dataset(table(0), str(tmp_path))
    scanner = dataset.scanner(filter="k > 5", columns=["v"])
    lines = [line.strip() for line in scanner.explain_plan().splitlines()]
    predicted = next(line for line in lines if line.startswith("Take:"))
    assert re.search(r"rows=334, requests=[1-9]\d*, bytes=[1-9]\d*$", predicted)
    found = metrics(scanner.analyze_plan())
    assert found["Take"]["output_rows"] == found["Filter"]["output_rows"] == 994
    assert found["Take"]["bytes_read"] == pytest.approx(8 * ROWS, rel=0.1)
    assert found["LanceRead"]["rows_scanned"] == ROWS
    assert found["LanceRead"]["requests"] > 0


def test_nodes_without_reads_report_rows_and_time(tmp_path):
    dataset = lancelet.write_dataset(table(0), str(tmp_path))
    scanner = dataset.scanner(filter="k > 5 AND v < 2", columns=["s"], order_by=["v"], limit=4)
    found = metrics(scanner.analyze_plan())
    assert found["Limit"] == {"output_rows": 4}
    assert set(found["Sort"]) == set(found["Filter"]) == {"output_rows", "elapsed_ms"}
    assert found["Take"]["output_rows"] == 4


def test_an_index_that_is_opened_reads_on_behalf_of_its_own_node(tmp_path):
    dataset = lancelet.write_dataset(table(0), str(tmp_path))
    dataset.create_scalar_index("k", "BTREE")
    dataset.create_scalar_index("s", "INVERTED")
    dataset.create_index("x", "IVF_PQ", num_partitions=2, num_sub_vectors=4)
    scans = {
        "ScalarIndexQuery": {"filter": "k >= 3 AND k < 9"},
        "MatchQuery": {"full_text_query": "word3", "columns": ["k"], "limit": 3},
        "ANNSubIndex": {"nearest": NEAREST, "columns": ["k"]},
    }
    for node, scan in scans.items():
        found = metrics(lancelet.dataset(dataset.uri).scanner(**scan).analyze_plan())
        assert found[node]["requests"] > 0, node
        assert found[node]["bytes_read"] > 0, node
        assert found[node]["output_rows"] > 0, node


def test_an_analysis_excludes_concurrent_scans(tmp_path):
    dataset = lancelet.write_dataset(table(0), str(tmp_path))
    scanner = dataset.scanner(filter="k > 5", columns=["v"])
    scanner.analyze_plan()
    dataset.io_stats_incremental()
    dataset.scanner(filter="k > 5", columns=["v"]).to_table()
    assert dataset.io_stats_incremental().read_iops > 0
    # Measurements are those of the analyzed plan; concurrent plans add nothing.
    first = metrics(scanner.analyze_plan())
    dataset.scanner(filter="k > 5", columns=["v"]).to_table()
    again = metrics(scanner.analyze_plan())
    for node, found in first.items():
        assert found.get("requests") == again[node].get("requests"), node


def test_rows_that_cannot_be_compared_while_they_are_decoded_count_once(tmp_path):
    rows = 10_000
    texts = [f"text {number * 7919 % rows}" for number in range(rows)]  # no dictionary
    dataset = lancelet.write_dataset(pa.table({"s": texts}), str(tmp_path))
    found = metrics(dataset.scanner(filter="s = 'text 5'", columns=[]).analyze_plan())
    assert found["LanceRead"]["rows_scanned"] == rows


def test_a_range_of_rows_is_one_request(tmp_path):
    numbers = np.sort(np.random.default_rng(0).integers(0, 1 << 62, 300_000))
    dataset = lancelet.write_dataset(pa.table({"n": numbers}), str(tmp_path))
    first, second = numbers[10_000], numbers[290_000]

    def requests(text: str) -> float:
        return metrics(dataset.scanner(filter=text).analyze_plan())["LanceRead"]["requests"]

    requests(f"n = {first}")  # reads metadata
    assert requests(f"n IN ({first}, {second})") == requests(f"n = {first}") + 1
