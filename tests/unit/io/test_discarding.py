"""A discarding store counts written bytes and reads existing objects."""

import pytest

from lancelet.errors import InvalidInputError
from lancelet.io.dry_run import DiscardingStore
from lancelet.io.memory import MemoryStore


@pytest.fixture
def inner(request):
    store = MemoryStore(request.node.name)
    store.put("a", b"abc")
    return store


def test_written_bytes_are_discarded(inner):
    store = DiscardingStore(inner)
    store.put("b", b"12345")
    store.put_if_absent("a", b"1")
    with store.at("folder").open_writer("c") as writer:
        writer.write(b"12", b"3")
        assert writer.position == 3
    abandoned = store.open_writer("d")
    abandoned.write(b"12")
    abandoned.abort()
    assert (store.num_objects, store.num_bytes) == (3, 9)
    assert [info.path for info in inner.list()] == ["a"]
    assert inner.read("a") == store.read("a") == b"abc"


def test_nothing_is_deleted_or_moved(inner):
    store = DiscardingStore(inner)
    store.delete("a")
    store.delete_many(["a"])
    store.delete_folder("")
    store.copy("a", "b")
    store.rename_if_absent("a", "b")
    store.put_best_effort("c", b"")
    assert [info.path for info in inner.list()] == ["a"]
    assert (store.num_objects, store.num_bytes) == (2, 3)  # under its new name, and the note
    assert (store.num_deleted, store.deleted_bytes) == (1, 3)
    store.delete("never there")
    assert store.num_deleted == 1


def test_names_are_checked_as_by_any_store(inner):
    store = DiscardingStore(inner)
    with pytest.raises(InvalidInputError):
        store.put("../b", b"")
    with pytest.raises(InvalidInputError):
        store.open_writer("/b")
