"""The writer chooses the cheapest encoding to read, unless the field's metadata set another.

Data are made so that one encoding is far ahead; the exact sizes are `tests/interop`'s and the
benchmarks' concern. Whatever is chosen has to decode to what was given.
"""

import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet import kernels
from lancelet.encodings.arrow import block_from_arrow
from lancelet.encodings.base import Block, FileVersion, FixedWidth, Variable
from lancelet.encodings.choice.choose import (
    SMALL_CHUNK_VALUES_BYTES,
    MiniBlock,
    encode_dictionary_mini_block,
    encode_full_zip,
    encode_items,
    encode_mini_block,
)
from lancelet.encodings.choice.options import EncodingOptions
from lancelet.encodings.choice.sample import sample_values
from lancelet.encodings.codecs import registry
from lancelet.encodings.codecs.dictionary import take_items
from lancelet.encodings.codecs.unsigned import to_unsigned
from tests.kit.blocks import fixed_width, plain_lists, runs, strings
from tests.kit.codec_suite import assert_equal

VERSIONS = [FileVersion.V2_1, FileVersion.V2_2]
COUNT = 20_000
RNG = np.random.default_rng(7)
WORDS = np.array(["the", "quick", "brown", "fox", "jumps", "over", "lazy", "dogs", "and", "away"])
LETTERS = np.array(list("etaoinshrdlu"))
NOUNS = np.array(["".join(RNG.choice(LETTERS, 6)) for _ in range(300)])


def sentences(count: int) -> pa.Array:
    return pa.array([" ".join(RNG.choice(NOUNS, 6)) for _ in range(count)])


def urls(count: int) -> pa.Array:
    paths = ["/".join(RNG.choice(NOUNS[:40], 3)) for _ in range(200)]
    ids = RNG.integers(0, 10**6, count).tolist()
    return pa.array([f"https://{RNG.choice(paths)}?id={number}" for number in ids])


COLUMNS = {
    "random": pa.array(RNG.integers(-(2**62), 2**62, COUNT)),
    "small": pa.array(RNG.integers(0, 1000, COUNT)),
    "runs": pa.array(np.repeat(RNG.integers(0, 2**62, COUNT // 200), 200)),
    "rising": pa.array(10**15 + np.cumsum(RNG.integers(0, 10**7, COUNT))),
    "few": pa.array(RNG.choice(RNG.random(40), COUNT)),
    "price": pa.array(RNG.integers(0, 10**6, COUNT)).cast(pa.decimal128(19, 0)),
    "words": pa.array(RNG.choice(WORDS, COUNT)),
    "sentences": sentences(COUNT),
    "urls": urls(COUNT),
    "keys": pa.array([f"{key:032x}" for key in RNG.integers(0, 2**63, COUNT).tolist()]),
    "vectors": pa.FixedSizeListArray.from_arrays(
        pa.array(RNG.normal(size=COUNT * 4).astype(np.float32)), 4
    ),
    "flags": pa.array(RNG.random(20 * COUNT) < 0.05),
    "skewed": pa.array(RNG.geometric(0.3, 2 * COUNT).clip(0, 255).astype(np.uint8)),
}


_WORDS_CHOSEN = "dictionary(10, variable(flat(32))){inline_bitpacking(8)}"


def choose(array: pa.Array, version: FileVersion = FileVersion.V2_2, **metadata: str) -> MiniBlock:
    keys = {f"lance-encoding:{key.replace('_', '-')}": value for key, value in metadata.items()}
    options = EncodingOptions.from_metadata("x", keys)
    return encode_mini_block(block_from_arrow(array), version=version, options=options)


def decode(page: MiniBlock) -> Block:
    chunks = page.values
    values = registry.decode_chunks(chunks.encoding, chunks.parts, chunks.counts)
    dictionary = page.dictionary
    if dictionary is None:
        return values
    encoding, data = dictionary.block.encoding, dictionary.block.data
    items = registry.decode_block(encoding, data, dictionary.num_items)
    return take_items(items, to_unsigned(values, "test"))


@pytest.mark.parametrize(
    ("column", "chosen"),
    [
        ("random", "flat(64)"),
        ("small", "inline_bitpacking(64)"),
        ("runs", "rle(flat(64), flat(8))"),
        ("rising", "general(lz4){byte_stream_split(64)}"),
        ("few", "dictionary(40, flat(64)){inline_bitpacking(8)}"),
        ("price", "general(zstd){flat(128)} without a search"),
        ("words", _WORDS_CHOSEN),
        ("urls", "general(zstd){fsst{variable(flat(32))}} without a search"),
        ("keys", "general(zstd){fsst{variable(flat(32))}} without a search"),
        ("vectors", "fixed_size_list(4){flat(32)}"),
        ("flags", "general(zstd){flat(1)} without a search"),
        ("skewed", "general(zstd){flat(8)} without a search"),
    ],
)
def test_the_cheapest_encoding_is_chosen(column: str, chosen: str) -> None:
    page = choose(COLUMNS[column])
    assert page.description == chosen
    assert chosen not in page.refused
    assert all("B" in cost and "ns" in cost for cost in page.refused.values())


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("version", VERSIONS)
def test_chosen_encodings_decode_to_the_original_values(column: str, version: FileVersion) -> None:
    page = choose(COLUMNS[column], version)
    assert_equal(decode(page), block_from_arrow(COLUMNS[column]))


@given(
    block=st.one_of(fixed_width((1, 8, 16, 32, 64, 128)), runs(), strings(), plain_lists()),
    version=st.sampled_from(VERSIONS),
    compression=st.sampled_from([None, "none", "lz4", "zstd", "fsst"]),
)
def test_any_block_survives_any_choice(block: Block, version, compression) -> None:
    metadata = {} if compression is None else {"lance-encoding:compression": compression}
    options = EncodingOptions.from_metadata("x", metadata)
    page = encode_mini_block(block, version=version, options=options)
    assert_equal(decode(page), block)


@pytest.mark.parametrize("column", COLUMNS)
def test_chunks_of_2_1_leave_room_for_levels(column: str) -> None:
    values = choose(COLUMNS[column], FileVersion.V2_1).values
    sizes = sum(part.size for part in values.parts)
    assert int(sizes.max()) <= SMALL_CHUNK_VALUES_BYTES


@pytest.mark.parametrize(
    ("column", "metadata", "chosen"),
    [
        ("rising", {"compression": "none"}, "flat(64)"),
        ("small", {"compression": "none"}, "dictionary(1000, flat(64)){flat(16)}"),
        ("keys", {"compression": "none"}, "variable(flat(32))"),
        ("words", {"compression": "none"}, "dictionary(10, variable(flat(32))){flat(8)}"),
        ("keys", {"compression": "fsst"}, "fsst{variable(flat(32))}"),
        ("words", {"compression": "fsst"}, _WORDS_CHOSEN),
        ("rising", {"compression": "zstd"}, "general(zstd){flat(64)}"),
        ("rising", {"compression": "zstd", "bss": "off"}, "general(zstd){flat(64)}"),
        ("price", {"compression": "lz4"}, "general(lz4){flat(128)}"),
        ("rising", {"compression": "zstd", "bss": "on"}, "general(zstd){byte_stream_split(64)}"),
    ],
)
def test_metadata_decide(column: str, metadata: dict[str, str], chosen: str) -> None:
    page = choose(COLUMNS[column], **metadata)
    assert page.description == chosen
    assert_equal(decode(page), block_from_arrow(COLUMNS[column]))


def test_requested_compression_minimizes_bytes() -> None:
    """Codes of strings would be faster to read, and more to store."""
    texts = pa.array([f"compress_me_please-{n}" for n in range(10_000)])
    assert choose(texts).description.endswith("{fsst{variable(flat(32))}} without a search")
    assert choose(texts, compression="zstd").description == "general(zstd){variable(flat(32))}"


def test_runs_can_be_forbidden() -> None:
    assert "rle" not in choose(COLUMNS["runs"], rle_threshold="0").description


def test_requested_runs_must_exist() -> None:
    assert choose(COLUMNS["runs"], rle_threshold="0.1").description.startswith("rle")
    assert not choose(COLUMNS["random"], rle_threshold="0.1").description.startswith("rle")


@pytest.mark.parametrize(
    "metadata", [{"dict_max_size": "9"}, {"dict_divisor": "10000"}, {"dict_size_ratio": "0.0"}]
)
def test_a_dictionary_can_be_forbidden(metadata: dict[str, str]) -> None:
    assert choose(COLUMNS["words"], **metadata).dictionary is None


def test_a_level_is_passed_on_and_stored() -> None:
    page = choose(COLUMNS["price"], compression="zstd", compression_level="19")
    assert page.values.encoding.general.compression.level == 19
    default = choose(COLUMNS["price"], compression="zstd")
    assert page.values.encoded_bytes < default.values.encoded_bytes
    assert not default.values.encoding.general.compression.HasField("level")


def test_chunks_of_a_size_can_be_requested() -> None:
    small = choose(COLUMNS["random"], minichunk_size="1024")
    assert int(small.values.parts[0].size.max()) == 1024


def test_compression_that_gains_nothing_is_rejected_though_requested() -> None:
    assert choose(COLUMNS["random"], compression="zstd", bss="off").description == "flat(64)"


def test_dictionary_items_are_compressed_as_requested() -> None:
    items = block_from_arrow(sentences(500))
    plain, zstd, lz4 = (
        encode_items(items, EncodingOptions.from_metadata("x", metadata)).data.nbytes
        for metadata in (
            {"lance-encoding:dict-values-compression": "none"},
            {"lance-encoding:dict-values-compression": "zstd"},
            {"lance-encoding:dict-values-compression": "lz4"},
        )
    )
    assert zstd < lz4 < plain


def test_a_dictionary_has_the_compression_of_its_column() -> None:
    texts = [f"value number {place % 500}" for place in range(20_000)]
    block = block_from_arrow(pa.array(texts))
    for compression in ("lz4", "zstd"):
        options = EncodingOptions.from_metadata("x", {"lance-encoding:compression": compression})
        chosen = encode_mini_block(block, version=FileVersion.V2_2, options=options)
        assert re.findall(r"general\((\w+)\)", chosen.description) == [compression] * 2


def test_arrow_dictionaries_keep_their_items_and_keys() -> None:
    array = pa.array(RNG.choice(WORDS, 3000)).dictionary_encode()
    indices = block_from_arrow(array.indices)
    assert isinstance(indices, FixedWidth)
    items = block_from_arrow(array.dictionary)
    page = encode_dictionary_mini_block(
        indices, items, version=FileVersion.V2_2, options=EncodingOptions()
    )
    assert page.dictionary is not None
    assert page.dictionary.num_items == len(array.dictionary)
    assert_equal(decode(page), block_from_arrow(array.cast(pa.string())))


@pytest.mark.parametrize(
    ("metadata", "name"),
    [({}, "fsst"), ({"compression": "none"}, "variable"), ({"compression": "zstd"}, "general")],
)
def test_values_of_full_zip_pages_are_compressed_separately(
    metadata: dict[str, str], name: str
) -> None:
    keys = {f"lance-encoding:{key}": value for key, value in metadata.items()}
    block = block_from_arrow(pa.array([" ".join(RNG.choice(WORDS, 80)) for _ in range(200)]))
    encoded = encode_full_zip(block, options=EncodingOptions.from_metadata("x", keys))
    assert encoded.encoding.WhichOneof("compression") == name
    assert isinstance(encoded.rows, Variable)
    assert_equal(registry.decode_values(encoded.encoding, encoded.rows), block)


def test_long_values_are_worth_a_compressed_frame_each() -> None:
    documents = pa.array([" ".join(RNG.choice(NOUNS, 4000)) for _ in range(20)])
    encoded = encode_full_zip(block_from_arrow(documents), options=EncodingOptions())
    assert encoded.encoding.WhichOneof("compression") == "general"


def test_samples_are_whole_if_small_and_bounded_if_large() -> None:
    small = block_from_arrow(COLUMNS["small"][:1000])
    assert sample_values(small) is small
    large = block_from_arrow(pa.array(["x" * 5000] * 5000))
    assert 64 <= sample_values(large).count <= 210
    bits = block_from_arrow(pa.array([True, False] * 50_000))
    assert sample_values(bits).count == 16384


def test_useless_compression_is_detected_on_a_sample_of_long_values(monkeypatch):
    """A value of megabytes is not coded as a whole, only to find that it cannot be."""
    noise = np.random.default_rng(3).integers(0, 256, 4 << 20, np.uint8)
    block = Variable(np.array([0, 5, len(noise)], np.int64), noise)
    coded = []
    encode = kernels.fsst_encode

    def spy(offsets, data, *table):
        coded.append(int(offsets[-1]))
        return encode(offsets, data, *table)

    monkeypatch.setattr(kernels, "fsst_encode", spy)
    encoded = encode_full_zip(block, options=EncodingOptions())
    assert registry.describe(encoded.encoding).startswith("variable")
    assert encoded.rows.data is noise
    assert max(coded) < 64 * 1024
