"""Options of a text index that have another type than they must raise what the reference raises."""

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancelet

pytestmark = pytest.mark.interop

WRONG = [
    {"max_token_length": -1},
    {"max_token_length": 2**70},
    {"max_token_length": 1.5},
    {"stem": "x"},
    {"remove_stop_words": 0},
    {"language": 5},
    {"base_tokenizer": 5},
    {"analyzer": 3},
    {"base_tokenizer": "ngram", "min_ngram_length": -1},
    {"base_tokenizer": "ngram", "max_ngram_length": "3"},
    {"base_tokenizer": "code", "split_identifiers": 3},
    {"custom_stop_words": "the"},
    {"custom_stop_words": [1]},
]
RIGHT = [
    {"stem": np.bool_(False)},
    {"max_token_length": np.int64(4)},
    {"max_token_length": None},
    {"custom_stop_words": ("fox",)},
]


def index(module, options, path):
    uri = str(path / f"{module.__name__}.lance")
    dataset = module.write_dataset(pa.table({"t": ["The foxes run"]}), uri)
    dataset.create_scalar_index("t", "INVERTED", **options)


def tokenize(module, options, _):
    return [token.text for token in module.tokenize("The foxes run", **options)]


@pytest.mark.parametrize("use", [index, tokenize])
@pytest.mark.parametrize("options", WRONG, ids=str)
def test_wrong_types_are_rejected_as_the_reference_does(tmp_path, use, options):
    with pytest.raises((TypeError, OverflowError)) as expected:
        use(lance, options, tmp_path)
    with pytest.raises(expected.type):
        use(lancelet, options, tmp_path)


@pytest.mark.parametrize("use", [index, tokenize])
@pytest.mark.parametrize("options", RIGHT, ids=str)
def test_valid_types_have_the_meaning_of_the_reference(tmp_path, use, options):
    assert use(lancelet, options, tmp_path) == use(lance, options, tmp_path)
