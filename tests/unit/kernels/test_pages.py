"""Pages by each instruction set; `test_encode_field` compares them with their definition."""

import numpy as np
import pytest

from lancelet.encodings.pages.encode_pages import RULES
from lancelet.errors import CorruptDataError
from lancelet.kernels import ENCODINGS, Found, PageValues, _native, native

ROWS = 1000
LEFT, ONE_VALUE, CHUNKS = range(3)


def as_page(values, **shape):
    return PageValues(values.itemsize * 8, values.view(np.uint8), **shape)


def as_texts(texts, kind=np.int32):
    offsets = np.cumsum([0, *map(len, texts)]).astype(kind)
    data = np.frombuffer("".join(texts).encode(), np.uint8)
    return PageValues(offsets.itemsize * 8, data, 0, offsets.view(np.uint8))


def pages():
    rng = np.random.default_rng(0)
    some = np.packbits(rng.random(ROWS + 3) < 0.9, bitorder="little")
    return [
        as_page(rng.integers(0, 1000, ROWS)),
        as_page(rng.random(ROWS).astype(np.float32)),
        as_page(rng.integers(0, 5, ROWS) * 1_000_003, validity=some, valid_offset=3),
        as_page(np.repeat(np.arange(10, dtype=np.int16), ROWS // 10)),
        as_page(np.full(ROWS, 7)),
        PageValues(1, some, 2),
        as_texts([f"item {at}" for at in rng.integers(0, 9, ROWS)]),
        as_texts([f"{at}" for at in rng.integers(0, 1 << 20, ROWS)], np.int64),
        as_page(rng.integers(0, 1 << 60, ROWS)),
    ]


def encoded(own, rows=ROWS):
    made = native.encode_pages(own, rows, RULES, has_large_chunks=True, constants=2)
    assert made is not None
    return made


def test_all_instruction_sets_make_the_same_bytes():
    made = {}
    before = _native.set_in_use()
    for name in _native.supported_sets():
        _native.use_set(name)
        made[name] = encoded(pages())
    _native.use_set(before)
    first = made[before]
    kinds = first.found[:, Found.KIND].tolist()
    assert kinds == [CHUNKS] * 4 + [ONE_VALUE] + [CHUNKS] * 4
    for each in made.values():
        assert each.data.tobytes() == first.data.tobytes()
        assert each.found.tolist() == first.found.tolist()
        assert each.costs.tolist() == first.costs.tolist()


def test_pages_do_not_depend_on_neighbouring_pages():
    together = encoded(pages())
    for at, page in enumerate(pages()):
        alone = encoded([page])
        start = together.found[at, Found.POSITION]
        assert together.data[start : start + len(alone.data)].tobytes() == alone.data.tobytes()


@pytest.mark.parametrize(
    ("page", "rows"),
    [
        (as_page(np.zeros(7, np.int64)), 8),
        (PageValues(12, np.zeros(64, np.uint8)), 8),
        (PageValues(1, np.zeros(1, np.uint8), 1), 8),
        (PageValues(1, np.zeros(9, np.uint8), 8), 8),
        (as_page(np.arange(8), validity=np.zeros(1, np.uint8), valid_offset=1), 8),
        (as_page(np.arange(8), levels=np.zeros(7, np.uint16)), 8),
        (PageValues(32, np.zeros(4, np.uint8), 0, np.array([0, 4, 2], "<i4").view(np.uint8)), 2),
        (PageValues(32, np.zeros(4, np.uint8), 0, np.array([0, 2, 9], "<i4").view(np.uint8)), 2),
        (PageValues(32, np.zeros(4, np.uint8), 0, np.array([-1, 2, 4], "<i4").view(np.uint8)), 2),
        (PageValues(64, np.zeros(4, np.uint8), 0, np.array([0, 2], "<i8").view(np.uint8)), 2),
        (as_page(np.arange(8)), 0),
        (as_page(np.arange(8)), 1 << 31),
    ],
)
def test_values_that_are_not_there_are_rejected(page, rows):
    with pytest.raises(CorruptDataError):
        encoded([page], rows)


def test_output_without_room_is_not_written_past():
    values = np.random.default_rng(0).integers(0, 1 << 62, ROWS)
    columns = np.array([64, 0, values.nbytes, 0, -1, -1, -1, 0])
    nothing = np.empty(0, np.uint8)
    for room in (0, 3, 4, 100, len(encoded([as_page(values)]).data) - 1):
        out = np.full(room + 64, 7, np.uint8)
        found = np.empty(len(Found), np.int64)
        costs = np.empty(2 * (ENCODINGS + 1))
        source = values.view(np.uint8), nothing, nothing, columns
        shape = ROWS, 1, 2
        assert _native.encode_pages(source, shape, tuple(RULES), out[:room], found, costs) == 0
        assert found[Found.KIND] == LEFT
        assert (out[room:] == 7).all()


def test_constants_of_the_choice_are_parameters():
    """The chooser in Python has them once: as arguments, they cannot differ in the kernel."""
    page = pages()[0]

    def encoding(rules):
        made = native.encode_pages([page], ROWS, rules, has_large_chunks=True, constants=2)
        return int(made.found[0, Found.ENCODING])

    plain, packed = 0, 1
    assert encoding(RULES) == packed
    assert encoding(RULES._replace(tiny_bytes=1 << 20)) == plain
