"""Precomputed partitions and ignored arguments behave as in pylance."""

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancelet
import lancelet.indices
from lancelet.errors import InvalidInputError
from lancelet.file import LanceFileReader

pytestmark = pytest.mark.interop
DIMENSION, ROWS, PARTITIONS = 16, 600, 3


def matrix(rows, seed):
    return np.random.default_rng(seed).standard_normal((rows, DIMENSION)).astype(np.float32)


def lists(values):
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[-1])


@pytest.fixture
def path(tmp_path):
    table = pa.table({"id": range(ROWS), "v": lists(matrix(ROWS, 1))})
    lance.write_dataset(table, tmp_path / "t", max_rows_per_file=250)
    return str(tmp_path / "t")


def partitions_of(path, tmp_path, rows=500):
    """Rows in turn in partitions 2, 0 and 1, and the last hundred in none."""
    ids = lance.dataset(path).to_table([], with_row_id=True)["_rowid"][:rows]
    labels = pa.array((np.arange(rows) + 2) % PARTITIONS, pa.uint32())
    target = str(tmp_path / "partitions")
    lance.write_dataset(pa.table({"row_id": ids, "partition": labels}), target, mode="overwrite")
    return target


@pytest.mark.parametrize("kind", ["IVF_FLAT", "IVF_PQ"])
def test_rows_go_where_they_are_said_to_be(path, tmp_path, kind):
    asked = {
        "num_partitions": PARTITIONS,
        "ivf_centroids": matrix(PARTITIONS, 2),
        "precomputed_partition_dataset": partitions_of(path, tmp_path),
        **({"num_sub_vectors": 4} if kind == "IVF_PQ" else {}),
    }
    sizes = []
    for module in (lance, lancelet):
        dataset = module.dataset(path)
        dataset.create_index("v", kind, replace=True, **asked)
        index = dataset.stats.index_stats("v_idx")["indices"][0]
        sizes.append([part["size"] for part in index["partitions"]])
    assert sizes[0] == sizes[1] == [167, 166, 167]
    query = {"column": "v", "q": matrix(1, 3)[0], "k": 20, "nprobes": PARTITIONS}
    found = [
        module.dataset(path).to_table(["id"], nearest={**query, "refine_factor": 50})["id"]
        for module in (lance, lancelet)
    ]
    assert found[0] == found[1]
    assert max(found[0].to_pylist()) < 500


def test_a_segment_that_is_not_committed_takes_them_too(path, tmp_path):
    dataset = lancelet.dataset(path)
    segment = dataset.create_index_uncommitted(
        "v",
        "IVF_FLAT",
        fragment_ids=[0, 1, 2],
        num_partitions=PARTITIONS,
        ivf_centroids=matrix(PARTITIONS, 2),
        precomputed_partition_dataset=partitions_of(path, tmp_path),
        accelerator="cpu",
    )
    dataset.commit_existing_index_segments("v_idx", "v", [segment])
    assert (
        sum(part["size"] for part in dataset.stats.index_stats("v_idx")["indices"][0]["partitions"])
        == 500
    )


def test_vectors_are_transformed_with_them(path, tmp_path):
    centroids, words = lists(matrix(PARTITIONS, 2)), lists(matrix(256, 4).reshape(-1, 4))
    tables = []
    for module, own in ((lance, lance.indices), (lancelet, lancelet.indices)):
        where = partitions_of(path, tmp_path, ROWS)
        target = str(tmp_path / f"{module.__name__}.lance")
        builder = own.IndicesBuilder(module.dataset(path), "v")
        ivf, pq = own.IvfModel(centroids, "l2"), own.PqModel(4, words)
        builder.transform_vectors(ivf, pq, target, partition_ds_uri=where)
        rows = LanceFileReader(target).read_all().to_table()
        tables.append(rows.sort_by("_rowid").select(["_rowid", "__ivf_part_id", "__pq_code"]))
    assert tables[0] == tables[1].cast(tables[0].schema)
    assert tables[1]["__ivf_part_id"].to_pylist() == [(row + 2) % 3 for row in range(ROWS)]
    builder.transform_vectors(ivf, pq, target, partition_ds_uri=partitions_of(path, tmp_path))
    assert LanceFileReader(target).num_rows() == 500  # where the reference panics


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ivf_centroids": None}, "ivf_centroids must be provided"),
        ({"ivf_centroids": matrix(2, 2), "num_partitions": 2}, "exceed the number of centroids"),
        ({"precomputed_partition_dataset": "t"}, "row_id and partition"),
    ],
)
def test_partitions_that_do_not_fit_are_rejected(path, tmp_path, change, message):
    asked = {
        "num_partitions": PARTITIONS,
        "ivf_centroids": matrix(PARTITIONS, 2),
        "precomputed_partition_dataset": partitions_of(path, tmp_path),
        **change,
    }
    if asked["precomputed_partition_dataset"] == "t":
        asked["precomputed_partition_dataset"] = path
    with pytest.raises(InvalidInputError, match=message):
        lancelet.dataset(path).create_index("v", "IVF_FLAT", **asked)


def test_product_codes_need_nothing_but_the_column(path):
    dataset = lancelet.dataset(path)
    dataset.create_index("v", "IVF_PQ")
    query = {"column": "v", "q": matrix(1, 3)[0], "k": 5, "refine_factor": 50}
    found = [module.dataset(path).to_table(["id"], nearest=query) for module in (lance, lancelet)]
    assert found[0]["id"] == found[1]["id"]


def test_arguments_of_others_are_ignored_with_a_warning(path):
    lance.dataset(path).optimize.optimize_indices(nonsense=1)
    dataset = lancelet.dataset(path)
    dataset.create_scalar_index("id", "BTREE")
    dataset.insert(pa.table({"id": [ROWS], "v": lists(matrix(1, 5))}))
    with pytest.warns(
        UserWarning, match="optimize_indices ignores the unknown argument 'nonsense'"
    ):
        dataset.optimize.optimize_indices(nonsense=1)
    assert dataset.stats.index_stats("id_idx")["num_unindexed_rows"] == 0
