"""JSON in binary form: the native code is the definition, on documents right and wrong."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancelet.errors import CorruptDataError
from lancelet.kernels.reference.jsonb import json_fault

numbers = (
    st.integers(-(1 << 70), 1 << 70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0, -1, 127, 128, -128, -129, 1 << 63, (1 << 64) - 1, -(1 << 63)])
)
documents = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)
WRONG = [
    "",
    " ",
    "{",
    "[1,]",
    "[1 2]",
    '{"a":}',
    '{"a":1,}',
    '{"a" 1}',
    "{1:2}",
    "nul",
    "True",
    "NaN",
    "Infinity",
    "-",
    "01",
    "1.",
    ".5",
    "+1",
    "1e",
    "1e+",
    "'a'",
    '"\t"',
    '"\\x"',
    '"\\u12"',
    '"\\ud800"',
    '"\\udc00x"',
    '"\\ud800\\u0041"',
    '"abc',
    "[1] x",
    '{"a":1,"a":2}',
    "\xa01",
    "[" * 300,
]
ODD_NUMBERS = [
    "-0",
    "-0.0",
    "0e5",
    "1e400",
    "-1e400",
    "1e-400",
    "0.1e400",
    "0.0e999",
    "1E5",
    "1.0",
    "5e-324",
    "1" * 400,
    "1" * 400 + "e-399",
    "0." + "0" * 400 + "1",
    "0." + "0" * 400 + "1e401",
    "100e99999999999",
    "123456789012345678901234567890",
    "1e-99999999999",
    "2.5E-3",
    "-9223372036854775809",
]


def joined(parts):
    data = np.frombuffer(b"".join(part or b"" for part in parts), np.uint8)
    ends = np.cumsum([0, *(len(part or b"") for part in parts)], dtype=np.int64)
    return ends, data, np.array([part is not None for part in parts], np.bool_)


@given(st.lists(st.none() | documents, max_size=6), st.booleans())
def test_decoding_undoes_encoding(agree, values, spaces):
    indent = 1 if spaces else None
    texts = [
        None if value is None else json.dumps(value, indent=indent).encode() for value in values
    ]
    ends, stored = agree("encode_jsonb", *joined(texts))
    assert len(ends) == len(values) + 1
    is_valid = joined(texts)[2]
    text_ends, text = agree("decode_jsonb", ends, stored, is_valid)
    for row, value in enumerate(values):
        found = text[text_ends[row] : text_ends[row + 1]].tobytes()
        if value is None:
            assert found == b""
        else:
            assert json.loads(found) == json.loads(json.dumps(value), parse_int=_stored_int)


def _stored_int(text):
    value = int(text)
    return value if -(1 << 63) <= value < 1 << 64 else float(value)


@pytest.mark.parametrize("text", [*ODD_NUMBERS, *(f"[{text},1]" for text in ODD_NUMBERS)])
def test_odd_numbers_are_the_same_everywhere(agree, text):
    ends, stored = agree("encode_jsonb", *joined([text.encode()]))
    agree("decode_jsonb", ends, stored, np.ones(1, np.bool_))


@pytest.mark.parametrize("text", WRONG)
def test_invalid_json_is_rejected_with_its_row(agree, text):
    parts = [b"1", None, text.encode()]
    assert agree("encode_jsonb", *joined(parts)) is CorruptDataError
    from lancelet.kernels import encode_jsonb

    with pytest.raises(CorruptDataError) as caught:
        encode_jsonb(*joined(parts))
    assert caught.value.facts["index"] == 2
    assert json_fault(text.encode())


@given(st.binary(max_size=60))
def test_random_bytes_have_the_same_result(agree, data):
    agree("decode_jsonb", *joined([data]))


@settings(max_examples=100)
@given(documents, st.data())
def test_damaged_documents_have_the_same_result(agree, value, data):
    _, stored = agree("encode_jsonb", *joined([json.dumps(value).encode()]))
    damaged = bytearray(stored.tobytes())
    for _ in range(data.draw(st.integers(1, 3))):
        bit = data.draw(st.integers(0, 8 * len(damaged) - 1))
        damaged[bit // 8] ^= 1 << bit % 8
    cut = data.draw(st.integers(0, len(damaged)))
    agree("decode_jsonb", *joined([bytes(damaged[:cut])]))


def test_containers_nest_two_hundred_deep_and_no_deeper(agree):
    for text in (b"[" * 200 + b"]" * 200, b'{"a":' * 200 + b"1" + b"}" * 200):
        ends, stored = agree("encode_jsonb", *joined([text]))
        _, back = agree("decode_jsonb", ends, stored, np.ones(1, np.bool_))
        assert back.tobytes() == text
    deep = b"[" * 202 + b"]" * 202
    assert agree("encode_jsonb", *joined([deep])) is CorruptDataError
    stored = b""
    for _ in range(400):
        stored = (
            (0x80000001).to_bytes(4, "big") + (5 << 28 | len(stored)).to_bytes(4, "big") + stored
        )
    assert agree("decode_jsonb", *joined([stored])) is CorruptDataError


def test_inconsistent_offsets_are_rejected(agree):
    data = np.frombuffer(b"[][]", np.uint8)
    both = np.ones(2, np.bool_)
    for offsets in ([0, 4, 2], [0, 2, 5], [-1, 2, 4]):
        for kernel in ("encode_jsonb", "decode_jsonb"):
            assert agree(kernel, np.array(offsets), data, both) is CorruptDataError
