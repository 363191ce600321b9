"""The memory limit of the build of a text index does not affect its files."""

from pathlib import Path

import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import InvalidInputError

SEGMENT = "00000000-0000-4000-8000-000000000001"
"""File names are constant and contain the segment."""

TEXTS = [f"red fox {number} jumps over {number % 7} and {number % 31}" for number in range(900)]


def build(path: Path, **options: object) -> dict[str, bytes]:
    dataset = lancelet.write_dataset(pa.table({"t": TEXTS}), str(path), max_rows_per_file=300)
    dataset.create_scalar_index("t", "INVERTED", with_position=True, index_uuid=SEGMENT, **options)
    return {file.name: file.read_bytes() for file in path.glob("_indices/*/*")}


def test_postings_may_wait_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = build(tmp_path / "a", memory_limit=64)
    assert len(everything) == 4
    monkeypatch.setenv("LANCE_FTS_PARTITION_SIZE", "0")
    assert build(tmp_path / "b") == everything
    assert build(tmp_path / "c", memory_limit=1) == everything


@pytest.mark.parametrize("limit", ["much", -1, 1.5, True])
def test_a_memory_limit_is_a_number(tmp_path: Path, limit: object) -> None:
    with pytest.raises(InvalidInputError, match="memory_limit"):
        build(tmp_path / "table", memory_limit=limit)
