"""Laws of tags and branches: their files give them back, and names are checked."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.format.refs import (
    Branch,
    BranchStep,
    Tag,
    check_branch_name,
    check_tag_name,
    parse_branch,
    parse_tag,
    render_branch,
    render_tag,
)

UINT64 = st.integers(0, 2**64 - 1)
TEXTS = st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=3)
TIMES = st.none() | st.integers(0, 4_000_000_000_000_000_000)
NAMES = st.none() | st.text(max_size=8)
EXTRA = st.dictionaries(st.sampled_from(["later", "newer"]), st.integers() | st.none(), max_size=2)
TAGS = st.builds(Tag, NAMES, UINT64, UINT64, TIMES, TIMES, TEXTS, EXTRA)
STEPS = st.none() | st.lists(st.builds(BranchStep, UINT64, st.text(max_size=4)), max_size=3).map(
    tuple
)
BRANCHES = st.builds(Branch, NAMES, UINT64, UINT64, UINT64, STEPS, TEXTS, EXTRA)


@given(TAGS)
def test_the_file_gives_the_tag_back(tag):
    assert parse_tag(render_tag(tag)) == tag


@given(BRANCHES)
def test_the_file_gives_the_branch_back(branch):
    assert parse_branch(render_branch(branch)) == branch


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=4,
)
KEYS = ["branch", "version", "createdAt", "parentBranch", "parentVersion", "identifier", "metadata"]


@given(st.binary(max_size=20) | st.dictionaries(st.sampled_from(KEYS), JSON).map(
    lambda entries: json.dumps(entries).encode()
))  # fmt: skip
def test_any_file_is_a_ref_or_corrupt(data):
    for parse in (parse_tag, parse_branch):
        try:
            assert parse(data) is not None
        except CorruptDataError as error:
            assert error.facts  # noqa: PT017 - the error is one of two right answers


def test_files_of_older_releases_lack_entries():
    assert parse_tag(b'{"version": 3, "manifestSize": 9}') == Tag(None, 3, 9)
    assert parse_branch(b'{"parentVersion": 1}') == Branch(None, 1, 0, 0)


def test_times_have_any_precision_and_zone():
    entries = {"version": 1, "createdAt": "1970-01-01T01:00:01+01:00", "updatedAt": "x"}
    with pytest.raises(CorruptDataError):
        parse_tag(json.dumps(entries).encode())
    entries["updatedAt"] = "1970-01-01T00:00:00.5Z"
    tag = parse_tag(json.dumps(entries).encode())
    assert (tag.created_at_ns, tag.updated_at_ns) == (1_000_000_000, 500_000_000)


@pytest.mark.parametrize("name", ["v1.0_x-y", "-a", "_a", "HEAD", "main", "lock", "1"])
def test_a_tag_may_have_the_name(name):
    assert check_tag_name(name) == name


@pytest.mark.parametrize("name", ["", ".a", "a.", "a..b", "a.lock", "a b", "a/b", "a\\b", "a@b"])
def test_a_tag_may_not_have_the_name(name):
    with pytest.raises(InvalidInputError):
        check_tag_name(name)


@pytest.mark.parametrize(
    "name", ["a/.b", "a/b.", "a.lock/b", "-a", "Main", "x/main", "a.b", "tree"]
)
def test_a_branch_may_have_the_name(name):
    assert check_branch_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "main", "a//b", "/a", "a/", "a/../b", "a/b.lock", "a b", "a\\b", "a@b"]
)
def test_a_branch_may_not_have_the_name(name):
    with pytest.raises(InvalidInputError):
        check_branch_name(name)
