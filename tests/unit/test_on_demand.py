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
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
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


@pytest.mark.parametrize("first", ["lancelet.dataset.write", "lancelet.blob", "lancelet"])
def test_a_function_keeps_its_name_beside_the_module_of_that_name(first):
    program = f"import {first}, lancelet, inspect; print(inspect.isfunction(lancelet.dataset))"
    assert run(program).strip() == "True"


def test_what_is_not_there_is_missing():
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
            *("lancelet.ops.compact", "lancelet.ops.merge_insert", "lancelet.ops.cleanup"),
            *("lancelet.ops.indexing.build", "lancelet.ops.columns.add", "lancelet.ops.check.run"),
            *("lancelet.index.registry", "lancelet.index.inverted", "lancelet.index.vector.kind"),
            *("lancelet.query.search.text", "lancelet.query.search.vector"),
            *("lancelet.io.remote", "lancelet.io.client", "lancelet.table.handlers.sqlite"),
            *("lancelet.encodings.v2_0", "lancelet.encodings.v2_3"),
        )
        print([name for name in idle if name in sys.modules])
    """
    assert run(textwrap.dedent(program)).strip() == "[]"


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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_fork_waits_for_what_other_threads_import(tmp_path):
    package = tmp_path / "slowly"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from lancelet.on_demand import import_on_demand\n"
        "import_on_demand(__name__, {'name': 'slowly.home'})\n"
    )
    (package / "home.py").write_text("import time\ntime.sleep(0.5)\nname = 7\n")
    command = [sys.executable, "-W", "ignore", "-c", FORKED, str(tmp_path)]
    assert subprocess.run(command, check=False, timeout=120).returncode == 7
