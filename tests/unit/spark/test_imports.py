"""Workers of Spark are short-lived, so what they import is what they need."""

import subprocess
import sys

import pytest

CHECK = """
import sys
before = set(sys.modules)
{program}
found = {{name for name in sys.modules if name.startswith("lancelet")}}
heavy = {{"pandas", "duckdb", "torch", "obstore"}} & (set(sys.modules) - before)
assert not heavy, heavy
assert not {unused} & found, sorted({unused} & found)
"""
SCAN = """
from lancelet.jobs.table_ref import TableRef
from lancelet.spark.options import ReadOptions
from lancelet.spark.reader import pinned, plan_tasks, run_scan, schema_of_snapshot
from lancelet.spark.types import arrow_schema
wanted = ReadOptions(TableRef.of({uri!r}))
snapshot = pinned(wanted)
schema = schema_of_snapshot(snapshot, wanted)
tasks = plan_tasks(snapshot, wanted, tuple(schema.fieldNames()))
assert sum(batch.num_rows for task in tasks for batch in run_scan(task, arrow_schema(schema))) == 3
"""


SCHEMA = """
from pyspark_lance import DefaultSource
assert DefaultSource({{"path": {uri!r}}}).schema().fieldNames() == ["id", "name", "v"]
"""


def run(program, unused):
    code = CHECK.format(program=program, unused=unused)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def uri(tmp_path):
    import pyarrow as pa

    import lancelet

    path = str(tmp_path / "t.lance")
    vectors = pa.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], pa.list_(pa.float32(), 2))
    lancelet.write_dataset(pa.table({"id": range(3), "name": ["a", None, "c"], "v": vectors}), path)
    return path


def test_a_scan_imports_neither_pandas_nor_write_modules(uri):
    unused = {"lancelet.spark.merging", "lancelet.upkeep.compact.run", "lancelet.dataset.dataset"}
    run(SCAN.format(uri=uri), unused)


@pytest.mark.parametrize("module", ["writer", "stream_reader", "stream_writer", "merging"])
def test_nothing_imports_pandas_before_there_are_rows(module):
    run(f"import lancelet.spark.{module}", set())


def test_a_schema_imports_nothing_of_streams(uri):
    run(SCHEMA.format(uri=uri), {"lancelet.spark.stream_reader", "lancelet.spark.merging"})


@pytest.mark.parametrize("module", ["pyspark_lance", "lancelet.spark", "lancelet.dataset"])
def test_packages_import_next_to_nothing(module):
    unused = {"lancelet.spark.reader", "lancelet.table.snapshot", "lancelet.dataset.dataset"}
    run(f"import {module}", unused)
