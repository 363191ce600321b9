"""Data sets of Hugging Face are rows: as stored, in their order, with the features they have."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import InvalidInputError
from lancelet.hf import with_split_column

datasets = pytest.importorskip("datasets")
image_of = pytest.importorskip("PIL.Image")


def pixels(number):
    return image_of.fromarray(np.full((2, 2, 3), number, np.uint8))


@pytest.fixture(scope="module")
def hugging():
    return datasets.Dataset.from_dict(
        {
            "small": [1, 2, 3],
            "share": [0.5, None, 0.1],
            "image": [pixels(number) for number in range(3)],
            "label": ["cat", "dog", "cat"],
            "grid": np.ones((3, 2, 2), np.float32),
        },
        features=datasets.Features(
            {
                "small": datasets.Value("int8"),
                "share": datasets.Value("float32"),
                "image": datasets.Image(),
                "label": datasets.ClassLabel(names=["cat", "dog"]),
                "grid": datasets.Array2D((2, 2), "float32"),
            }
        ),
    )


def written(rows, path):
    return lancelet.write_dataset(rows, path / "t.lance", mode="overwrite")


@pytest.mark.parametrize("streamed", [False, True])
def test_types_images_and_features_are_preserved(hugging, streamed, tmp_path):
    found = written(hugging.to_iterable_dataset() if streamed else hugging, tmp_path)
    assert found.schema.field("small").type == pa.int8()
    assert found.schema.field("share").type == pa.float32()
    assert found.schema.metadata == hugging.features.arrow_schema.metadata
    table = found.to_table()
    assert table["small"].to_pylist() == [1, 2, 3]
    assert table["label"].to_pylist() == [0, 1, 0]
    for number, value in enumerate(table["image"].to_pylist()):
        shown = image_of.open(io.BytesIO(value["bytes"]))
        assert (np.asarray(shown) == number).all()
    back = datasets.Dataset(table)
    assert back.features == hugging.features
    assert back[1]["image"].size == (2, 2)


def test_rows_that_were_chosen_come_in_their_order(hugging, tmp_path):
    assert written(hugging.select([2, 0]), tmp_path).to_table()["small"].to_pylist() == [3, 1]
    shuffled = hugging.shuffle(seed=3)
    found = written(shuffled, tmp_path).to_table()["small"].to_pylist()
    assert found == shuffled["small"][:]


def test_a_stream_without_features_has_the_types_of_its_first_rows(tmp_path):
    stream = datasets.IterableDataset.from_generator(
        lambda: ({"a": number, "image": pixels(number)} for number in range(3))
    )
    found = written(stream, tmp_path).to_table()
    assert found["a"].to_pylist() == [0, 1, 2]
    shown = [image_of.open(io.BytesIO(value["bytes"])) for value in found["image"].to_pylist()]
    assert [np.asarray(image)[0, 0, 0] for image in shown] == [0, 1, 2]
    empty = datasets.IterableDataset.from_generator(lambda: iter(()))
    with pytest.raises(InvalidInputError, match="must have features"):
        written(empty, tmp_path)


def test_splits_are_rejected_or_one_table_with_their_names(hugging, tmp_path):
    splits = datasets.DatasetDict({"train": hugging, "test": hugging.select([1])})
    with pytest.raises(InvalidInputError, match="with_split_column") as caught:
        written(splits, tmp_path)
    assert caught.value.facts["splits"] == ["train", "test"]
    found = written(with_split_column(splits), tmp_path)
    assert found.to_table()["split"].to_pylist() == ["train", "train", "train", "test"]
    assert found.count_rows("split = 'test' AND small = 2") == 1
    for wrong, column in (({}, "split"), (splits, "small")):
        with pytest.raises(InvalidInputError):
            with_split_column(wrong, column)
    other = datasets.Dataset.from_dict({"a": [1]})
    with pytest.raises(InvalidInputError, match="different features"):
        with_split_column({"train": hugging, "test": other})


def test_a_data_set_is_appended_with_the_types_of_the_table(hugging, tmp_path):
    rows = pa.table({"small": pa.array([7], pa.int64())})
    found = lancelet.write_dataset(rows, tmp_path / "t")
    found.insert(hugging.select_columns(["small"]))
    assert found.to_table()["small"].to_pylist() == [7, 1, 2, 3]


@pytest.mark.parametrize("streamed", [False, True])
def test_sounds_and_films_keep_their_bytes_and_features(streamed, tmp_path):
    features = datasets.Features({"sound": datasets.Audio(), "film": datasets.Video()})
    rows = {
        "sound": [{"bytes": b"RIFF", "path": "a.wav"}, None],
        "film": [None, {"bytes": b"ftyp", "path": None}],
    }
    made = datasets.Dataset(pa.table(rows, schema=features.arrow_schema))
    found = written(made.to_iterable_dataset() if streamed else made, tmp_path).to_table()
    assert found.to_pydict() == rows
    assert datasets.Dataset(found).features == features
