"""Loading files into tables, by functions and by the command `ingest`."""

import json
import subprocess
import sys

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lancelet import spark as ls
from lancelet.spark.loading import load


@pytest.fixture
def uri(tmp_path):
    return str(tmp_path / "t.lance")


def test_parquet_is_loaded_in_tasks_of_a_session_and_checked(spark, uri, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    rows = pa.table({"id": pa.array(range(20), pa.uint16()), "name": ["x"] * 20})
    for number in range(2):
        pq.write_table(rows.slice(10 * number, 10), folder / f"{number}.parquet")
    for expected in (20, 40):
        assert load(str(folder), uri, spark=spark).num_rows == 20
        assert lance.dataset(uri).count_rows() == expected
    assert lance.dataset(uri).schema.field("id").type == pa.uint16()
    assert ls.migrate(uri, "2.2", spark=spark).version == 3
    assert ls.check(uri, spark=spark) == []
    assert ls.convert(uri, tmp_path / "out", spark=spark).num_rows == 40
    assert pq.read_table(tmp_path / "out").num_rows == 40


def test_formats_supported_only_by_spark_use_its_reader(spark, uri, tmp_path):
    (tmp_path / "a.csv").write_text("id,name\n1,a\n2,b\n")
    options = {"header": "true", "inferSchema": "true"}
    load(str(tmp_path / "a.csv"), uri, source_format="csv", read_options=options, spark=spark)
    assert lance.dataset(uri).to_table().to_pydict() == {"id": [1, 2], "name": ["a", "b"]}


@pytest.mark.slow
def test_the_command_loads_on_this_machine(uri, tmp_path):
    pq.write_table(pa.table({"id": range(5)}), tmp_path / "a.parquet")
    words = ["ingest", str(tmp_path), uri, "--master", "local[2]", "--json"]
    code = "import sys; from lancelet.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    told = json.loads(done.stdout)
    assert (told["version"], told["rows"]) == (1, 5)
    assert lance.dataset(uri).count_rows() == 5
