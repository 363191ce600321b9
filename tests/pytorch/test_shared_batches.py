"""Batches of workers share one storage, and tensors of a batch belong to the caller."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.utils.data import DataLoader

import lancelet
from lancelet.torch.data import LanceDataset
from lancelet.torch.shared import to_shared_storage
from lancelet.training.convert import Ragged

ROWS = 900
pytestmark = [
    pytest.mark.filterwarnings("ignore:lance is not fork-safe"),  # pylance, if imported
    pytest.mark.filterwarnings("ignore:os.fork.* was called:RuntimeWarning"),  # JAX, if imported
]


@pytest.fixture
def table(tmp_path):
    generator = np.random.default_rng(2)
    lengths = generator.integers(1, 30, ROWS)
    tokens = pa.array(np.arange(lengths.sum(), dtype=np.int32))
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    rows = pa.table(
        {
            "id": range(ROWS),
            "image": pa.array([generator.bytes(3000) for _ in range(ROWS)]),
            "tokens": pa.ListArray.from_arrays(offsets, tokens),
            "vector": pa.FixedSizeListArray.from_arrays(generator.random(ROWS * 96), 96),
        }
    )
    return lancelet.write_dataset(rows, str(tmp_path / "t.lance"), max_rows_per_file=400)


def plain(batch):
    """Return the rows of a batch by id."""
    tokens = batch["tokens"]
    return {
        number: (
            bytes(image.numpy()),
            tokens.values[tokens.offsets[row] : tokens.offsets[row + 1]].tolist(),
            vector.tolist(),
        )
        for row, (number, image, vector) in enumerate(
            zip(batch["id"].tolist(), batch["image"], batch["vector"], strict=True)
        )
    }


def storages(batch):
    tensors = [batch["id"], *batch["image"], *batch["tokens"], batch["vector"]]
    return {tensor.untyped_storage().data_ptr() for tensor in tensors}


@pytest.mark.parametrize("shuffle", ["rows", "none"])
def test_batches_of_workers_are_those_of_one_process_in_one_storage(table, shuffle):
    dataset = LanceDataset(table, batch_size=64, shuffle=shuffle, seed=3, ragged=["tokens"])
    expected = [plain(batch) for batch in dataset]
    everything = table.to_table()
    for batch in expected:
        for number, (image, tokens, vector) in batch.items():
            assert image == everything["image"][number].as_py()
            assert tokens == everything["tokens"][number].as_py()
            assert vector == everything["vector"][number].as_py()
    dataset.set_epoch(0)
    loader = DataLoader(dataset, batch_size=None, num_workers=2)
    found = []
    for batch in loader:
        assert len(storages(batch)) == 1
        found.append(plain(batch))
    assert found == expected


@pytest.mark.parametrize("shuffle", ["rows", "none", "clumps"])
def test_callers_may_modify_batches(table, shuffle):
    options = {"clump_size": 300} if shuffle == "clumps" else {}
    dataset = LanceDataset(
        table, batch_size=50, shuffle=shuffle, seed=3, ragged=["tokens"], **options
    )
    expected = [plain(batch) for batch in dataset]
    dataset.set_epoch(0)
    held, found = [], []
    for batch in dataset:
        found.append(plain(batch))
        held.append(batch)
        for tensor in (batch["id"], *batch["image"], *batch["tokens"], batch["vector"]):
            tensor.fill_(7)
    assert found == expected
    assert all((batch["vector"] == 7).all() for batch in held)
    # The memory of earlier batches is reused; files and caches are unchanged.
    held.clear()
    dataset.set_epoch(0)
    assert [plain(batch) for batch in dataset] == expected


def test_other_values_of_a_batch_are_unchanged():
    parameter = torch.nn.Parameter(torch.ones(2))
    sparse = torch.eye(3).to_sparse()
    batch = {
        "text": ["a", None],
        "empty": torch.zeros(0),
        "ragged": Ragged(torch.arange(4, dtype=torch.uint8), torch.tensor([0, 4])),
        "pair": (torch.ones(2, 3).T, 5),
        "parameter": parameter,
        "sparse": sparse,
    }
    found = to_shared_storage(batch)
    assert found["text"] is batch["text"] or found["text"] == ["a", None]
    assert found["empty"].shape == (0,)
    assert isinstance(found["ragged"], Ragged)
    assert found["ragged"].values.tolist() == [0, 1, 2, 3]
    assert found["pair"][0].shape == (3, 2)
    assert found["parameter"] is parameter
    assert found["sparse"] is sparse
    assert to_shared_storage({"text": "a"}) == {"text": "a"}
    assert to_shared_storage(torch.zeros(0)).shape == (0,)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.filterwarnings("ignore:.*quantiz")
def test_layouts_of_tensors_are_kept():
    images = torch.arange(120.0).reshape(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    quantized = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8)
    part = torch.arange(12.0).reshape(3, 4)[:, 1:3]
    found = to_shared_storage([images, nested, quantized, part, part.expand(2, 3, 2)])
    assert torch.equal(found[0], images)
    assert found[0].is_contiguous(memory_format=torch.channels_last)
    assert found[1] is nested
    assert found[2] is quantized
    assert torch.equal(found[3], part)
    assert torch.equal(found[4], part.expand(2, 3, 2))
    assert found[0].untyped_storage().data_ptr() == found[4].untyped_storage().data_ptr()
