"""Tables of the first releases have only `_latest.manifest` and can be opened and changed."""

import shutil
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import VersionNotFoundError

ROOT = Path(__file__).parent / "historical"


@pytest.fixture(
    params=[
        "v0.15.0/v1_with_files.lance",
        "v0.15.0/v2_with_files.lance",
        "v0.7.5/with_deletions",
        "v0.10.5/corrupt_schema",
        "v0.5.9/no_fragments",
    ]
)
def pair(request, tmp_path):
    """A table as it was written, and without its folder of versions."""
    whole, alone = tmp_path / "whole", tmp_path / "alone"
    for target in (whole, alone):
        shutil.copytree(ROOT / request.param, target)
    shutil.rmtree(alone / "_versions")
    return str(whole), str(alone)


def test_the_version_is_the_newest_one(pair):
    whole, alone = map(lancelet.dataset, pair)
    assert alone.version == whole.version
    assert alone.schema == whole.schema
    assert alone.to_table() == whole.to_table() == lance.dataset(pair[0]).to_table()
    assert [each["version"] for each in alone.versions()] == [whole.version]
    assert lancelet.dataset(pair[1], version=whole.version).count_rows() == whole.count_rows()
    with pytest.raises(VersionNotFoundError):
        lancelet.dataset(pair[1], version=whole.version + 1)


def test_a_cleanup_keeps_its_files(pair):
    before = lancelet.dataset(pair[1]).to_table()
    lancelet.dataset(pair[1]).cleanup_old_versions(timedelta(0), delete_unverified=True)
    assert lancelet.dataset(pair[1]).to_table() == before


def test_the_next_version_follows_it(pair):
    old = lancelet.dataset(pair[1])
    rows = old.schema.empty_table()
    rows = pa.table(
        {name: pa.nulls(1, rows.schema.field(name).type) for name in rows.schema.names},
        rows.schema,
    )
    new = lancelet.write_dataset(rows, pair[1], mode="append")
    assert (new.version, new.count_rows()) == (old.version + 1, old.count_rows() + 1)
    assert lance.dataset(pair[1]).count_rows() == old.count_rows() + 1
    assert lancelet.dataset(pair[1], version=old.version).count_rows() == old.count_rows()
