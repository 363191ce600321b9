"""Plans and pickles of a table are rejected after the table was recreated."""

import json
import pickle
import shutil

import lance
import lance.optimize
import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import CommittedFilesMissingError, NotFoundError, VersionNotFoundError
from lancelet.optimize import Compaction, CompactionTask, RewriteResult
from lancelet.torch.data import SafeLanceDataset
from lancelet.training import plan

DIM = 8


def rows(first):
    vectors = np.arange(first * DIM, (first + 40) * DIM, dtype=np.float32)
    return pa.table(
        {
            "id": range(first, first + 40),
            "v": pa.FixedSizeListArray.from_arrays(pa.array(vectors), DIM),
        }
    )


def create(uri, first=0, versions=1):
    dataset = lancelet.write_dataset(rows(first), uri, max_rows_per_file=20)
    for _ in range(versions - 1):
        dataset.update_config({"k": "v"})
    return dataset


def create_again(dataset, versions=1):
    shutil.rmtree(dataset.uri)
    return create(dataset.uri, 1000, versions)


PICKLED = {
    "dataset": lambda dataset: dataset,
    "old version": lambda dataset: dataset.checkout_version(1),
    "fragment": lambda dataset: dataset.get_fragment(0),
    "fragments": lambda dataset: dataset.get_fragments(),
    "pytorch dataset": lambda dataset: SafeLanceDataset(dataset.uri),
}


def first_of(data):
    """Return the first element of a pickle, with which a dataset of PyTorch is opened."""
    loaded = pickle.loads(data)
    return loaded if isinstance(loaded, lancelet.LanceDataset) else loaded[0]


@pytest.mark.parametrize("versions", [1, 2, 5])
@pytest.mark.parametrize("kind", PICKLED)
def test_pickle_does_not_read_another_table(tmp_path, kind, versions):
    dataset = create(tmp_path / "t", versions=2)
    data = pickle.dumps(PICKLED[kind](dataset))
    pickle.loads(data)
    create_again(dataset, versions)
    with pytest.raises(VersionNotFoundError):
        first_of(data)


def test_pickle_reads_the_version_after_further_commits(tmp_path):
    dataset = create(tmp_path / "t")
    data = pickle.dumps((dataset, dataset.get_fragment(1)))
    lancelet.dataset(dataset.uri).delete("id < 30")
    loaded, fragment = pickle.loads(data)
    assert (loaded.count_rows(), fragment.count_rows()) == (40, 20)


def test_pickle_reads_a_table_that_was_moved(tmp_path):
    dataset = create(tmp_path / "t")
    data = pickle.dumps(dataset)
    (tmp_path / "t").rename(tmp_path / "elsewhere")
    shutil.copytree(tmp_path / "elsewhere", tmp_path / "t")
    assert pickle.loads(data).count_rows() == 40


@pytest.mark.parametrize("versions", [1, 2, 5])
@pytest.mark.parametrize("planner", ["lancelet", "reference"])
@pytest.mark.parametrize("travels", ["as a value", "as JSON"])
def test_compaction_of_another_table_is_rejected(tmp_path, planner, travels, versions):
    dataset = create(tmp_path / "t")
    library = lancelet if planner == "lancelet" else lance
    opened = library.dataset(dataset.uri)
    (task,) = library.optimize.Compaction.plan(opened, {"target_rows_per_fragment": 100}).tasks
    result = task.execute(opened)
    if travels == "as JSON" or planner == "reference":
        task = CompactionTask.from_json(json.dumps(json.loads(task.json())))
        result = RewriteResult.from_json(json.dumps(json.loads(result.json())))
    again = create_again(dataset, versions)
    with pytest.raises(VersionNotFoundError, match="plan the compaction again"):
        task.execute(again)
    with pytest.raises(VersionNotFoundError, match="plan the compaction again"):
        Compaction.commit(again, [result])
    assert again.to_table() == rows(1000)


def test_results_of_several_versions_are_committed(tmp_path):
    dataset = create(tmp_path / "t")
    options = {"target_rows_per_fragment": 40}
    first = [task.execute(dataset) for task in Compaction.plan(dataset, options).tasks]
    dataset.insert(rows(40), max_rows_per_file=20)
    later = Compaction.plan(dataset, options)
    second = [task.execute(dataset) for task in later.tasks[1:]]
    assert {result.read_version for result in first + second} == {1, 2}
    Compaction.commit(dataset, first + second)
    assert dataset.to_table().sort_by("id") == pa.concat_tables([rows(0), rows(40)])


@pytest.mark.parametrize("kind", ["BTREE", "INVERTED", "IVF_FLAT"])
def test_segment_of_an_index_of_another_table_is_rejected(tmp_path, kind):
    dataset = create(tmp_path / "t")
    column = {"BTREE": "id", "INVERTED": "s", "IVF_FLAT": "v"}[kind]
    if kind == "INVERTED":
        dataset.add_columns({"s": "'word'"})
    options = {"num_partitions": 1} if kind == "IVF_FLAT" else {}
    segment = dataset.create_index_uncommitted(column, kind, fragment_ids=[0, 1], **options)
    again = create_again(dataset)
    if kind == "INVERTED":
        again.add_columns({"s": "'other'"})
    with pytest.raises(CommittedFilesMissingError):
        again.commit_existing_index_segments("by_column", column, [segment])
    assert lancelet.dataset(dataset.uri).describe_indices() == []


@pytest.mark.parametrize("to", ["uri", "dataset"])
def test_fragments_written_for_another_table_are_rejected(tmp_path, to):
    dataset = create(tmp_path / "t")
    fragments = lancelet.fragment.write_fragments(rows(100), dataset)
    again = create_again(dataset)
    target = dataset.uri if to == "uri" else again
    operation = lancelet.LanceOperation.Append(fragments)
    with pytest.raises(CommittedFilesMissingError):
        lancelet.LanceDataset.commit(target, operation, read_version=1)
    assert lancelet.dataset(dataset.uri).to_table() == rows(1000)


def test_training_plan_of_another_table_is_rejected(tmp_path):
    dataset = create(tmp_path / "t")
    data = pickle.dumps(plan(dataset, seed=1))
    pickle.loads(data)
    create_again(dataset)
    with pytest.raises(NotFoundError):
        pickle.loads(data)
