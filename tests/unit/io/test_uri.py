from pathlib import Path

import pytest

from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.io import open_folder, open_store
from lancelet.io.uri import join, name, parent, parse_uri


@pytest.mark.parametrize(
    ("uri", "scheme", "authority", "path"),
    [
        ("s3://bucket/a/b.lance", "s3", "bucket", "a/b.lance"),
        ("S3://bucket//a///b/", "s3", "bucket", "a/b"),
        ("s3://bucket", "s3", "bucket", ""),
        ("s3://bucket/a?b#c%20d%zz", "s3", "bucket", "a?b#c d%zz"),
        ("s3+ddb://bucket/a%20b?ddbTableName=x", "s3+ddb", "bucket", "a b"),
        ("memory://shelf/a%20b", "memory", "shelf", "a%20b"),
        ("gs://bucket/a", "gs", "bucket", "a"),
        ("az://container/a", "az", "container", "a"),
        (
            "abfss://c@account.dfs.core.windows.net/a",
            "abfss",
            "c@account.dfs.core.windows.net",
            "a",
        ),
        ("memory://shelf/a", "memory", "shelf", "a"),
        ("memory://", "memory", "", ""),
        ("file:///data/my%20table", "file", "/", "data/my table"),
        ("file://localhost/data", "file", "/", "data"),
        ("file:/data/my%20table", "file", "/", "data/my table"),
        ("file-object-store:///data", "file", "/", "data"),
        ("/data/my%20table", "file", "/", "data/my%20table"),
        ("/data/../x/./y//z/", "file", "/", "x/y/z"),
        ("C:\\data\\t.lance", "file", "C:/", "data/t.lance"),
        ("c:/data/t.lance", "file", "C:/", "data/t.lance"),
        ("file:///C:/data/t.lance", "file", "C:/", "data/t.lance"),
        ("file://C:/data/t.lance", "file", "C:/", "data/t.lance"),
        ("\\\\server\\share\\a\\b", "file", "//server/share/", "a/b"),
    ],
)
def test_uri_is_parsed(uri, scheme, authority, path):
    location = parse_uri(uri)
    assert (location.scheme, location.authority, location.path) == (scheme, authority, path)


def test_relative_path_is_below_the_working_folder(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "/" + parse_uri("a/b").path == str(tmp_path / "a" / "b")
    assert parse_uri(Path("a")) == parse_uri("a") == parse_uri("./a")


def test_tilde_is_the_home_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    assert parse_uri("~/t").path == "home/somebody/t"
    assert parse_uri("/data/~t").path == "data/~t"


def test_query_of_an_external_store_becomes_options():
    location = parse_uri("s3+ddb://bucket/a/b?ddbTableName=locks")
    assert location.options == {"ddbTableName": "locks"}
    assert (location.authority, location.path) == ("bucket", "a/b")


@pytest.mark.parametrize("uri", ["", "\\\\server"])
def test_invalid_uris_are_rejected(uri):
    with pytest.raises(InvalidInputError):
        parse_uri(uri)


def test_unknown_scheme_names_the_known_ones():
    with pytest.raises(UnsupportedError) as caught:
        open_store("gopher://host/a")
    assert caught.value.facts["scheme"] == "gopher"
    assert "s3" in caught.value.facts["expected"]


def test_names_join_and_part():
    assert join("s3://b", "a", "c") == "s3://b/a/c"
    assert join("/", "a") == "/a"
    assert join("/data/", "a") == "/data/a"
    assert parent("a/b/c") == "a/b"
    assert name("a/b/c") == "c"


def test_store_and_path_are_those_of_the_uri(tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"x")
    store, path = open_store(tmp_path / "a" / "b")
    assert store.read(path) == b"x"
    assert open_folder(tmp_path / "a").read("b") == b"x"


def test_uri_of_a_store_opens_it_again(tmp_path: Path):
    store = open_folder(tmp_path / "a b%20c")
    store.put("x", b"1")
    assert open_folder(store.uri).read("x") == b"1"


def test_options_of_a_store_are_text():
    with pytest.raises(TypeError, match="storage options must be strings"):
        open_store("s3://bucket/a", {"client_max_retries": 3})
