"""The command `ingest` loads files through a server of Spark Connect, on a cluster."""

import json
import subprocess
import sys

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

COMMAND = "import sys; from lancelet.cli.main import main; sys.exit(main(sys.argv[1:]))"


@pytest.mark.slow
def test_the_command_loads_through_a_server(server_address, environment, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(3):
        rows = pa.table({"id": range(10 * number, 10 * number + 10)})
        pq.write_table(rows, folder / f"{number}.parquet")
    uri = str(tmp_path / "t.lance")
    words = ["ingest", str(folder), uri, "--remote", server_address, "--json"]
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *words],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["version"], told["rows"]) == (1, 30)
    assert sorted(lance.dataset(uri).to_table()["id"].to_pylist()) == list(range(30))
