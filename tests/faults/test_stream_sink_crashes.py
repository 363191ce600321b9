"""Batches of a stream whose driver crashes at any store request and restarts.

Goal: no row is lost or there twice, whatever was done when it died. Method: the process of the
sink ends before or behind the first request that changes the store, then the second, and so on,
and does nothing more from there on; Spark then runs the batch again with another sink, and goes on
with the next one. To end between other requests is to end before the next change.
"""

import contextlib
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from lancelet import spark as ls
from lancelet.io.wrapped import WrappedStore
from lancelet.jobs import table_ref
from lancelet.spark.types import spark_schema
from pyspark_lance import DefaultSource


class Died(BaseException):
    """The end of the process; nobody catches it."""


class Dying:
    """Lets requests pass until one, before or behind which the process ends."""

    def __init__(self, at, *, is_done):
        self.left, self.is_done, self.has_died, self.is_over = at, is_done, False, False

    def request(self, request, action):
        if self.is_over or not (self.has_died or request.is_change):
            return action()
        self.left -= 1
        if self.left >= 0:
            return action()
        if not self.has_died and self.is_done:
            # A file that was not closed goes with the process.
            getattr(action(), "abort", lambda: None)()
        self.has_died = True
        raise Died(request)


@pytest.fixture
def dying(monkeypatch):
    """Make all stores of tables die as a value says, while there is one."""
    current = []
    locate = table_ref._locate

    def located(*arguments):
        location = locate(*arguments)
        if not current:
            return location
        return replace(location, store=WrappedStore(location.store, current[-1]))

    monkeypatch.setattr(table_ref, "_locate", located)
    return current


def rows(*ids, name):
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [name] * len(ids)})


class Stream:
    def __init__(self, folder, mode):
        self.uri = str(folder / "t.lance")
        checkpoint = folder / "checkpoint"
        checkpoint.mkdir(parents=True)
        (checkpoint / "metadata").write_text(json.dumps({"id": "a stream"}))
        options = {"path": self.uri, "checkpointLocation": str(checkpoint)}
        if mode == "upsert":
            options["upsert_on"] = "id"
        self.source = DefaultSource(CaseInsensitiveDict(options))
        self.overwrite = mode == "complete"

    def send(self, number, *parts):
        schema = spark_schema(parts[0].schema)
        messages = [self.writer(schema).write(iter(part.to_batches())) for part in parts]
        self.writer(schema).commit(messages, number)

    def writer(self, schema):
        return self.source.streamWriter(schema, self.overwrite)

    def rows(self):
        found = lance.dataset(self.uri).to_table().sort_by("id")
        return list(zip(*found.to_pydict().values(), strict=True))

    def files(self):
        return {path.name for path in (Path(self.uri) / "data").iterdir()}

    def used_files(self):
        fragments = lance.dataset(self.uri).get_fragments()
        return {file.path for each in fragments for file in each.data_files()}


BATCHES = [
    (rows(1, 2, name="a"), rows(3, name="a")),
    (rows(2, 4, name="b"), rows(5, name="b")),
    (rows(5, 6, name="c"),),
]
EXPECTED = {
    "append": [(1, "a"), (2, "a"), (2, "b"), (3, "a"), (4, "b"), (5, "b"), (5, "c"), (6, "c")],
    "complete": [(5, "c"), (6, "c")],
    "upsert": [(1, "a"), (2, "b"), (3, "a"), (4, "b"), (5, "c"), (6, "c")],
}


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("crashed", [pytest.param(0, marks=pytest.mark.slow), 1])
@pytest.mark.parametrize("mode", ["append", "complete", "upsert"])
def test_a_batch_is_written_once_after_any_driver_crash(tmp_path, dying, mode, crashed, is_done):
    at = 0
    while True:
        stream = Stream(tmp_path / str(at), mode)
        for number, parts in enumerate(BATCHES):
            if number == crashed:
                dying.append(Dying(at, is_done=is_done))
                with contextlib.suppress(Died):
                    stream.send(number, *parts)
                fault = dying.pop()
                # What this process keeps open belongs to the next one now.
                fault.is_over = True
            if number != crashed or fault.has_died:
                stream.send(number, *parts)
        assert sorted(stream.rows()) == EXPECTED[mode], f"died at request {at}"
        ls.cleanup(stream.uri, older_than=timedelta(0), delete_unverified=True)
        used = {
            file.path
            for each in lance.dataset(stream.uri).get_fragments()
            for file in each.data_files()
        }
        assert {path.name for path in (Path(stream.uri) / "data").iterdir()} == used
        if not fault.has_died:
            break
        at += 1
    assert at >= 3
