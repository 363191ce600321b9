"""What is imported, and when: a package of names costs nothing until one of them is used."""

import ast
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow as pa
import pytest

import lancelet

SOURCE = ast.parse(Path(lancelet.__file__).read_text())


def run(program):
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def names_for_readers_of_types():
    (block,) = (
        node
        for node in SOURCE.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    for node in block.body:
        for alias in node.names:
            name = alias.asname or alias.name
            yield name, node.module if name == alias.name else f"{node.module}:{alias.name}"


def names_on_demand():
    (call,) = (
        node.value
        for node in SOURCE.body
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    )
    return ast.literal_eval(call.args[1])


def test_both_lists_of_names_are_one():
    assert names_on_demand() == dict(names_for_readers_of_types())


def test_every_public_name_is_there():
    assert set(names_on_demand()) | {"__version__"} == set(lancelet.__all__)
    assert all(getattr(lancelet, name) is not None for name in lancelet.__all__)
    assert set(lancelet.__all__) <= set(dir(lancelet))


def test_importing_the_package_imports_nothing_heavy():
    heavy = "{'numpy', 'pyarrow', 'pandas', 'google.protobuf', 'lancelet.dataset'}"
    found = run(f"import sys, lancelet; print(sorted({heavy} & set(sys.modules)))")
    assert found.strip() == "[]"


@pytest.mark.parametrize("name", ["blob", "fragment", "indices", "optimize", "udf", "util"])
def test_modules_are_attributes(name):
    assert run(f"import lancelet; print(lancelet.{name}.__name__)").strip() == f"lancelet.{name}"


@pytest.mark.parametrize("first", ["lancelet.dataset.write.write", "lancelet.blob", "lancelet"])
def test_a_function_and_a_module_can_share_a_name(first):
    program = f"import {first}, lancelet, inspect; print(inspect.isfunction(lancelet.dataset))"
    assert run(program).strip() == "True"


def test_unknown_names_are_import_errors():
    assert not hasattr(lancelet, "no_such_name")
    with pytest.raises(ImportError, match="no_such_name"):
        from lancelet import no_such_name  # noqa: F401


def test_names_can_be_replaced(monkeypatch):
    monkeypatch.setattr(lancelet, "dataset", "another")
    assert lancelet.dataset == "another"


def test_functions_that_use_a_package_are_sent_to_workers():
    import pickle

    from pyspark import cloudpickle

    import lancelet
    from lancelet import spark

    assert pickle.loads(pickle.dumps(lancelet)) is lancelet
    send = cloudpickle.loads(cloudpickle.dumps(lambda: (lancelet, spark)))
    assert send() == (lancelet, spark)


def test_reading_a_table_imports_nothing_that_only_changes_or_searches_it(tmp_path):
    lancelet.write_dataset(pa.table({"id": [1, 2]}), tmp_path / "t")
    program = f"""
        import sys, lancelet
        lancelet.dataset({str(tmp_path / "t")!r}).to_table(filter="id > 1")
        idle = (
            *("lancelet.upkeep.compact", "lancelet.change.merge", "lancelet.upkeep.cleanup"),
            *("lancelet.upkeep.indexing.build", "lancelet.upkeep.check.run"),
            "lancelet.change.columns.add",
            *("lancelet.index.registry", "lancelet.index.inverted", "lancelet.index.vector.kind"),
            *("lancelet.search.text", "lancelet.search.vector"),
            *("lancelet.io.remote", "lancelet.io.client", "lancelet.table.handlers.sqlite"),
            *("lancelet.encodings.v2_0", "lancelet.encodings.v2_3"),
        )
        print([name for name in idle if name in sys.modules])
    """
    assert run(textwrap.dedent(program)).strip() == "[]"


def test_reading_a_table_loads_neither_pandas_nor_optional_parts_of_arrow(tmp_path):
    table = pa.table({"id": [1, 2, 3, 4], "name": ["a", "b", "c", "d"]})
    lancelet.write_dataset(table, tmp_path / "t", max_rows_per_file=2)
    program = f"""
        import sys, lancelet
        dataset = lancelet.dataset({str(tmp_path / "t")!r})
        dataset.take([1]), dataset.take([3, 0, 1, 1]), dataset.count_rows()
        idle = "pandas", "pyarrow._dataset_parquet", "pyarrow._s3fs", "pyarrow.vendored.docscrape"
        print([name for name in idle if name in sys.modules])
        for filter in "id = 1", "id > 0.5 and id < 3", "id in (1, 5)", "id is null or not id = 7":
            dataset.to_table(filter=filter), dataset.count_rows(filter)
        assert "pandas" not in sys.modules

        import pyarrow as pa, pyarrow.dataset, pyarrow.fs
        from pyarrow import compute, fs
        from pyarrow.dataset import ParquetFileFormat, field
        assert isinstance(dataset, pa.dataset.Dataset)
        assert compute.Expression is pa.compute.Expression is pa.dataset.Expression
        assert compute.add(1, 2).as_py() == 3 and field("id").equals(compute.field("id"))
        assert "write_dataset" in dir(pa.dataset) and hasattr(fs, "S3FileSystem") in (True, False)
        import pyspark.cloudpickle as pickle
        assert pickle.loads(pickle.dumps(lambda: pa.dataset))() is pa.dataset
        for late in compute, fs, pa.dataset:
            assert not hasattr(late, "no_such_name") and not hasattr(late, "__wrapped__")
    """
    assert run(textwrap.dedent(program)).strip() == "[]"


@pytest.mark.parametrize("name", ["compute", "fs", "dataset"])
def test_names_of_cores_are_those_of_their_modules(name):
    program = f"""
        import importlib, types
        name = {name!r}
        core = importlib.import_module(f"pyarrow._{{name}}")
        whole = importlib.import_module(f"pyarrow.{{name}}")
        both = [each for each in vars(whole) if each in vars(core) and each[0] != "_"]
        print(len(both) > 3, [each for each in both if vars(whole)[each] is not vars(core)[each]])
    """
    assert run(textwrap.dedent(program)).strip() == "True []"


def test_concurrent_threads_can_import_a_lazy_module(tmp_path):
    (tmp_path / "slowly").mkdir()
    (tmp_path / "slowly" / "__init__.py").write_text("")
    (tmp_path / "slowly" / "core.py").write_text("near = 1\n")
    (tmp_path / "slowly" / "whole.py").write_text(
        "import time\nnear = 1\ntime.sleep(0.2)\nprint('loaded')\nfar = 2\n"
    )
    program = f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        from concurrent.futures import ThreadPoolExecutor
        from lancelet.on_demand import load_late
        from slowly import core
        load_late("slowly.whole", core)
        from slowly import whole
        print(whole.near, [*ThreadPoolExecutor(4).map(lambda _: whole.far, range(4))])
    """
    assert run(textwrap.dedent(program)).split("\n")[:2] == ["loaded", "1 [2, 2, 2, 2]"]


@pytest.mark.parametrize("collects", [True, False])
def test_garbage_is_collected_after_imports_if_it_was_before(collects):
    program = f"""
        import gc, weakref, lancelet
        class Node: pass
        node = Node(); node.own, seen = node, weakref.ref(node)
        del node
        {"gc.enable()" if collects else "gc.disable()"}
        lancelet.dataset
        print(gc.isenabled(), gc.get_freeze_count())
        gc.collect()
        print(seen())
    """
    assert run(textwrap.dedent(program)).split() == [str(collects), "0", "None"]


FORKED = """
import os, signal, sys, threading, time
sys.path.insert(0, sys.argv[1])
import slowly

thread = threading.Thread(target=lambda: slowly.name)
thread.start()
while "slowly.home" not in sys.modules:
    time.sleep(0.001)
child = os.fork()
if not child:
    signal.alarm(30)
    os._exit(slowly.name)
_, status = os.waitpid(child, 0)
thread.join()
sys.exit(os.waitstatus_to_exitcode(status))
"""


ON_DEMAND = """
from lancelet.on_demand import import_on_demand
import_on_demand(__name__, {'name': 'slowly.home'})
"""
WITHIN_A_FUNCTION = """
import importlib, lancelet
def __getattr__(name):
    return getattr(importlib.import_module('slowly.home'), name)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.parametrize("imports", [ON_DEMAND, WITHIN_A_FUNCTION])
def test_a_fork_waits_for_imports_of_other_threads(tmp_path, imports):
    package = tmp_path / "slowly"
    package.mkdir()
    (package / "__init__.py").write_text(imports)
    (package / "home.py").write_text("import time\ntime.sleep(0.5)\nname = 7\n")
    command = [sys.executable, "-W", "ignore", "-c", FORKED, str(tmp_path)]
    assert subprocess.run(command, check=False, timeout=120).returncode == 7


def test_a_table_is_first_read_after_the_main_thread_has_ended(tmp_path):
    lancelet.write_dataset(pa.table({"a": range(100)}), tmp_path / "t", max_rows_per_file=10)
    program = f"""
        import lancelet, threading
        def read():
            threading.main_thread().join()
            print(lancelet.dataset({str(tmp_path / "t")!r}).to_table(filter="a < 5").num_rows)
        threading.Thread(target=read).start()
    """
    assert run(textwrap.dedent(program)).strip() == "5"


@pytest.mark.parametrize(
    "when", ["atexit.register(change)", "threading.Thread(target=late).start()"]
)
def test_a_table_is_changed_after_the_main_thread_has_ended(tmp_path, when):
    program = f"""
        import atexit, datetime, lancelet, threading
        def change():
            rows = {{"a": range(400)}}
            table = lancelet.write_dataset(rows, {str(tmp_path / "t")!r}, max_rows_per_file=4)
            table.delete("a = 2")
            table.optimize.compact_files(target_rows_per_fragment=40)
            gone = table.cleanup_old_versions(datetime.timedelta(0), delete_unverified=True)
            assert gone.data_files_removed == 100, gone
            print(table.count_rows())
        def late():
            threading.main_thread().join()
            change()
        {when}
    """
    assert run(textwrap.dedent(program)).strip() == "399"


@pytest.mark.parametrize("options", [(), ("-OO",)])
def test_python_may_leave_docstrings_out(tmp_path, options):
    program = f"""
        import lancelet, pyarrow as pa
        table = lancelet.write_dataset(pa.table({{"a": [1, 2]}}), {str(tmp_path / "t")!r})
        print(table.to_table(filter="a > 1").num_rows, bool(table.to_table.__doc__))
    """
    for arguments, wanted in (
        (["-c", textwrap.dedent(program)], f"1 {not options}"),
        (["-m", "lancelet", "--help"], "usage: lancelet COMMAND"),
    ):
        command = [sys.executable, *options, *arguments]
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        assert found.stdout.startswith(wanted)


def test_a_program_that_disabled_garbage_collection_keeps_it_disabled():
    program = """
import gc, threading, sys, types
from lancelet.on_demand import _IMPORTS

with _IMPORTS.one_more():
    gc.disable()
assert not gc.isenabled()
gc.enable()
import lancelet
lancelet.write_dataset
assert gc.isenabled()
"""
    run(program)


def test_forks_wait_once_for_a_program_that_runs_inside_an_import(tmp_path):
    (tmp_path / "program.py").write_text(
        """
import os, threading, time
import lancelet.on_demand as on_demand

waits = []
original = on_demand._IMPORTS._changed.wait

def fork():
    for _ in range(3):
        before = looks[0]
        pid = os.fork()
        if not pid:
            os._exit(0)
        os.waitpid(pid, 0)
        waits.append(looks[0] - before)

looks = [0]

def counted(timeout):
    looks[0] += 1
    return original(timeout)

on_demand._IMPORTS._changed.wait = counted
thread = threading.Thread(target=fork)
thread.start()
thread.join()
assert waits[0] > 0, waits
assert waits[1:] == [0, 0], waits
print("done")
"""
    )
    assert run(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import program") == "done\n"
