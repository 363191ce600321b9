"""A listing of versions answers by bisection, with the results of a search of all names."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

import lancelet
from lancelet.format.paths import ManifestNaming, manifest_name, staged_manifest_path
from lancelet.io import watched
from lancelet.io.memory import MemoryStore
from lancelet.surroundings import new_uuid
from lancelet.table.manifests import VersionFolder
from tests.kit.tables import simple_rows


class Names(MemoryStore):
    """A store that lists only names."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self._names = sorted(names)

    @property
    def lists_names(self) -> bool:
        return True

    def list_names(self, folder: str) -> Sequence[str]:
        del folder
        return self._names


VERSIONS = st.one_of(
    st.integers(1, 30), st.integers(10**9 - 3, 10**9 + 3), st.integers(2**62, 2**63 - 1)
)
OTHER_NAMES = st.sampled_from(
    [
        ".hold-5-0",
        ".removed-1-2-0.json",
        "-",
        "latest_version_hint.json",
        "d9223372036854775809.manifest",
        manifest_name(7) + "#1",
        staged_manifest_path(manifest_name(8), new_uuid()),
    ]
)


@given(
    st.sets(VERSIONS, max_size=8),
    st.sets(VERSIONS, max_size=3),
    st.sets(OTHER_NAMES),
    st.sampled_from(ManifestNaming),
)
def test_answers_are_those_of_a_search(versions, asked, others, naming):
    names = {manifest_name(version, naming) for version in versions} | others
    folder = VersionFolder.of(Names(list(names)))
    assert folder.has_versions == bool(versions)
    assert set(folder.dotted) == {name for name in others if name[0] == "."}
    for version in versions | asked:
        above = [each for each in versions if each > version]
        assert folder.next_version(version) == min(above, default=None)
        expected = manifest_name(version, naming) if version in versions else None
        assert folder.get_file(version) == expected
        assert folder.has_other_versions(version) == bool(versions - {version})


@given(st.sets(st.integers(1, 30), min_size=1), st.sets(st.integers(1, 30)))
def test_the_newest_is_the_highest_version_of_either_scheme(newer, older):
    store = MemoryStore()
    names = [manifest_name(each) for each in newer]
    names += [manifest_name(each, ManifestNaming.V1) for each in older]
    for name in [*names, ".renaming"]:
        store.put(f"_versions/{name}", b"" if name == manifest_name(max(newer)) else b"x")
    listed = Names([*names, ".renaming"])
    folder = VersionFolder.of(listed)
    readable = newer - {max(newer)} | older - {max(newer)}
    entry = folder.newest(store)
    assert (None if entry is None else entry.version) == max(readable, default=None)


def test_commits_list_a_large_folder_no_more_than_twice(tmp_path, monkeypatch):
    """Later commits and reads of the process follow the changes of the folder."""
    monkeypatch.setattr(watched, "_WATCHED_FROM", 3)
    listed = []
    listdir = watched.os.listdir
    monkeypatch.setattr(
        watched.os, "listdir", lambda folder: listed.append(folder) or listdir(folder)
    )
    for number in range(10):
        lancelet.write_dataset(simple_rows(0, 3), tmp_path, mode="append" if number else "create")
        assert lancelet.dataset(tmp_path).version == number + 1
    early = len(listed)
    for number in range(10, 20):
        lancelet.write_dataset(simple_rows(0, 3), tmp_path, mode="append")
        assert lancelet.dataset(tmp_path).version == number + 1
    assert len(listed) == early
