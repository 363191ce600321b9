"""The fault injection itself: each request fails once, before or after it takes effect."""

import itertools

import pytest

from lancelet.buffers import ByteRanges
from lancelet.errors import (
    CommitOutcomeUnknownError,
    InvalidInputError,
    StorageUnavailableError,
)
from lancelet.io import Store
from lancelet.io.local import LocalStore
from lancelet.io.memory import MemoryStore
from tests.kit.faults import FaultyStore

OPERATIONS = [
    "open_writer",
    "write",
    "write",
    "close_writer",
    "put",
    "put_if_absent",
    "open_reader",
    "read_tail",
    "read_ranges",
    "list",
    "rename_if_absent",
    "delete",
]

_numbers = itertools.count()


def work(store: Store) -> None:
    """Ask for a bit of everything."""
    with store.open_writer("data/a") as writer:
        writer.write(b"0123")
        writer.write(b"456789")
    store.put("b", b"x")
    store.put_if_absent("v/1", b"x")
    with store.open_reader("data/a") as reader:
        assert reader.read_tail(2).tobytes() == b"89"
        assert len(reader.read_ranges(ByteRanges.of((0, 1), (2, 3)))) == 2
    assert len(list(store.list())) == 3
    store.rename_if_absent("b", "c")
    store.delete("c")


def test_requests_are_counted_in_order():
    store = FaultyStore(MemoryStore(f"faults-{next(_numbers)}"))
    work(store)
    assert [request.operation for request in store.log] == OPERATIONS
    assert store.requests == len(OPERATIONS)
    assert not store.fired


@pytest.mark.parametrize("at", range(len(OPERATIONS)))
def test_rejected_request_is_not_done(at: int, tmp_path):
    disk = LocalStore(tmp_path)
    store = FaultyStore(disk, "refuse", at=at)
    with pytest.raises(StorageUnavailableError) as caught:
        work(store)
    assert store.fired
    assert caught.value.facts["operation"] == OPERATIONS[at]
    done = OPERATIONS[:at]
    assert disk.exists("data/a") == ("close_writer" in done)
    assert disk.exists("v/1") == ("put_if_absent" in done)
    assert disk.exists("c") == ("rename_if_absent" in done)
    # Whatever was refused, nothing half-written is left behind.
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()]


@pytest.mark.parametrize("at", range(len(OPERATIONS)))
def test_request_whose_reply_is_lost_was_done(at: int, tmp_path):
    disk = LocalStore(tmp_path)
    store = FaultyStore(disk, "lose_reply", at=at)
    unsure = OPERATIONS[at] in {"put_if_absent", "rename_if_absent"}
    expected = CommitOutcomeUnknownError if unsure else StorageUnavailableError
    with pytest.raises(expected):
        work(store)
    assert store.fired
    done = OPERATIONS[: at + 1]
    assert disk.exists("data/a") == ("close_writer" in done)
    assert disk.exists("v/1") == ("put_if_absent" in done)
    assert disk.exists("c") == ("rename_if_absent" in done and "delete" not in done)
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()]


def test_only_picked_requests_count():
    store = FaultyStore(
        MemoryStore(f"faults-{next(_numbers)}"), at=1, only=lambda request: request.is_change
    )
    store.put("a", b"x")
    store.read("a")
    with pytest.raises(StorageUnavailableError):
        store.put("b", b"x")
    assert store.requests == 2
    assert store.at("folder").exists("a") is False


def test_unknown_fault_is_rejected():
    with pytest.raises(InvalidInputError):
        FaultyStore(MemoryStore(), "explode")  # type: ignore[arg-type]  # on purpose
