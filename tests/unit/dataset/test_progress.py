"""Long calls report progress by a bar or a function; an exception of the function stops them."""

import importlib.util
import sys
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.dataset.show import progress_bars
from lancelet.errors import InvalidInputError
from lancelet.fragment import write_fragments
from lancelet.progress import IndexProgress


@pytest.fixture
def table():
    rows = {"id": range(100), "v": np.zeros((100, 4), np.float32), "text": ["a fox"] * 100}
    return lancelet.write_dataset(rows, "memory://", max_rows_per_file=10)


def rebuild(table, **options):
    table.create_scalar_index("id", "BTREE")
    table.insert({"id": [100]})
    table.optimize.optimize_indices(**options)


def clean(table, **options):
    table.delete("id < 50")
    table.optimize.compact_files()
    return table.cleanup_old_versions(timedelta(0), **options)


CALLS = {
    "find rows": lambda table, **options: table.delete("id < 25", **options),
    "write deletions": lambda table, **options: table.update({"id": "id"}, "id < 5", **options),
    "validate fragments": lambda table, **options: table.validate(**options),
    "count rows": lambda table, **options: table.repair(rebuild_counts=True, **options),
    "restore fragments": lambda table, **options: table.repair(
        restore_fragments=[0], source=1, **options
    ),
    "write rows": lambda table, **options: table.insert({"id": [1]}, **options),
    "match keys": lambda table, **options: (
        table.merge_insert("id").when_matched_update_all().execute({"id": [1]}, **options)
    ),
    "compact fragments": lambda table, **options: table.optimize.compact_files(**options),
    "optimize indices": rebuild,
    "delete files": clean,
    "check version 1": lambda table, **options: table.check(**options),
    "train_btree": lambda table, **options: table.create_scalar_index("id", "BTREE", **options),
    "tokenize_docs": lambda table, **options: table.create_scalar_index(
        "text", "INVERTED", **options
    ),
    "train_ivf": lambda table, **options: table.create_index(
        "v", "IVF_FLAT", num_partitions=1, **options
    ),
    "write columns": lambda table, **options: table.add_columns({"b": "id + 1"}, **options),
}


@pytest.mark.parametrize("stage", CALLS)
def test_a_function_is_called_from_the_start_to_the_end_of_each_stage(stage, table):
    events = []
    CALLS[stage](table, progress=events.append)
    assert all(isinstance(event, IndexProgress) for event in events)
    assert stage in {event.stage for event in events}
    own = [event for event in events if event.stage == stage]
    assert (own[0].event, own[-1].event) == ("start", "complete")
    assert own[-1].completed == own[-1].total > 0
    done = [event.completed for event in own[1:]]
    assert done == sorted(done)


FRAGMENTS = [
    lambda table, **options: write_fragments({"id": [1]}, table, **options),
    lambda table, **options: lancelet.LanceFragment.create(table.uri, {"id": [1]}, **options),
]


@pytest.mark.parametrize("write", FRAGMENTS, ids=["several", "one"])
def test_writes_of_fragments_show_how_far_they_are_and_stop_too(write, table):
    events = []
    write(table, progress=events.append)
    assert {event.stage for event in events} == {"write rows"}
    assert (events[0].event, events[-1].event) == ("start", "complete")
    files = data_files(table)
    with pytest.raises(Stop):
        write(table, progress=stop)
    assert data_files(table) == files


class Stop(Exception):  # noqa: N818 - a decision of the caller
    pass


def stop(_):
    raise Stop


@pytest.mark.parametrize("stage", [each for each in CALLS if each != "delete files"])
def test_an_error_of_the_function_aborts_without_a_commit(stage, table):
    if stage == "optimize indices":
        table.create_scalar_index("id", "BTREE")
        table.insert({"id": [100]})
        call = table.optimize.optimize_indices
    else:
        call = lambda **options: CALLS[stage](table, **options)  # noqa: E731
    before, files = table.version, data_files(table)
    with pytest.raises(Stop):
        call(progress=stop)
    assert table.version == table.latest_version == before
    assert data_files(table) == files


def data_files(table):
    paths = table.all_files().read_all()["path"].to_pylist()
    return sorted(path for path in paths if "data/" in path)


@pytest.mark.parametrize("missing", [[], ["rich"], ["rich", "tqdm"]])
def test_bars_go_where_errors_go(missing, table, monkeypatch, capsys):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in missing else found(name)
    )
    table.optimize.compact_files(progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "compact fragments" in shown.err
    assert "1/1" in shown.err or "1 of 1" in shown.err


def test_lines_are_written_once_a_second_and_at_the_end_of_a_stage(monkeypatch, capsys):
    seconds = iter([0.0, 0.1, 0.5, 1.2, 1.3, 1.4])
    monkeypatch.setattr(progress_bars.surroundings, "monotonic", lambda: next(seconds))
    lines = progress_bars.TextLines(sys.stderr)
    for done in (0, 1, 2, 3):
        lines(IndexProgress("progress", "write rows", done, 3))
    lines(IndexProgress("complete", "write rows", 3, 3))
    shown = capsys.readouterr().err.splitlines()
    assert shown == ["write rows: 2 of 3, 1.1 s", "write rows: 3 of 3, 1.2 s"]


def test_work_without_a_stage_shows_nothing(tmp_path, capfd):
    dataset = lancelet.write_dataset({"a": [1]}, str(tmp_path / "t.lance"))
    dataset.optimize.compact_files(progress=True)
    assert capfd.readouterr() == ("", "")


def test_progress_is_a_choice_or_a_function(table):
    with pytest.raises(InvalidInputError, match="True, False or a function"):
        table.check(progress="yes")


def test_nothing_is_shown_by_default(table, capsys):
    table.optimize.compact_files(progress=False)
    lancelet.write_dataset(pa.table({"a": [1]}), "memory://")
    assert capsys.readouterr().err == ""


def test_a_notebook_without_widgets_prints_text(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "ipywidgets" else find_spec(name)
    )
    assert isinstance(progress_bars.new_bars(), progress_bars.TextLines)


def test_rows_are_counted_while_they_are_written() -> None:
    counts = []

    def note(event) -> None:
        if event.stage == "write rows":
            counts.append(event.completed)

    batches = [pa.record_batch({"id": [number, number]}) for number in range(3)]
    reader = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    lancelet.write_dataset(reader, "memory://", progress=note)
    assert {2, 4, 6} <= set(counts)
