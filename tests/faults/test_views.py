"""Goal: a refresh is whole or absent, and concurrent refreshes count no change twice.

Method: every storage request of a refresh is refused once, and once done without a reply. The view
then shows one version of the source, and the next refresh is not disturbed. Two refreshes run at
once, each stopped before its commit until the other one is done.
"""

import contextlib
import threading
from dataclasses import replace

import pyarrow as pa
import pytest

import lancelet
from lancelet import views
from lancelet.errors import CommitOutcomeUnknownError, StorageError
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import open_snapshot
from lancelet.views.refresh import refresh
from tests.kit.faults import Fault, FaultyStore

_REQUESTS_MAX = 80
NO_SYNC = {"local_sync": "false"}
QUERIES = {
    "rows": "SELECT id, n * 2 AS twice FROM source WHERE n < 50",
    "groups": "SELECT city, count(*) AS n, sum(n) AS total FROM source GROUP BY city",
    "joined": "SELECT id, name FROM source LEFT JOIN names ON source.city = names.code",
    "joined groups": (
        "SELECT name, sum(n) AS total FROM source JOIN names ON city = code GROUP BY name"
    ),
}


def source_at(path):
    rows = pa.table({"id": range(12), "city": ["a", "b", "c"] * 4, "n": range(12)})
    return lancelet.write_dataset(rows, path, enable_stable_row_ids=True, max_rows_per_file=6)


def names_at(path):
    rows = {"code": ["a", "b", "c"], "name": ["Rome", "Oslo", "Bonn"]}
    return lancelet.write_dataset(rows, path, enable_stable_row_ids=True)


def tables_of(kind, names):
    return {"names": names} if kind.startswith("joined") else {}


def change_names(names):
    names.update({"name": "'Pisa'"}, where="code = 'a'")
    names.insert(pa.table({"code": ["d"], "name": ["Lima"]}))


def change(source):
    source.update({"n": "n + 1"}, where="id = 4")
    source.delete("city = 'c'")
    source.insert(pa.table({"id": [20], "city": ["d"], "n": [7]}))


def rows_of(view):
    return sorted(map(repr, view.to_table().to_pylist()))


def computed(source, path, query, tables=None):
    return rows_of(source.create_view(path, query, tables=tables))


def opened(datasets):
    return {
        name: open_snapshot(TableLocation.open(each.uri, NO_SYNC), each.version)
        for name, each in datasets.items()
    }


@pytest.mark.parametrize("fault", ["refuse", "lose_reply"])
@pytest.mark.parametrize("kind", QUERIES)
def test_a_refresh_is_whole_or_absent_at_every_request(tmp_path, kind, fault: Fault):
    source, query = source_at(tmp_path / "source"), QUERIES[kind]
    names = names_at(tmp_path / "names")
    tables = tables_of(kind, names)
    before = computed(source, tmp_path / "before", query, tables)
    copies = [
        source.create_view(tmp_path / str(number), query, tables=tables)
        for number in range(_REQUESTS_MAX)
    ]
    change(source)
    change_names(names)
    after = computed(source, tmp_path / "after", query, tables)
    landed = 0
    for request, view in enumerate(copies):
        plain = TableLocation.open(view.uri, NO_SYNC)
        store = FaultyStore(plain.store, fault, at=request)
        with contextlib.suppress(StorageError, CommitOutcomeUnknownError):
            refresh(
                open_snapshot(replace(plain, store=store)),
                open_snapshot(TableLocation.open(source.uri, NO_SYNC)),
                {},
                opened(tables),
            )
        found = lancelet.open_view(view.uri)
        is_after = found.source_version == source.version
        assert rows_of(found) == (after if is_after else before)
        landed += is_after
        assert found.refresh().end == source.version
        assert rows_of(found) == after
        if not store.fired:
            break
    assert not store.fired, "a refresh has more requests than there are views"
    assert request > 10
    assert landed > 1


@pytest.mark.parametrize("kind", QUERIES)
def test_concurrent_refreshes_count_no_change_twice(tmp_path, kind):
    source, query = source_at(tmp_path / "source"), QUERIES[kind]
    names = names_at(tmp_path / "names")
    tables = tables_of(kind, names)
    view = source.create_view(tmp_path / "view", query, tables=tables)
    change(source)
    first, first_names = lancelet.dataset(source.uri), lancelet.dataset(names.uri)
    source.update({"n": "n + 100"}, where="city = 'a'")
    change_names(names)
    after = computed(source, tmp_path / "after", query, tables)
    barrier = threading.Barrier(2)
    errors = []

    def run(snapshot, joined):
        try:
            barrier.wait()
            refresh(open_snapshot(TableLocation.open(view.uri)), snapshot, {}, joined)
        except Exception as error:  # noqa: BLE001 - checked below
            errors.append(error)

    sources = [
        (
            open_snapshot(TableLocation.open(source.uri), own.version),
            opened(tables_of(kind, joined)),
        )
        for own, joined in ((first, first_names), (source, names))
    ]
    threads = [threading.Thread(target=run, args=each) for each in sources]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    found = lancelet.open_view(view.uri)
    found.refresh()
    assert rows_of(found) == after
    versions = [each["version"] for each in found.dataset.versions()]
    assert len(versions) == len(set(versions))


def test_a_later_version_of_a_joined_table_is_counted_once(tmp_path, monkeypatch):
    """Two refreshes to the same version of the source start from the same version of the view."""
    source, names = source_at(tmp_path / "source"), names_at(tmp_path / "names")
    query, tables = QUERIES["joined groups"], {"names": names}
    view = source.create_view(tmp_path / "view", query, tables=tables)
    names.update({"name": "'Oslo'"}, where="code = 'a'")
    publish, others = views.refresh.publish, []

    def publish_second(*arguments):
        if not others:
            others.append(lancelet.open_view(view.uri))
            others[0].refresh()
        return publish(*arguments)

    monkeypatch.setattr(views.refresh, "publish", publish_second)
    assert view.refresh().end == source.version
    assert rows_of(view) == computed(source, tmp_path / "after", query, tables)
    assert view.dataset.version == 2


@pytest.mark.parametrize("kind", QUERIES)
def test_a_view_that_is_compacted_meanwhile_is_refreshed(tmp_path, monkeypatch, kind):
    source, names = source_at(tmp_path / "source"), names_at(tmp_path / "names")
    query, tables = QUERIES[kind], tables_of(kind, names)
    view = source.create_view(tmp_path / "view", query, tables=tables)
    source.insert(pa.table({"id": [20], "city": ["a"], "n": [7]}))
    view.refresh()
    source.update({"n": "n + 1"}, where="id = 4")
    source.delete("id = 5")
    publish, versions = views.refresh.publish, []

    def publish_later(*arguments):
        if not versions:
            compacted = lancelet.dataset(view.uri)
            compacted.optimize.compact_files()
            versions.append(compacted.version)
        return publish(*arguments)

    monkeypatch.setattr(views.refresh, "publish", publish_later)
    assert view.refresh().kind == "incremental"
    assert len(versions) == 1
    assert rows_of(view) == computed(source, tmp_path / "after", query, tables)
    assert view.explain().kind == "none"


def test_refreshes_of_two_handles_in_turn(tmp_path):
    source = source_at(tmp_path / "source")
    query = QUERIES["groups"]
    one = source.create_view(tmp_path / "view", query)
    two = lancelet.open_view(tmp_path / "view")
    for _ in range(3):
        source.update({"n": "n + 1"}, where="id = 4")
        assert one.refresh().kind == "incremental"
        assert two.refresh().kind == "none"
        assert rows_of(one) == rows_of(two)
    assert rows_of(one) == computed(source, tmp_path / "after", query)
