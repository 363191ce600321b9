"""With PyTorch: what loaders hand out, and what is found on its devices.

These need PyTorch, which is large, so they are not among the others: `make torch` installs it and
runs them.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.utils.data import DataLoader

import lancelet
from lancelet.errors import InvalidInputError, LanceletError
from lancelet.sampler import ShardedBatchSampler, ShardedFixedBatchSampler
from lancelet.torch import preferred_device
from lancelet.torch.async_dataset import async_dataset
from lancelet.torch.bench_utils import ground_truth, infer_vector_column, recall, sort_tensors
from lancelet.torch.data import LanceDataset, SafeLanceDataset, TensorDataset, get_safe_loader
from lancelet.torch.distance import (
    argmin_l2,
    cosine_distance,
    dot_distance,
    l2_distance,
    pairwise_cosine,
    pairwise_l2,
)
from lancelet.torch.kmeans import KMeans
from lancelet.torch.training import (
    compute_partitions,
    compute_pq_codes,
    one_pass_assign_ivf_pq_on_accelerator,
    train_ivf_centroids_on_accelerator,
    train_pq_codebook_on_accelerator,
)

DIMENSION = 16


@pytest.fixture
def rows(tmp_path: Path) -> lancelet.LanceDataset:
    chance = np.random.default_rng(7)
    centres = chance.normal(size=(8, DIMENSION)) * 5
    vectors = centres[np.arange(600) % 8] + chance.normal(size=(600, DIMENSION)) * 0.1
    flat = pa.array(vectors.astype(np.float32).reshape(-1))
    table = pa.table({"id": range(600), "v": pa.FixedSizeListArray.from_arrays(flat, DIMENSION)})
    return lancelet.write_dataset(table, str(tmp_path / "rows.lance"), max_rows_per_file=130)


def _vectors(rows: lancelet.LanceDataset) -> np.ndarray:
    return np.array(rows.to_table(columns=["v"])["v"].to_pylist(), np.float32)


def _ids(batches) -> list[int]:
    return [number for batch in batches for number in batch.tolist()]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_hands_out_every_row_once(rows, workers: int) -> None:
    dataset = LanceDataset(rows.uri, batch_size=50, columns=["id"])
    loader = DataLoader(
        dataset,
        batch_size=None,
        num_workers=workers,
        multiprocessing_context="spawn" if workers else None,
    )
    assert sorted(_ids(loader)) == list(range(600))


def test_rows_that_are_looked_up_are_the_same_in_workers(rows) -> None:
    sampler = ShardedFixedBatchSampler(1, 3, batch_size=40, total_num_rows=600)
    loader = get_safe_loader(
        SafeLanceDataset(rows.uri),
        num_workers=1,
        batch_size=1,
        batch_sampler=sampler,
        collate_fn=ids_of_rows,
        persistent_workers=False,
    )
    assert [number for batch in loader for number in batch] == list(range(200, 400))


def ids_of_rows(batch: list[dict]) -> list[int]:
    return [row["id"] for row in batch]


def test_tensors_have_the_types_and_shapes_of_columns(rows) -> None:
    batch = next(iter(LanceDataset(rows, batch_size=30, with_row_id=True)))
    assert {name: (value.dtype, tuple(value.shape)) for name, value in batch.items()} == {
        "id": (torch.int64, (30,)),
        "v": (torch.float32, (30, DIMENSION)),
        "_rowid": (torch.int64, (30,)),
    }
    assert len(TensorDataset(batch["v"], 8)) == 4
    with pytest.raises(InvalidInputError, match="converted to tensors"):
        next(iter(LanceDataset(lancelet.write_dataset(pa.table({"s": ["a"]}), "memory://s"), 1)))


def test_half_precision_comes_as_it_is() -> None:
    table = lancelet.write_dataset(
        pa.table({"h": lancelet.arrow.bfloat16_array([1.5, None, -2.0])}), "memory://halves"
    )
    found = next(iter(LanceDataset(table, 3)))
    assert found.dtype is torch.bfloat16
    assert found[0] == 1.5
    assert torch.isnan(found[1])


def test_batches_that_are_shared_out_have_no_ids(rows) -> None:
    dataset = LanceDataset(
        rows, 60, columns=["id"], with_row_id=True, sampler=ShardedBatchSampler(0, 2)
    )
    with pytest.warns(UserWarning, match="with_row_id is not supported"):
        assert len(_ids(dataset)) == 300


def test_blobs_come_as_files(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64()),
            pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"}),
        ]
    )
    table = pa.table({"id": [0, 1], "b": [b"zero", b"one!"]}, schema=schema)
    rows = lancelet.write_dataset(table, str(tmp_path / "blobs.lance"))
    for options in ({}, {"samples": 2}):
        seen = {}
        dataset = LanceDataset(rows, 2, to_tensor_fn=lambda batch, **_: batch, **options)
        for batch in dataset:
            assert set(batch) == {"id", "b"} | ({"_rowid"} if options else set()) - {"_rowid"}
            contents = [blob.readall() for blob in batch["b"]]
            seen.update(zip(batch["id"].to_pylist(), contents, strict=True))
        assert seen == {0: b"zero", 1: b"one!"}
    with pytest.raises(NotImplementedError, match="to_tensor_fn"):
        next(iter(LanceDataset(rows, 2)))


def test_another_process_reads_ahead(rows) -> None:
    make = functools.partial(LanceDataset, rows.uri, 100, columns=["id"])
    with async_dataset(make, queue_size=2) as batches:
        assert _ids(batches) == list(range(600))
        assert _ids(batches) == list(range(600))
    with (
        async_dataset(functools.partial(LanceDataset, rows.uri + "x", 100)) as batches,
        pytest.raises(LanceletError, match="DatasetNotFoundError"),
    ):
        next(iter(batches))


def test_distances_are_those_of_the_formulas() -> None:
    chance = np.random.default_rng(3)
    x, y = chance.normal(size=(20, 6)), chance.normal(size=(50, 6))
    left, right = torch.from_numpy(x), torch.from_numpy(y)
    squares = ((x[:, None] - y[None]) ** 2).sum(axis=2)
    angles = 1 - x @ y.T / np.linalg.norm(x, axis=1)[:, None] / np.linalg.norm(y, axis=1)
    products = 1 - x @ y.T
    assert np.allclose(pairwise_l2(left, right), squares)
    assert np.allclose(pairwise_cosine(left, right), angles)
    for nearest, expected in (
        (l2_distance, squares),
        (cosine_distance, angles),
        (dot_distance, products),
    ):
        ids, distances = nearest(left, right)
        assert ids.tolist() == expected.argmin(axis=1).tolist()
        assert np.allclose(distances, expected.min(axis=1))
    assert argmin_l2(left, right)[1].tolist() == squares.argmin(axis=1).tolist()
    assert pairwise_l2(left.bfloat16(), right.bfloat16()).dtype is torch.bfloat16
    with pytest.raises(InvalidInputError, match="same number of columns"):
        pairwise_l2(left, right[:, :3])


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_clusters_are_found_and_vectors_that_are_not_finite_left_out(rows, metric: str) -> None:
    vectors = _vectors(rows)
    found = KMeans(8, metric=metric, seed=1, device="cpu", centroids=torch.from_numpy(vectors[:8]))
    found.fit(vectors)
    holes = vectors.copy()
    holes[5] = np.nan
    ids = found.transform(holes)
    assert ids[5] == -1
    if metric != "dot":
        kept = np.arange(600) != 5
        assert (
            len({(number % 8, own) for number, own in enumerate(ids.tolist()) if kept[number]}) == 8
        )
    with pytest.raises(InvalidInputError, match="fewer vectors"):
        KMeans(700, device="cpu").fit(vectors)
    with pytest.raises(InvalidInputError, match="call `fit` first"):
        KMeans(2, device="cpu").transform(vectors)


def test_the_same_seed_gives_the_same_clusters_and_empty_ones_are_filled(rows) -> None:
    vectors = _vectors(rows)
    twice = []
    for _ in range(2):
        found = KMeans(8, seed=3, device="cpu")
        found.fit(vectors)
        twice.append(found.centroids)
    assert torch.equal(*twice)
    start = torch.from_numpy(np.repeat(vectors[:1], 4, axis=0))
    spread = KMeans(4, centroids=start, device="cpu")
    spread.fit(vectors)
    assert len(torch.unique(spread.transform(vectors))) > 1


def test_codes_made_step_by_step_are_those_of_one_pass(rows, tmp_path: Path) -> None:
    centroids, kmeans = train_ivf_centroids_on_accelerator(rows, "v", 4, "L2", "cpu")
    assert centroids.shape == (4, DIMENSION)
    residuals = compute_partitions(rows, "v", kmeans, num_sub_vectors=2)
    words, finders = train_pq_codebook_on_accelerator(residuals, "L2", "cpu", 2)
    assert words.shape == (2, 256, DIMENSION // 2)
    steps, files = compute_pq_codes(
        lancelet.dataset(residuals), finders, dst_dataset_uri=tmp_path / "steps.lance"
    )
    once, _ = one_pass_assign_ivf_pq_on_accelerator(rows, "v", "L2", "cpu", kmeans, finders)
    assert len(files) == 1
    assert lancelet.dataset(steps).to_table() == lancelet.dataset(once).to_table()
    with pytest.raises(InvalidInputError, match="multiple of the number"):
        compute_partitions(rows, "v", kmeans, num_sub_vectors=5)


@pytest.mark.parametrize("metric", ["L2", "cosine", "dot"])
def test_an_index_trained_on_a_device_finds_near_vectors(rows, metric: str) -> None:
    rows.create_index(
        "v", "IVF_PQ", metric=metric, num_partitions=4, num_sub_vectors=4, accelerator="cpu"
    )
    query = _vectors(rows)[3]
    options = {"column": "v", "q": query, "k": 10, "nprobes": 4, "refine_factor": 20}
    found = rows.to_table(columns=["id"], nearest=options)["id"].to_pylist()
    exact = rows.to_table(
        columns=["id"], nearest={**options, "use_index": False, "metric": metric}
    )["id"].to_pylist()
    assert len(set(found) & set(exact)) >= 9


def test_without_the_device_the_index_is_built_all_the_same(rows, caplog) -> None:
    with caplog.at_level("WARNING"):
        rows.create_index("v", "IVF_FLAT", num_partitions=4, accelerator="cuda:9")
    assert rows.describe_indices()[0].name == "v_idx"
    assert "falling back to CPU" in caplog.text
    assert preferred_device("cpu").type == "cpu"


def test_ground_truth_matches_exact_search(rows) -> None:
    queries = _vectors(rows)[:5]
    assert infer_vector_column(rows) == "v"
    found = ground_truth(rows, "v", queries, k=10, batch_size=64, device="cpu").numpy()
    expected = np.array(
        [
            rows.to_table(
                columns=["id"],
                with_row_id=True,
                nearest={"column": "v", "q": query, "k": 10, "use_index": False},
            )["_rowid"].to_pylist()
            for query in queries
        ]
    )
    assert recall(expected, found).min() == 1.0
    values, others = sort_tensors(torch.tensor([[3.0, 1, 2]]), torch.tensor([[30, 10, 20]]), 2)
    assert (values.tolist(), others.tolist()) == ([[1.0, 2.0]], [[10, 20]])
