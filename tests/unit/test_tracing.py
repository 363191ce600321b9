"""Events of datasets and files in the order in which they happen, also as a file for Chrome."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import pyarrow as pa
import lancelet
from lancelet.tracing import capture_trace_events, trace_to_chrome
events = []
capture_trace_events(events.append)
trace_to_chrome(file={trace!r})
dataset = lancelet.write_dataset(pa.table({{"x": range(100)}}), {uri!r})
dataset.delete("x < 5")
import atexit, json
atexit.register(lambda: print(json.dumps([[each.target, each.args] for each in events])))
# Called before those that were registered earlier: wait for the queue first.
import time
while len(events) < 9:
    time.sleep(0.01)
"""


@pytest.fixture
def traced(tmp_path):
    trace, uri = str(tmp_path / "trace.json"), str(tmp_path / "t")
    program = PROGRAM.format(trace=trace, uri=uri)
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    with Path(trace).open() as file:
        return json.loads(done.stdout), json.load(file), uri


def test_events_are_recorded_in_order_and_written_for_chrome(traced):
    events, trace, uri = traced
    said = [args.get("event") or (args["mode"], args["type"]) for _, args in events]
    assert said == [
        *("loading", "writing", ("create", "data"), "loading", ("create", "manifest")),
        *("committed", ("create", "deletion"), ("create", "manifest"), "committed"),
    ]
    committed = events[5][1]
    assert committed["uri"].endswith(uri.rsplit("/", 1)[1])
    assert (committed["read_version"], committed["committed_version"]) == ("0", "1")
    assert (committed["operation"], committed["detached"]) == ("Overwrite", "false")
    assert all(args["timestamp"] and args["client_version"] for _, args in events)
    instants = [entry for entry in trace if entry["ph"] == "i"]
    assert [entry["args"] for entry in instants] == [args for _, args in events]
    spans = [entry for entry in trace if entry["ph"] == "X"]
    assert spans
    assert all(entry["dur"] >= 0 and entry["ts"] >= 0 for entry in spans)


def test_without_sinks_nothing_is_recorded():
    from lancelet.io.memory import MemoryStore
    from lancelet.io.trace_events import EventSinks

    sinks = EventSinks()
    store = MemoryStore.unnamed()
    assert sinks.wrap(store) is store
    sinks.emit("target", event="lost")
    told = []
    sinks.add(told.append)
    sinks.emit("target", event="heard")
    assert [event.args["event"] for event in told] == ["heard"]
