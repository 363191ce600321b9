"""Requests of the page of `lancelet view`, without a browser and a server."""

import io
import json
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lancelet
from lancelet.cli.viewer import rows, server, sql_process
from lancelet.cli.viewer.internals import plan_step
from lancelet.cli.viewer.tables import Shown
from lancelet.http_server import Request

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
NAMES = ["x`y", "my \"q'", "Upper", "two words", "order", "größe"]


class Viewer:
    """Sends requests about one table."""

    def __init__(self, folder, table):
        self.shown = Shown(str(folder))
        self.table = table

    def response(self, endpoint, method="GET", **query):
        request = Request(method, f"/api/{endpoint}", {"table": self.table, **query}, {})
        return server.answer(self.shown, request)

    def get(self, endpoint, status=200, **query):
        response = self.response(endpoint, **query)
        found = json.loads(response.data)
        assert response.status == status, found
        return found


@pytest.fixture
def viewer(tmp_path):
    """Return a viewer of a table with unusual column names."""
    values = {name: pa.array([0, 1, 1, None]) for name in NAMES}
    nested = pa.array([{"a.b": i} for i in range(4)])
    lancelet.write_dataset(pa.table({**values, "nested": nested}), str(tmp_path / "t.lance"))
    return Viewer(tmp_path, "t.lance")


def of_blobs(tmp_path, version, values):
    """Return a viewer of a table with a blob column."""
    if version == "2.1":
        field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
        array = pa.array(values, pa.large_binary())
    else:
        field, array = lancelet.blob_field("b"), lancelet.blob_array(values)
    table = pa.table([array], schema=pa.schema([field]))
    lancelet.write_dataset(table, str(tmp_path / "b.lance"), data_storage_version=version)
    return Viewer(tmp_path, "b.lance")


@pytest.mark.parametrize(
    "raised", [RuntimeError("a"), pa.ArrowInvalid("b"), KeyError("c"), AssertionError("d")]
)
def test_every_exception_is_an_error_in_json(viewer, monkeypatch, raised):
    def fails(*_, **__):
        raise raised

    monkeypatch.setattr(lancelet.LanceDataset, "to_table", fails)
    found = viewer.get("rows", 500)
    assert found["kind"] == type(raised).__name__
    assert str(raised) in found["error"]


def test_unknown_paths_and_methods_are_errors_in_json(viewer):
    assert "unknown path" in viewer.get("nothing", 404)["error"]
    response = viewer.response("rows", "POST")
    assert (response.status, response.headers) == (405, {"Allow": "GET"})
    assert "GET" in json.loads(response.data)["error"]


@pytest.mark.parametrize("number", ["²", "9" * 30, "9" * 5000, "-1", "1.5", "٣", str(2**63)])
def test_numbers_that_are_no_integers_are_invalid(viewer, number):
    for name in ("limit", "offset"):
        assert viewer.get("rows", 400, **{name: number})["kind"] == "InvalidInputError"
    if number != str(2**63):
        assert viewer.get("row", 400, row=number)["error"]
    response = viewer.response("rows", at=number)
    assert response.status >= 400
    assert json.loads(response.data)["error"]


@pytest.mark.parametrize("columns", ["a,b", "[1]", '{"a": 1}', "[" * 9999, '["missing"]'])
def test_columns_are_an_array_of_names(viewer, columns):
    assert viewer.get("rows", 400, columns=columns)["error"]
    assert viewer.get("plan", 400, columns=columns)["error"]


def test_columns_of_any_name_are_read_sorted_and_planned(viewer):
    for name in NAMES:
        found = viewer.get("rows", columns=json.dumps([name]), order=name, descending="1")
        assert found["columns"] == [name]
        assert found["rows"][0][0] == {"number": "1"}
    steps = viewer.get("plan", columns=json.dumps(["two words", "x`y"]))["steps"]
    assert steps[0]["depth"] == 0


def test_facets_of_columns_of_any_name_select_their_rows(viewer):
    found = {each["name"]: each for each in viewer.get("statistics")["columns"]}
    assert list(found) == NAMES
    for each in found.values():
        assert each["top"][0]["count"] == 2
        for facet in [*each["top"], {"filter": each["null_filter"], "count": 1}]:
            assert viewer.get("rows", filter=facet["filter"])["total"] == facet["count"]


def test_completed_names_are_valid_in_filters_and_sql(viewer):
    about = viewer.get("describe")
    paths = about["filter_words"][: len(NAMES) + 2]
    assert paths[-2:] == ["nested", "nested.`a.b`"]
    for path in paths:
        assert viewer.get("rows", filter=f"{path} IS NULL OR {path} IS NOT NULL")["total"] == 4
    for name in about["sql_words"][1 : len(NAMES) + 1]:
        assert len(viewer.get("sql", query=f"SELECT {name} FROM dataset")["rows"]) == 4


def test_histograms_of_numbers_and_moments_count_the_rows_of_their_filters(tmp_path):
    table = pa.table(
        {
            "number": range(1000),
            "real": np.random.default_rng(1).normal(size=1000).astype(np.float32),
            "day": pa.array(range(0, 5000, 5), pa.date32()),
            "moment": pa.array(range(0, 1000_000, 1000), pa.timestamp("us")),
            "zoned": pa.array(range(1000), pa.timestamp("s", "UTC")),
        }
    )
    lancelet.write_dataset(table, str(tmp_path / "t.lance"))
    viewer = Viewer(tmp_path, "t.lance")
    for each in viewer.get("statistics")["columns"]:
        bins = each["histogram"]
        assert sum(bar["count"] for bar in bins) == 1000
        filters = [bar["filter"] for bar in bins]
        if each["name"] == "zoned":
            assert set(filters) == {None}
        else:
            counts = [viewer.get("rows", filter=each, limit="1")["total"] for each in filters]
            assert sum(counts) == 1000
            assert max(abs(a - b["count"]) for a, b in zip(counts, bins, strict=True)) <= 1


def test_statistics_of_wide_tables_are_those_of_the_first_columns(viewer, monkeypatch):
    monkeypatch.setattr("lancelet.cli.viewer.statistics.COLUMNS_MAX", 2)
    found = viewer.get("statistics")
    assert ([each["name"] for each in found["columns"]], found["cut"]) == (NAMES[:2], True)


def test_samples_of_large_values_are_small(tmp_path, monkeypatch):
    monkeypatch.setattr("lancelet.cli.viewer.statistics.SAMPLE_BYTES", 1 << 20)
    random = np.random.default_rng(1)
    texts = [random.bytes(2000).hex() for _ in range(600)]
    table = pa.table({"text": texts, "id": range(600)})
    lancelet.write_dataset(table, str(tmp_path / "t.lance"))
    viewer = Viewer(tmp_path, "t.lance")
    assert 100 <= viewer.get("statistics")["sampled"] < 600
    assert viewer.get("statistics", filter="id < 50")["sampled"] == 50


def test_a_damaged_table_does_not_hide_others(viewer):
    folder = viewer.shown.root
    lancelet.write_dataset(pa.table({"x": [1]}), f"{folder}/damaged.lance")
    for each in Path(folder, "damaged.lance", "_versions").iterdir():
        each.write_bytes(b"no manifest")
    damaged, table = viewer.get("overview")["tables"]
    assert (damaged["name"], table["rows"]) == ("damaged.lance", 4)
    assert damaged["error"]


def test_floats_of_single_precision_have_few_digits(tmp_path):
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([0.1, float("nan")], pa.float32()), 2)
    table = pa.table({"x": pa.array([0.1], pa.float32()), "v": vectors})
    lancelet.write_dataset(table, str(tmp_path / "t.lance"))
    assert Viewer(tmp_path, "t.lance").get("rows")["rows"] == [
        [{"number": "0.1", "exact": "0.1"}, {"vector": [0.1, None], "size": 2}]
    ]


def test_statistics_of_filtered_rows_drill_down(viewer):
    found = viewer.get("statistics", filter="Upper = 1")
    assert (found["rows"], found["columns"][0]["top"]) == (
        2,
        [{"label": "1", "count": 2, "filter": "`x``y` = 1"}],
    )


def test_statistics_of_large_tables_are_those_of_zones_and_indices(tmp_path):
    count = 30_000
    table = lancelet.write_dataset(
        pa.table(
            {
                "id": range(count),
                "key": range(count),
                "kind": [("red", "gray", "blue")[i % 3] for i in range(count)],
            }
        ),
        str(tmp_path / "t.lance"),
    )
    table.create_scalar_index("kind", "BITMAP")
    table.create_scalar_index("key", "BTREE")
    viewer = Viewer(tmp_path, "t.lance")
    before = {each["name"]: each for each in viewer.get("statistics")["columns"]}
    assert {each["source"] for each in before.values()} == {"zone statistics"}
    assert (before["id"]["min"], before["id"]["max"]) == ("0", str(count - 1))
    assert [each["count"] for each in before["kind"]["top"]] == [count // 3] * 3
    assert before["kind"]["counted_by"] == "an index"
    table.delete("key = 1")
    after = {each["name"]: each for each in viewer.get("statistics")["columns"]}
    assert after["key"]["source"] == "an index"
    assert after["id"]["source"] == "zone statistics, which include deleted rows"
    assert (after["id"]["min"], after["id"]["max"]) == ("0", str(count - 1))


def test_equal_column_names_in_a_result_are_numbered(viewer):
    query = "SELECT a.order, b.order FROM dataset a JOIN dataset b ON a.order = b.order"
    query = query.replace(".order", '."order"')
    found = viewer.get("sql", query=query)
    assert found["columns"] == ["order", "order_1"]
    row = viewer.get("row", result=found["result"], row="0")
    assert set(row) == {"order", "order_1"}
    assert viewer.get("export", query=query, format="json")[0].keys() == row.keys()


def test_a_row_is_complete_and_its_integers_are_exact(tmp_path):
    values = {"big": 2**53 + 1, "text": "x" * 5000, "nan": float("nan"), "list": [2**60, 1]}
    lancelet.write_dataset(pa.table({k: [v] for k, v in values.items()}), str(tmp_path / "t.lance"))
    viewer = Viewer(tmp_path, "t.lance")
    assert viewer.get("row", row="0") == {**values, "nan": None}
    result = viewer.get("sql", query="SELECT * FROM dataset")["result"]
    assert viewer.get("row", row="0", result=result) == {**values, "nan": None}
    shown = viewer.get("rows")["rows"][0]
    assert shown[1] == {"text": "x" * 2000, "length": 5000}
    assert json.loads(shown[3]["json"]) == [str(2**60), 1]
    assert viewer.get("row", 404, row="7")["kind"] == "NotFoundError"
    assert viewer.get("row", 404, row="0", result="gone")["error"]


def test_results_of_sql_are_kept_within_limits(viewer, monkeypatch):
    query = "SELECT 1 AS n FROM dataset"
    first = viewer.get("sql", query=query)["result"]
    for _ in range(8):
        last = viewer.get("sql", query=query)["result"]
    assert viewer.get("row", 404, result=first, row="0")["error"]
    assert viewer.get("row", result=last, row="0") == {"n": 1}
    monkeypatch.setattr("lancelet.cli.viewer.tables.RESULT_BYTES_MAX", 1)
    assert viewer.get("sql", query=query)["result"] is None


def test_timestamps_that_python_cannot_represent_are_shown(tmp_path):
    moments = pa.array([2**62, 0], pa.timestamp("s"))
    lancelet.write_dataset(pa.table({"t": moments}), str(tmp_path / "t.lance"))
    viewer = Viewer(tmp_path, "t.lance")
    assert viewer.get("rows")["rows"][1][0]["text"].startswith("1970-01-01")
    assert viewer.get("row", row="1")["t"].startswith("1970-01-01")
    assert viewer.get("statistics")["columns"][0]["distinct"] == 2


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_blobs_have_media_types_and_are_served(tmp_path, version):
    wave = b"RIFF\x24\0\0\0WAVEfmt " + bytes(20)
    page = b"<html><script>alert(1)</script>"
    viewer = of_blobs(tmp_path, version, [PNG, wave, page, None, b""])
    cells = [row[0] for row in viewer.get("rows")["rows"]]
    assert cells[0] == {"media": "image/png", "bytes": len(PNG)}
    assert cells[1] == {"media": "audio/wav", "bytes": len(wave)}
    assert cells[2]["bytes"] == len(page)
    assert cells[3] is None
    image = viewer.response("blob", column="b", row="0")
    assert (image.status, image.media_type, image.data) == (200, "image/png", PNG)
    other = viewer.response("blob", column="b", row="2")
    assert (other.media_type, other.data) == ("application/octet-stream", page)
    assert other.headers["Content-Disposition"].startswith("attachment")
    assert viewer.get("blob", 404, column="b", row="3")["error"]


def test_large_blobs_are_not_read_for_the_page(tmp_path, monkeypatch):
    viewer = of_blobs(tmp_path, "2.2", [PNG])
    monkeypatch.setattr(rows, "VALUE_BYTES_MAX", 8)
    assert "take_blobs" in viewer.get("blob", 400, column="b", row="0")["error"]


def test_values_of_results_are_served(tmp_path):
    lancelet.write_dataset(pa.table({"p": pa.array([PNG])}), str(tmp_path / "t.lance"))
    viewer = Viewer(tmp_path, "t.lance")
    result = viewer.get("sql", query="SELECT p FROM dataset")["result"]
    assert viewer.response("blob", result=result, row="0", column="p").media_type == "image/png"
    assert viewer.get("blob", 404, result=result, row="9", column="p")["error"]


def test_rows_have_stable_ids_where_the_table_has_them(tmp_path):
    values = pa.table({"id": [1, 2, 3]})
    stable = lancelet.write_dataset(values, str(tmp_path / "s.lance"), enable_stable_row_ids=True)
    stable.update({"id": "20"}, where="id = 2")
    viewer = Viewer(tmp_path, "s.lance")
    assert viewer.get("describe")["has_stable_row_ids"]
    found = viewer.get("rows")
    assert dict(zip(found["ids"], [row[0]["number"] for row in found["rows"]], strict=True)) == {
        "0": "1",
        "1": "20",
        "2": "3",
    }
    assert viewer.get("row", row="1") == {"id": 20}


def test_hybrid_results_have_ids(tmp_path):
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(8, dtype=np.float32)), 2)
    table = lancelet.write_dataset(
        pa.table({"v": vectors, "text": ["a fox", "b", "c", "d"]}), str(tmp_path / "t.lance")
    )
    table.create_scalar_index("text", "INVERTED")
    found = Viewer(tmp_path, "t.lance").get("search", text="fox", column="v", row="3")
    assert sorted(found["ids"][:2]) == ["0", "3"]


def test_differences_are_rows_with_changed_cells(tmp_path):
    table = lancelet.write_dataset(
        pa.table({"id": [1, 2, 3], "x": [float("nan"), 2.0, 3.0]}),
        str(tmp_path / "t.lance"),
        enable_stable_row_ids=True,
    )
    table.update({"id": "10"}, where="id = 1")
    table.delete("id = 3")
    table.insert(pa.table({"id": [4], "x": [4.0]}))
    viewer = Viewer(tmp_path, "t.lance")
    found = viewer.get("difference", begin="4", end="1")  # in either order
    assert (found["begin"], found["end"], found["columns"]) == (1, 4, ["id", "x"])
    changes = {each["kind"]: each for each in found["changes"]}
    assert changes["update"]["changed"] == [True, False]
    assert changes["update"]["before"] == [{"number": "1"}, None]
    assert changes["insert"]["cells"][0] == {"number": "4"}
    assert changes["delete"]["cells"][0] == {"number": "3"}
    assert {each["part"] for each in found["parts"]} == {"files"}
    assert viewer.get("difference", begin="2", end="2")["changes"] == []


def test_rows_that_are_not_tracked_are_matched_by_a_key(tmp_path):
    table = lancelet.write_dataset(pa.table({"id": [1, 2], "x": [1, 2]}), str(tmp_path / "t.lance"))
    table.update({"x": "5"}, where="id = 1")
    viewer = Viewer(tmp_path, "t.lance")
    assert viewer.get("difference", begin="1", end="2")["unknown"]
    [change] = viewer.get("difference", begin="1", end="2", on="id")["changes"]
    assert (change["kind"], change["changed"]) == ("update", [False, True])


def test_changes_of_versions_with_other_columns_are_shown(tmp_path):
    uri = str(tmp_path / "t.lance")
    table = lancelet.write_dataset(pa.table({"id": [1, 2]}), uri, enable_stable_row_ids=True)
    table.add_columns({"x": "id + 1"})
    table.delete("id = 2")
    found = Viewer(tmp_path, "t.lance").get("difference", begin="1", end="3")
    assert {"part": "schema", "kind": "+", "name": "x", "before": None, "after": "int64"} in found[
        "parts"
    ]


def test_plans_are_steps_with_properties_and_measurements(viewer):
    found = viewer.get("plan", filter="Upper = 1", measure="1")
    assert [each["depth"] for each in found["steps"]] == list(range(len(found["steps"])))
    assert found["measured"].startswith("rows=2 ")
    filters = [each for each in found["steps"] if each["name"] == "Filter"]
    assert filters[0]["text"] == "Upper = 1"
    assert filters[0]["metrics"]["output_rows"] == "2"
    read = next(each for each in found["steps"] if each["name"] == "LanceRead")
    assert dict(read["properties"])["num_fragments"] == "1"
    assert viewer.get("plan")["measured"] is None


def test_plans_of_unusual_texts_are_parsed(viewer):
    for text in ("a, rows=3: b", "a\n\nb", "metrics=[x", "]"):
        assert viewer.get("plan", filter=f"CAST(Upper AS string) = '{text}'")["steps"]
    assert plan_step("Version: 3 of 20 rows")["text"] == "3 of 20 rows"
    assert plan_step("")["name"] == ""


def test_plans_of_names_and_filters_with_line_breaks_have_one_line_per_step(tmp_path):
    lancelet.write_dataset({"": [1, 2], "a\nb": [1, 2]}, str(tmp_path / "t.lance"))
    viewer = Viewer(tmp_path, "t.lance")
    steps = viewer.get("plan", columns='[""]', filter="`a\nb` = 1\nAND `` > 0")["steps"]
    assert [each["depth"] for each in steps] == list(range(len(steps)))
    assert all(each["name"] for each in steps)
    assert viewer.get("plan", columns='["a\\nb"]', measure="1")["steps"][0]["text"] == r"a\nb"


def test_existing_names_and_conflicts_are_not_server_errors(viewer):
    viewer.shown = Shown(viewer.shown.root, can_write=True)
    tag = {"action": "tag", "name": "v1", "apply": "1"}
    assert viewer.response("change", "POST", **tag).status == 200
    for apply in ("1", "0"):
        response = viewer.response("change", "POST", **{**tag, "apply": apply})
        assert response.status == 409
        assert "already exists" in json.loads(response.data)["error"]


def test_long_values_have_no_filter_and_operators_are_not_completed(tmp_path):
    text = "x" * 1_000_000
    lancelet.write_dataset({"s": [text, text, "y"]}, str(tmp_path / "t.lance"))
    viewer = Viewer(tmp_path, "t.lance")
    top = viewer.get("statistics")["columns"][0]["top"]
    assert [each["filter"] for each in top] == [None, "s = 'y'"]
    calls = [word for word in viewer.get("describe")["filter_words"] if word.endswith("(")]
    assert calls
    assert all(word[:-1].isidentifier() for word in calls)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_null_blobs_are_exported(tmp_path, version):
    viewer = of_blobs(tmp_path, version, [PNG, None])
    for kind in ("csv", "json", "parquet", "arrow"):
        assert viewer.response("export", format=kind).status == 200
    exported = pq.read_table(io.BytesIO(viewer.response("export", format="parquet").data))
    assert [each is None for each in exported["b"].to_pylist()] == [False, True]


def test_a_query_is_stopped_when_its_client_has_left(viewer, monkeypatch):
    monkeypatch.setattr(sql_process, "_IDLE", [])
    numbers = "SELECT 1 AS n UNION ALL SELECT n + 1 FROM r"
    endless = f"WITH RECURSIVE r AS ({numbers}) SELECT count(*) FROM r"
    started = []
    before = sql_process._Worker.kill
    monkeypatch.setattr(
        sql_process._Worker, "kill", lambda self: started.append(self.process) or before(self)
    )
    request = Request("GET", "/api/sql", {"table": viewer.table, "query": endless}, {})
    request.abandoned.set()
    response = server.answer(viewer.shown, request)
    assert json.loads(response.data)["kind"] == "CancelledError"
    assert [process.is_alive() for process in started] == [False]
    assert sql_process._IDLE == []
    assert viewer.get("sql", query="SELECT 1 AS n FROM dataset")["columns"] == ["n"]
    assert len(sql_process._IDLE) == 1


def test_health_recommends_maintenance(viewer):
    found = viewer.get("health")
    assert (found["findings"], found["steps"]) == ([], [])
    table = lancelet.dataset(f"{viewer.shown.root}/t.lance")
    table.delete("Upper = 1")
    found = viewer.get("health")
    assert [each["step"] for each in found["steps"]] == ["compact"]
    assert found["counts"]["deleted_rows"] == 2


def test_a_folder_keeps_its_port_unless_it_is_in_use(tmp_path, monkeypatch):
    shown = Shown(str(tmp_path))
    addresses = []
    monkeypatch.setattr(server.HttpServer, "wait", lambda _: None)

    def nested(address):
        addresses.append(address)
        if len(addresses) == 1:
            server.serve(shown, None, nested)

    server.serve(shown, None, nested)
    ports = [urlsplit(address).port for address in addresses]
    assert ports[0] == server.port_of(f"{tmp_path}/../{tmp_path.name}")
    assert ports[1] != ports[0]
    with server.server_of(shown)[0] as other, pytest.raises(OSError, match="in use"):
        server.serve(shown, other.port, nested)


@pytest.mark.parametrize("port", ["99999", "-5", "used"])
def test_a_port_that_cannot_be_used_is_an_error(tmp_path, port):
    lancelet.write_dataset({"a": [1]}, tmp_path / "t.lance")
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        used.listen()
        number = str(used.getsockname()[1]) if port == "used" else port
        command = [sys.executable, "-m", "lancelet", "view", str(tmp_path), "--port", number]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr
