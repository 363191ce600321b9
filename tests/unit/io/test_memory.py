"""Buckets in memory: named ones are shared, and one without a name is a new one each time."""

import pickle

from lancelet.io.open import open_store


def test_a_bucket_without_a_name_is_a_new_one_each_time():
    first, _ = open_store("memory://")
    second, _ = open_store("memory://")
    first.put("a", b"1")
    assert first.at("").read("a") == b"1"
    assert not second.exists("a")
    assert pickle.loads(pickle.dumps(first)).read("a") == b"1"


def test_a_named_bucket_is_one_for_the_process():
    first, _ = open_store("memory://named-for-this-test")
    second, _ = open_store("memory://named-for-this-test")
    first.put("a", b"1")
    assert second.read("a") == b"1"
