"""Names and numbers: paths, versions of files, flags and bases mean one thing each."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.errors import CorruptDataError, InvalidInputError, UnsupportedError
from lancelet.format import paths
from lancelet.format.base_paths import BasePath, get_base
from lancelet.format.flags import (
    DERIVED,
    SUPPORTED,
    Feature,
    check_readable,
    check_writable,
    commit_flags,
    feature_names,
)
from lancelet.format.paths import ManifestName, ManifestNaming
from lancelet.format.version import FileVersion

UINT64 = st.integers(0, 2**64 - 1)


@given(UINT64, st.sampled_from(ManifestNaming))
def test_a_manifest_name_has_its_version(version, naming):
    name = paths.manifest_name(version, naming)
    found = paths.parse_manifest_name(name)
    assert found.version == version
    assert found.is_detached == name.startswith("d")
    if not found.is_detached and not (naming is ManifestNaming.V1 and version >= 10**19):
        assert found.naming is naming


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_the_newest_version_sorts_first(one, other):
    names = sorted(paths.manifest_name(version) for version in (one, other))
    assert paths.parse_manifest_name(names[0]).version == max(one, other)


def test_a_staged_manifest_is_known_by_its_id():
    identity = uuid.UUID(int=5)
    final = paths.manifest_path(3)
    staged = paths.staged_manifest_path(final, identity).removeprefix("_versions/")
    assert paths.parse_manifest_name(staged) == ManifestName(3, ManifestNaming.V2, str(identity))


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x.manifest",
        "3.manifest.tmp",
        "d3.manifest",
        "99999999999999999999.manifest",
        "-1.manifest",
    ],
)
def test_other_files_are_no_manifests(name):
    assert paths.parse_manifest_name(name) is None


def test_a_version_has_64_bits():
    with pytest.raises(InvalidInputError):
        paths.manifest_name(-1)


@given(UINT64)
def test_a_hint_names_a_version(version):
    assert paths.parse_version_hint(paths.render_version_hint(version)) == version


@pytest.mark.parametrize("data", [b"", b"{}", b"garbage", b'{"version":-1}', b'{"version":"3"}'])
def test_an_invalid_hint_is_ignored(data):
    assert paths.parse_version_hint(data) is None


@given(st.uuids())
def test_a_data_file_name_spreads_and_is_unique(identity):
    name = paths.data_file_name(identity)
    assert len(name) == 24 + 26 + len(".lance")
    assert int(name[:24], 2).to_bytes(3, "big") + bytes.fromhex(name[24:50]) == identity.bytes


def test_a_branch_is_a_directory_and_a_file():
    assert paths.parse_ref_name(paths.branch_path("a/b").rpartition("/")[2]) == "a/b"
    assert paths.parse_ref_name("a.txt") is None
    assert paths.branch_root("a/b") == "tree/a/b"
    with pytest.raises(InvalidInputError):
        paths.blob_file_path("a.lance", 1 << 32)


@pytest.mark.parametrize("path", ["", "/etc/x", "../x", "a/../../x", "a\0b"])
def test_a_stored_path_must_stay_below(path):
    with pytest.raises(CorruptDataError):
        paths.check_relative_path(path)
    assert paths.check_relative_path("a/b..c") == "a/b..c"


def test_a_selector_means_a_version():
    for version in FileVersion:
        assert FileVersion.parse(version.value) is version
        assert FileVersion.from_numbers(*version.entry_numbers) is version
        assert FileVersion.from_numbers(*version.footer_numbers) is version
    assert FileVersion.parse("Legacy") is FileVersion.V0_1
    assert FileVersion.parse("next") is FileVersion.V2_3
    assert FileVersion.V2_0 > FileVersion.V0_1
    assert FileVersion.V2_0 <= FileVersion.V2_1
    with pytest.raises(InvalidInputError):
        FileVersion.parse("2.4")
    with pytest.raises(UnsupportedError):
        FileVersion.from_numbers(3, 0)


@given(UINT64, UINT64, st.tuples(*[st.booleans()] * 4))
def test_a_commit_sets_known_fields_and_preserves_unknown_ones(reader, writer, content):
    names = ("deletion_files", "config", "base_paths", "spilled_lineage")
    new_reader, new_writer = commit_flags(reader, writer, **dict(zip(names, content, strict=True)))
    for before, after in ((reader, new_reader), (writer, new_writer)):
        assert before & ~int(DERIVED) == after & ~int(DERIVED)
    assert new_writer & int(DERIVED) == new_reader & int(DERIVED) | 8 * content[1]


@pytest.mark.parametrize("bit", range(64))
def test_tables_with_unknown_feature_flags_are_rejected(bit):
    flag = 1 << bit
    understood = bool(flag & int(SUPPORTED))
    readable, writable = (accepts(check, flag, flag) for check in (check_readable, check_writable))
    assert readable == (understood and flag != Feature.NON_REUSABLE_FIELD_IDS)
    assert writable == readable
    assert (
        accepts(check_writable, 0, flag)
        == accepts(check_readable, 0, flag)
        == (understood and flag not in (256, 1024, 16384))
        or not understood
    )
    if not understood and flag != Feature.ZONE_WRITE_SEED:
        assert accepts(check_readable, 0, flag)
        assert not accepts(check_writable, 0, flag)


def accepts(check, reader: int, writer: int) -> bool:
    try:
        check(reader, writer)
    except (UnsupportedError, CorruptDataError):
        return False
    return True


def test_a_rejected_flag_is_named():
    with pytest.raises(UnsupportedError, match="FRAGMENT_TREE"):
        check_readable(4096, 4096)
    assert feature_names(0) == []


def test_a_base_that_is_missing_is_corrupt():
    base = BasePath(3, "s3://landing/")
    assert get_base({3: base}, 3).locate("data", "f.lance") == "s3://landing/f.lance"
    with pytest.raises(CorruptDataError):
        get_base({3: base}, 0)
