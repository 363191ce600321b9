"""Text indices of the first releases: three files, nothing packed.

The files are those that release 0.27 wrote for "red fox", "fox" and "fox fox red", by hand.
"""

import numpy as np
import pyarrow as pa
import pytest

from lancelet.errors import CorruptDataError, ObjectNotFoundError
from lancelet.index.folder import SegmentFolder
from lancelet.index.inverted.kind import InvertedSegment
from lancelet.io.memory import MemoryStore

OPTIONS = '{"base_tokenizer":"simple","language":"English","stem":false,"remove_stop_words":false}'
NUMBERS, LENGTHS = [7, 3, 5], [2, 1, 3]


def written(offsets="[0,3]", rows=(3, 5, 7, 7, 5)):
    folder = SegmentFolder(MemoryStore(), "_indices/old")
    tokens = pa.table({"_token": ["fox", "red"], "_token_id": pa.array([0, 1], pa.uint32())})
    folder.write("tokens.lance", tokens, {"tokenizer": OPTIONS})
    docs = {"_rowid": pa.array(NUMBERS, pa.uint64()), "_num_tokens": pa.array(LENGTHS, pa.uint32())}
    folder.write("docs.lance", pa.table(docs))
    occurrences = {
        "_rowid": pa.array(rows, pa.uint64()),
        "_frequency": pa.array([1, 2, 1, 1, 1], pa.float32()),
        "_position": pa.array([[0], [0, 1], [1], [0], [2]], pa.list_(pa.int32())),
    }
    folder.write("invert.lance", pa.table(occurrences), {"offsets": offsets})
    return folder


def test_a_segment_without_metadata_is_read():
    segment = InvertedSegment(written())
    (partition,) = segment.partitions
    assert not segment.options.stem
    assert segment.options.with_position
    assert partition.numbers.tolist() == NUMBERS
    found = {}
    for token in ("fox", "red"):
        docs, freqs = partition.postings_of(partition.tokens.find(token))
        found[token] = dict(zip(partition.numbers[docs].tolist(), freqs.tolist(), strict=True))
    assert found == {"fox": {3: 1, 5: 2, 7: 1}, "red": {7: 1, 5: 1}}
    _, postings = partition.read_all()
    assert np.all(np.diff(postings.docs[:3].astype(int)) > 0)
    assert postings.positions.tolist() == [1, 0, 0, 1, 0, 2]


@pytest.mark.parametrize("wrong", [{"offsets": "[0]"}, {"offsets": "[0,9]"}, {"offsets": "[0,x]"}])
def test_files_that_do_not_fit_are_rejected(wrong):
    with pytest.raises(CorruptDataError, match="early releases"):
        InvertedSegment(written(**wrong))
    with pytest.raises(CorruptDataError, match="unknown document"):
        InvertedSegment(written(rows=(3, 5, 8, 7, 5)))


def test_a_folder_without_files_lacks_its_metadata():
    with pytest.raises(ObjectNotFoundError, match="metadata"):
        InvertedSegment(SegmentFolder(MemoryStore(), "_indices/none"))
