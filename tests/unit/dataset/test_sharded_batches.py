"""The shards of a dataset together are the dataset."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lancelet
from lancelet._dataset import ShardedBatchIterator
from lancelet.errors import InvalidInputError, UnsupportedError


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    uri = tmp_path_factory.mktemp("shards") / "t"
    return lancelet.write_dataset(pa.table({"a": range(100)}), uri, max_rows_per_file=13)


def _values(shard):
    return [value for batch in shard for value in batch.column(0).to_pylist()]


@given(
    count=st.integers(1, 5),
    batch_size=st.integers(1, 40),
    granularity=st.sampled_from(["fragment", "batch"]),
)
def test_every_row_is_in_one_shard(dataset, count, batch_size, granularity):
    options = {"columns": ["a"], "batch_size": batch_size, "granularity": granularity}
    found = []
    for rank in range(count):
        with pytest.warns(UserWarning, match="deprecated"):
            shard = ShardedBatchIterator(dataset, rank, count, **options)
        assert all(batch.num_rows <= batch_size for batch in shard)
        found += _values(shard)
    assert sorted(found) == list(range(100))


@pytest.mark.filterwarnings("ignore:ShardedBatchIterator:UserWarning")
def test_input_that_cannot_be_sharded_is_rejected(dataset):
    with pytest.raises(InvalidInputError):
        ShardedBatchIterator(dataset, 2, 2)
    with pytest.raises(InvalidInputError):
        ShardedBatchIterator(dataset, 0, 2, granularity="row")
    with pytest.raises(UnsupportedError):
        ShardedBatchIterator(dataset, 0, 2, granularity="batch", with_row_id=True)
    shard = ShardedBatchIterator(dataset.uri, 0, 1, with_row_id=True)
    assert next(iter(shard)).schema.names == ["a", "_rowid"]
