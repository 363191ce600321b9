"""Takes of many shuffled rows: values are copied once from files to the requested order.

Method: compare takes with a full read, for all layouts that are copied directly (large binary
values, vectors) and those that are not (nulls, repeated rows, text, lists, other file versions).
"""

import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import CorruptDataError, LanceletError

ROWS = 900


def rows_of(*, with_nulls):
    generator = np.random.default_rng(3)
    sizes = generator.integers(300, 5000, ROWS).tolist()
    images = [generator.bytes(size) for size in sizes]
    lengths = generator.integers(0, 60, ROWS)
    tokens = pa.array(generator.integers(0, 50_000, int(lengths.sum()), np.int32))
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    vectors = pa.array(generator.random(ROWS * 96, np.float32))
    is_null = pa.array(generator.random(ROWS) < 0.1) if with_nulls else None
    every = pa.array([None if with_nulls and n % 9 == 4 else each for n, each in enumerate(images)])
    return pa.table(
        {
            "id": np.arange(ROWS),
            "image": every,
            "large": every.cast(pa.large_binary()),
            "text": pa.array([image.hex() for image in images]),
            "vector": pa.FixedSizeListArray.from_arrays(vectors, 96, mask=is_null),
            "tokens": pa.ListArray.from_arrays(offsets, tokens, mask=is_null),
        }
    )


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("with_nulls", [False, True])
@pytest.mark.parametrize("fragments", [1, 3])
def test_taken_rows_equal_the_rows_of_a_scan(tmp_path, version, with_nulls, fragments):
    table = rows_of(with_nulls=with_nulls)
    dataset = lancelet.write_dataset(
        table, tmp_path, max_rows_per_file=ROWS // fragments, data_storage_version=version
    )
    dataset.delete("id % 50 = 7")
    live = table.filter(pa.array([n % 50 != 7 for n in range(ROWS)]))
    generator = np.random.default_rng(5)
    for rows in (
        generator.permutation(live.num_rows),
        generator.permutation(live.num_rows)[:300],
        generator.integers(0, live.num_rows, 700),
        np.arange(live.num_rows),
    ):
        found = dataset.take(rows)
        found.validate(full=True)
        assert found.equals(live.take(pa.array(rows)))
        assert dataset.take(rows, columns=["vector"]).equals(
            live.select(["vector"]).take(pa.array(rows))
        )
        assert dataset.take(rows, columns=["_rowid", "image"])["image"].to_pylist() == (
            live["image"].take(pa.array(rows)).to_pylist()
        )


def test_large_binary_values_and_vectors_are_copied_once(tmp_path):
    dataset = lancelet.write_dataset(rows_of(with_nulls=False), tmp_path, max_rows_per_file=400)
    found = dataset._take_stored(np.random.default_rng(1).permutation(ROWS))
    assert set(found.ordered) >= {"image", "large", "vector"}
    assert not {"id", "text", "tokens"}.intersection(found.ordered)
    assert all(not set(found.ordered).intersection(each.schema.names) for each in found.batches)


@pytest.mark.parametrize("column", ["image", "vector"])
def test_shuffled_takes_verify_checksums(tmp_path, column):
    lancelet.write_dataset(rows_of(with_nulls=False).select([column]), tmp_path)
    (file,) = (tmp_path / "data").glob("*.lance")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.write_bytes(data)
    with pytest.raises(CorruptDataError):
        lancelet.dataset(tmp_path).take(np.random.default_rng(1).permutation(ROWS))


@pytest.mark.parametrize("column", ["image", "vector"])
def test_files_cut_short_during_shuffled_takes_are_reported(tmp_path, column):
    lancelet.write_dataset(rows_of(with_nulls=False).select([column]), tmp_path)
    dataset = lancelet.dataset(tmp_path)
    rows = np.random.default_rng(1).permutation(ROWS)
    dataset.take(rows[:5])
    (file,) = (tmp_path / "data").glob("*.lance")
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size // 2)
    with pytest.raises(LanceletError):
        dataset.take(rows)
