"""Writes to an overlay store are readable there and leave the underlying store unchanged."""

from lancelet.io.dry_run import OverlayStore
from lancelet.io.memory import MemoryStore


def test_both_are_read_and_one_is_written(request):
    inner = MemoryStore(f"{request.node.name}-inner")
    scratch = MemoryStore(f"{request.node.name}-scratch")
    inner.put("a/old", b"abc")
    inner.put("kept", b"1")
    store = OverlayStore(inner, scratch)
    with store.at("a").open_writer("new") as writer:
        writer.write(b"12345")
    store.put("kept", b"22")
    assert (store.read("a/old"), store.read("a/new"), store.read("kept")) == (
        b"abc",
        b"12345",
        b"22",
    )
    assert [info.path for info in store.list()] == ["a/new", "a/old", "kept"]
    assert store.list_delimited("").folders == ("a",)
    store.delete("a/new")
    store.delete_folder("a")
    store.copy("a/old", "other")
    assert [info.path for info in store.list()] == ["a/old", "kept", "other"]
    assert [(info.path, info.size) for info in inner.list()] == [("a/old", 3), ("kept", 1)]
