"""Index builds resume after an error or a crash."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import open_snapshot
from lancelet.upkeep.indexing.build import IndexRequest
from lancelet.upkeep.indexing.resume import resume_scalar_index

PARTS = 6
QUESTIONS = {
    "BTREE": ("a", "a < 9"),
    "BITMAP": ("a", "a IN (3, 4)"),
    "ZONEMAP": ("a", "a IS NULL"),
    "BLOOMFILTER": ("a", "a = 7"),
    "LABEL_LIST": ("l", "array_has(l, 2)"),
    "NGRAM": ("t", "contains(t, 'ord7')"),
    "FM": ("t", "contains(t, 'd7')"),
}
DIES = """
import sys, time
from lancelet.upkeep.indexing.build import IndexRequest
from lancelet.upkeep.indexing.resume import resume_scalar_index
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import open_snapshot

parts = 0

def report(event, stage, done, total):
    global parts
    if (event, stage) == ("start", "load_data"):
        parts += 1
        if parts > 3:
            print("begun", flush=True)
            time.sleep(600)

snapshot = open_snapshot(TableLocation.open(sys.argv[1]))
request = IndexRequest("a", "BTREE", progress=report)
resume_scalar_index(snapshot, request, part_rows=20)
"""


class StoppedError(Exception):
    """The caller had enough."""


class Watch:
    """Counts the parts that are built, and stops a build that begins one too many."""

    def __init__(self, parts_max: int = PARTS) -> None:
        self.parts = 0
        self._parts_max = parts_max

    def __call__(self, event: str, stage: str, *_counts: int) -> None:
        if (event, stage) == ("start", "load_data"):
            if self.parts == self._parts_max:
                raise StoppedError
            self.parts += 1


@pytest.fixture
def path(tmp_path):
    numbers = np.arange(20 * PARTS)
    rows = pa.table(
        {
            "a": pa.array(numbers % 97, mask=numbers % 10 == 3),
            "l": [[n % 5, n % 3] for n in numbers.tolist()],
            "t": [f"word{n} common" for n in numbers.tolist()],
        }
    )
    lancelet.write_dataset(rows, str(tmp_path / "t"), max_rows_per_file=20)
    return str(tmp_path / "t")


def build(path: str, kind: str, watch: Watch) -> None:
    snapshot = open_snapshot(TableLocation.open(path))
    request = IndexRequest(QUESTIONS[kind][0], kind, progress=watch)
    resume_scalar_index(snapshot, request, part_rows=20)


def check_answers(path: str, kind: str) -> None:
    dataset = lancelet.dataset(path)
    text = QUESTIONS[kind][1]
    assert "ScalarIndexQuery" in dataset.scanner(filter=text).explain_plan()
    found = dataset.to_table(filter=text)
    assert found == dataset.to_table(filter=text, use_scalar_index=False)
    assert found.num_rows
    (index,) = dataset.describe_indices()
    assert list(index.segments[0].fragment_ids) == list(range(PARTS))


def folders(path: str) -> set[str]:
    """Return the folders of segments that have anything in them."""
    return {file.parent.name for file in Path(path, "_indices").rglob("*") if file.is_file()}


@pytest.mark.parametrize("kind", QUESTIONS)
def test_a_build_that_was_stopped_continues_with_the_part_it_was_at(path, kind):
    with pytest.raises(StoppedError):
        build(path, kind, Watch(parts_max=4))
    assert not lancelet.dataset(path).describe_indices()
    rest = Watch()
    build(path, kind, rest)
    assert rest.parts == PARTS - 4
    check_answers(path, kind)
    (index,) = lancelet.dataset(path).describe_indices()
    left = folders(path) - {index.segments[0].uuid}
    # Partial files of the stopped build, if any; the cleanup removes them.
    assert len(left) <= 1


def test_a_build_that_was_killed_continues_with_the_part_it_was_at(path):
    child = subprocess.Popen([sys.executable, "-c", DIES, path], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"begun\n"
    child.send_signal(signal.SIGKILL)
    child.communicate()
    rest = Watch()
    build(path, "BTREE", rest)
    assert rest.parts == PARTS - 3
    check_answers(path, "BTREE")


def test_only_parts_whose_fragments_changed_are_built_again(path):
    with pytest.raises(StoppedError):
        build(path, "BTREE", Watch(parts_max=5))
    lancelet.dataset(path).delete("t = 'word25 common'")
    rest = Watch()
    build(path, "BTREE", rest)
    assert rest.parts == 2
    check_answers(path, "BTREE")


@pytest.mark.parametrize("kind", ["BITMAP", "BTREE"])
def test_parts_of_another_index_are_not_taken(path, kind):
    with pytest.raises(StoppedError):
        build(path, "BITMAP", Watch(parts_max=5))
    rest = Watch()
    build(path, kind, rest)
    assert rest.parts == (1 if kind == "BITMAP" else PARTS)
    check_answers(path, kind)


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_bytes(b"short")])
def test_a_part_that_is_damaged_is_built_again(path, damage):
    with pytest.raises(StoppedError):
        build(path, "BTREE", Watch(parts_max=5))
    damage(next(Path(path, "_indices").rglob("page_data.lance")))
    rest = Watch()
    build(path, "BTREE", rest)
    assert rest.parts == 2
    check_answers(path, "BTREE")


def test_a_damaged_record_is_ignored(path):
    with pytest.raises(StoppedError):
        build(path, "BTREE", Watch(parts_max=5))
    next(Path(path, "_indices").rglob("part.binpb")).write_bytes(b"\xff")
    rest = Watch()
    build(path, "BTREE", rest)
    assert rest.parts == 2


def test_an_index_of_one_part_is_built_as_ever(path):
    lancelet.dataset(path).create_scalar_index("a", "BTREE", resume=True)
    check_answers(path, "BTREE")
