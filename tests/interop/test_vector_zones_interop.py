"""Zone maps of vectors: both implementations find through them which vectors are null."""

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.indices import IndexConfig

pytestmark = pytest.mark.interop

WRITERS = {"lancelet": lancelet, "lance": lance}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("item", [pa.float16(), pa.float32(), pa.int8()], ids=str)
def test_both_find_null_vectors_through_the_zones_of_either(tmp_path, writer, item):
    path = str(tmp_path)
    values = pa.array(np.arange(400) % 100).cast(item)
    mask = pa.array([row % 10 == 3 for row in range(100)])
    vectors = pa.FixedSizeListArray.from_arrays(values, 4, mask=mask)
    rows = pa.table({"id": range(100), "v": vectors})
    dataset = WRITERS[writer].write_dataset(rows, path, max_rows_per_file=50)
    dataset.create_scalar_index("v", lance.indices.IndexConfig("zonemap", {"rows_per_zone": 16}))
    for library in (lance, lancelet):
        (listed,) = library.dataset(path).describe_indices()
        assert listed.details == {}
        for text, count in (("v IS NULL", 10), ("v IS NOT NULL", 90), ("v IS NULL AND id < 50", 5)):
            assert library.dataset(path).count_rows(text) == count
        plan = library.dataset(path).scanner(filter="v IS NULL").explain_plan()
        assert "ScalarIndexQuery" in plan


def test_zones_of_an_updated_index_have_the_same_number_of_rows(tmp_path):
    dataset = lancelet.write_dataset(pa.table({"a": range(40)}), str(tmp_path))
    dataset.create_scalar_index("a", IndexConfig("zonemap", {"rows_per_zone": 16}), train=False)
    dataset.optimize.optimize_indices()
    (segment,) = dataset.stats.index_stats("a_idx")["segments"]
    assert segment == {"num_zones": 3, "rows_per_zone": 16}
