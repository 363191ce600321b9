"""Damage to table metadata never yields wrong rows.

Metadata files are small, so each is truncated, changed and removed at many positions. Operations
then have the same result as before, or raise an error that names the file. Files of the reference
have no checksums, but it reads tables written by this library.
"""

import contextlib
import datetime as dt
import random
import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import LanceletError

FOLDERS = ("_versions", "_transactions", "_deletions", "_refs")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Return a table with deletions in both forms, an index, a tag, and stable row ids."""
    uri = str(tmp_path_factory.mktemp("damage") / "t")
    rows = pa.table({"k": range(6000), "s": [f"row {k}" for k in range(6000)]})
    dataset = lancelet.write_dataset(rows, uri, max_rows_per_file=5500, enable_stable_row_ids=True)
    dataset.create_scalar_index("k", "BTREE")
    dataset.delete("k < 5200 OR k % 7 = 5")
    dataset.update({"s": "'new'"}, where="k = 5999")
    dataset.update_config({"a": "b"})
    dataset.tags.create("first", 2)
    return Path(uri)


def answers(uri):
    """Return what a table says, or the error by which it does not, for each question."""
    questions = {
        "rows": lambda d: d.to_table(with_row_id=True).to_pylist(),
        "found": lambda d: d.to_table(filter="k = 5600").to_pylist(),
        "schema": lambda d: d.schema,
        "config": lambda d: d.config(),
        "indices": lambda d: [index.name for index in d.describe_indices()],
        "tags": lambda d: {name: tag["version"] for name, tag in d.tags.list().items()},
        "tagged": lambda d: d.checkout_version("first").count_rows(),
        "before": lambda d: d.checkout_version(3).count_rows(),
        "changes": lambda d: [
            transaction and type(transaction.operation).__name__
            for transaction in d.get_transactions(9)
        ],
    }
    found = {}
    for name, question in questions.items():
        try:
            found[name] = question(lancelet.dataset(uri))
        except LanceletError as error:
            found[name] = error
    return found


def damages(path, seed):
    """Yield the bytes of a file, damaged once in every way."""
    data = path.read_bytes()
    draw = random.Random(seed)
    for bit in draw.sample(range(8 * len(data)), min(8 * len(data), 6)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        yield f"bit {bit}", bytes(flipped)
    for place in draw.sample(range(len(data)), 1):
        yield f"cut at {place}", data[:place]
        yield (
            f"zeros from {place}",
            data[:place] + bytes(min(16, len(data) - place)) + data[place + 16 :],
        )


@pytest.mark.filterwarnings("ignore::lancelet.scan.indexing.segments.IndexUnusableWarning")
@pytest.mark.parametrize("folder", FOLDERS)
def test_damage_is_harmless_or_an_error_that_names_the_file(table, tmp_path, folder):
    expected = answers(table)
    assert not any(isinstance(answer, Exception) for answer in expected.values())
    errors = 0
    for number, path in enumerate(sorted((table / folder).rglob("*.*"))):
        if "hint" in path.name:
            continue
        for place, (what, damaged) in enumerate(damages(path, number)):
            copy = tmp_path / f"{number}.{place}"
            shutil.copytree(table, copy)
            (copy / path.relative_to(table)).write_bytes(damaged)
            for name, answer in answers(copy).items():
                if isinstance(answer, Exception):
                    errors += 1
                    assert path.name in str(answer), (path.name, what, name, answer)
                else:
                    assert answer == expected[name], (path.name, what, name)
            shutil.rmtree(copy)
    # What a manifest says is in the file of its transaction too, so damage to either may not show.
    assert errors or folder == "_transactions"


def test_the_reference_continues_with_a_sealed_table(table, tmp_path):
    uri = str(tmp_path / "t")
    shutil.copytree(table, uri)
    dataset = lance.dataset(uri)
    dataset.validate()
    assert dataset.to_table().equals(lancelet.dataset(uri).to_table())
    dataset.delete("k = 5300")
    dataset.delete("k = 5777")
    dataset.optimize.compact_files()
    dataset.optimize.optimize_indices()
    dataset.tags.update("first", 3)
    with contextlib.suppress(OSError):
        dataset.cleanup_old_versions(dt.timedelta(0))
    ours = lancelet.dataset(uri)
    assert ours.to_table().equals(dataset.to_table())
    assert ours.tags.list()["first"]["version"] == 3
    assert len(ours.get_transactions(3)) == 3
    assert [each.what for each in ours.check("indices") if each.severity.value != "note"] == []
