"""Invalid arguments raise the errors of pylance, before any side effect."""

# ruff: noqa: ARG005 - every mistake takes the dataset and the library

from datetime import timedelta

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lancelet

ROWS = pa.table(
    {
        "i": pa.array(range(30), pa.int64()),
        "a": range(30),
        "v": pa.FixedSizeListArray.from_arrays(np.zeros(60, np.float32), 2),
        "s": ["red fox"] * 30,
    }
)
NEAREST = {"column": "v", "q": np.zeros(2, np.float32)}

READS = {
    "a fragment by number": lambda d, m: d.scanner(fragments=[5]),
    "a fragment by name": lambda d, m: d.scanner(fragments=["x"]),
    "metadata of a fragment": lambda d, m: d.scanner(fragments=[d.get_fragment(0).metadata]),
    "an unknown field of pyarrow": lambda d, m: d.to_table(filter=pc.field("nope") == 1),
    "a wrong type of pyarrow": lambda d, m: d.to_table(filter=pc.field("i") == "x"),
    "counting by an unknown field": lambda d, m: d.count_rows(pc.field("nope") == 1),
    "one name": lambda d, m: d.take([1], columns="ia"),
    "one name for a fragment": lambda d, m: d.get_fragment(0).take([1], columns="ia"),
    "half a row": lambda d, m: d.get_fragment(0).take([1.5]),
    "a text for true": lambda d, m: d.to_table(with_row_id="no"),
    "a number for true": lambda d, m: d.to_table(use_scalar_index=5),
    "a text for a limit": lambda d, m: d.to_table(limit="x"),
    "too many bits": lambda d, m: d.to_table(offset=2**70),
    "no reading ahead": lambda d, m: d.to_table(batch_readahead=0),
    "a late column": lambda d, m: d.to_table(filter="i = 1", late_materialization=5),
    "an unknown late column": lambda d, m: d.scanner(late_materialization=["i", "nope"]),
    "a key that is not there": lambda d, m: d.merge_insert(["i", "nope"]),
    "a callback": lambda d, m: d.scanner(scan_stats_callback=5),
    "an effort": lambda d, m: d.to_table(nearest={**NEAREST, "search_effort": 5}),
    "a negative boost": lambda d, m: d.scanner(
        full_text_query=m.query.MatchQuery("fox", "s", boost=-1.0)
    ).to_table(),
    "negative expansions": lambda d, m: m.query.MatchQuery("fox", "s", max_expansions=-1),
    "a slop": lambda d, m: m.query.PhraseQuery("fox", "s", slop=-1),
    "words of a number": lambda d, m: m.query.MatchQuery(5, "s"),
    "a version": lambda d, m: d.checkout_version(2**70),
    "a fragment below none": lambda d, m: d.get_fragment(-1),
    "a session by number": lambda d, m: m.dataset(d.uri, session=3),
    "parameters by number": lambda d, m: m.dataset(d.uri, read_params=3),
}
CHANGES = {
    "deleting by an unknown field": lambda d, m: d.delete(pc.field("nope") == 1),
    "a time in seconds": lambda d, m: d.delete("i = 1", retry_timeout=3),
    "retries": lambda d, m: d.update({"i": "0"}, conflict_retries=-1),
    "a text for false": lambda d, m: d.cleanup_old_versions(timedelta(0), delete_unverified="no"),
    "versions to keep": lambda d, m: d.cleanup_old_versions(retain_versions="2"),
    "a detached commit": lambda d, m: m.LanceDataset.commit(
        d.uri, m.LanceOperation.Append([]), read_version=1, detached="no"
    ),
    "replacing all": lambda d, m: d.update_config({"a": "b"}, replace="no"),
    "replacing an index": lambda d, m: d.create_scalar_index("i", "BTREE", replace="no"),
    "rows of a file": lambda d, m: m.write_dataset(
        ROWS, d.uri, mode="append", max_rows_per_file="9"
    ),
    "ids that stay": lambda d, m: m.write_dataset(
        ROWS, d.uri, mode="overwrite", enable_stable_row_ids="no"
    ),
    "a mode": lambda d, m: m.write_dataset(ROWS, d.uri, mode=5),
    "a tag": lambda d, m: d.tags.create(5, 1),
    "an index by number": lambda d, m: d.drop_index(5),
    "threads": lambda d, m: d.optimize.compact_files(num_threads=-1),
    "a text for deletions": lambda d, m: d.optimize.compact_files(materialize_deletions="no"),
    "retraining": lambda d, m: d.optimize.optimize_indices(retrain="no"),
    "an option of a store": lambda d, m: m.write_dataset(
        ROWS, d.uri, mode="append", storage_options={"allow_http": True}
    ),
    "a version that was read": lambda d, m: m.LanceDataset.commit(
        d.uri, m.LanceOperation.Append([]), read_version=-1
    ),
    "a column by name": lambda d, m: d.alter_columns("i"),
    "a type by name": lambda d, m: d.alter_columns({"path": "i", "data_type": "int32"}),
    "a path by number": lambda d, m: d.alter_columns({"path": 5, "name": "j"}),
    "a key by number": lambda d, m: d.merge(ROWS.rename_columns(["i", "b", "w", "t"]), 5),
}


def raised(call, dataset, module):
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the class is what is compared
        call(dataset, module)
    return type(caught.value)


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("kinds") / "t")
    lancelet.write_dataset(ROWS, path).create_scalar_index("s", "INVERTED")
    return path


@pytest.mark.parametrize("mistake", [*READS, *CHANGES])
def test_a_mistake_is_an_error_of_the_same_class(uri, mistake):
    theirs = raised((READS | CHANGES)[mistake], lance.dataset(uri), lance)
    ours = raised((READS | CHANGES)[mistake], lancelet.dataset(uri), lancelet)
    assert issubclass(ours, theirs), (ours.__mro__, theirs.__mro__)
    assert issubclass(ours, lancelet.errors.LanceletError)
    assert lancelet.dataset(uri).latest_version == 2


@pytest.fixture
def same_tables(tmp_path):
    rows = pa.table({"id": range(10), "x": range(10)})
    return [
        library.write_dataset(rows, tmp_path / library.__name__) for library in (lance, lancelet)
    ]


NEGATIVE_ROWS = {
    "take": lambda dataset: dataset.take([-1]),
    "take of a fragment": lambda dataset: dataset.get_fragment(0).take([-1]),
}


@pytest.mark.parametrize("take", NEGATIVE_ROWS)
def test_negative_rows_are_an_overflow(same_tables, take):
    for dataset in same_tables:
        with pytest.raises(OverflowError):
            NEGATIVE_ROWS[take](dataset)


def test_truth_values_are_row_indices(same_tables):
    theirs, ours = same_tables
    assert ours.take([True, False]) == theirs.take([True, False])


def test_filter_that_is_null_is_rejected(same_tables):
    for dataset in same_tables:
        with pytest.raises(ValueError, match="does not return a boolean"):
            dataset.to_table(filter="null")


def test_batches_of_a_merge_have_the_name_of_the_reference(same_tables):
    for dataset in same_tables:
        rows = pa.table({"id": [1], "x": [100]}).to_reader()
        merge = dataset.merge_insert("id").when_matched_update_all()
        assert merge.execute_batches(new_data=rows)["num_updated_rows"] == 1
