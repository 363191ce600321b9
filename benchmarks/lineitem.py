"""Rows like those of `lineitem`, made by the rules that TPC-H's public specification gives for it.

    orders have 1 to 7 lines            so keys come in short runs and rise
    the price is that of the part       a function of its key, times the quantity
    three dates, within months          each from the one before
    comments                            10 to 43 characters cut from a long text of grammar

The text is made of a grammar of our own with the words that the specification lists, so figures
are like, but not the same as, those of the official generator.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

SEED = 20_240_601
_NOUNS_TEXT = """
packages requests accounts deposits foxes ideas theodolites pinto beans instructions
dependencies excuses platelets asymptotes courts dolphins multipliers sauternes warthogs
frets dinos attainments somas braids hockey players sheaves patterns forges decoys
"""
_NOUNS = _NOUNS_TEXT.split()
_VERBS_TEXT = """
sleep wake are cajole haggle nag use boost affix detect integrate maintain nod was lose
sublate solve thrash promise engage hinder print x-ray breach eat grow impress mold poach
"""
_VERBS = _VERBS_TEXT.split()
_ADJECTIVES_TEXT = """
furious sly careful blithe quick fluffy slow quiet ruthless thin close dogged daring brave
stealthy permanent enticing idle busy regular final ironic even bold silent
"""
_ADJECTIVES = _ADJECTIVES_TEXT.split()
_ADVERBS_TEXT = """
sometimes always never furiously slyly carefully blithely quickly fluffily slowly quietly
ruthlessly thinly closely doggedly daringly bravely stealthily permanently enticingly idly
"""
_ADVERBS = _ADVERBS_TEXT.split()
_PREPOSITIONS = ["about", "above", "across", "after", "against", "along", "among", "around", "at"]
_INSTRUCTIONS = ["DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN"]
_MODES = ["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"]
_FIRST_DAY, _LAST_DAY, _CURRENT_DAY = 8035, 10_440, 9298
"""1992-01-01, 1998-08-02 and 1995-06-17, in days since 1970."""


def lineitem(rows: int) -> pa.Table:
    """Return `count` rows; scale factor 1 has about 6 million."""
    random = np.random.default_rng(SEED)
    orders = rows // 4 + 8
    lines = random.integers(1, 8, orders)
    while lines.sum() < rows:
        lines = np.concatenate([lines, random.integers(1, 8, orders)])
    order = np.repeat(np.arange(len(lines)), lines)[:rows]
    line = np.arange(rows) - np.repeat(np.cumsum(lines) - lines, lines)[:rows] + 1
    # Of each 32 keys the first 8 are used.
    order_key = (order >> 3 << 5 | order & 7) + 1
    parts, suppliers = max(1, rows // 30), max(1, rows // 600)
    part = random.integers(1, parts + 1, rows)
    supplier = (part + random.integers(0, 4, rows) * (suppliers // 4 + (part - 1) // suppliers)) % (
        suppliers
    ) + 1
    quantity = random.integers(1, 51, rows)
    retail_cents = 90_000 + part // 10 % 20_001 + 100 * (part % 1000)
    ordered = random.integers(_FIRST_DAY, _LAST_DAY - 150, len(lines))[order]
    shipped = ordered + random.integers(1, 122, rows)
    committed = ordered + random.integers(30, 91, rows)
    received = shipped + random.integers(1, 31, rows)
    returned = np.where(received <= _CURRENT_DAY, random.integers(0, 2, rows), 2)
    return pa.table(
        {
            "l_orderkey": order_key,
            "l_partkey": part,
            "l_suppkey": supplier,
            "l_linenumber": line.astype(np.int32),
            "l_quantity": _decimals(quantity * 100),
            "l_extendedprice": _decimals(quantity * retail_cents),
            "l_discount": _decimals(random.integers(0, 11, rows)),
            "l_tax": _decimals(random.integers(0, 9, rows)),
            "l_returnflag": _picked(["R", "A", "N"], returned),
            "l_linestatus": _picked(["F", "O"], (shipped > _CURRENT_DAY).astype(np.int64)),
            "l_shipdate": _days(shipped),
            "l_commitdate": _days(committed),
            "l_receiptdate": _days(received),
            "l_shipinstruct": _picked(_INSTRUCTIONS, random.integers(0, 4, rows)),
            "l_shipmode": _picked(_MODES, random.integers(0, 7, rows)),
            "l_comment": _comments(random, rows),
        }
    )


def _decimals(cents: npt.NDArray[np.int64]) -> pa.Array:
    words = np.zeros((len(cents), 2), np.int64)
    words[:, 0] = cents
    return pa.Array.from_buffers(
        pa.decimal128(15, 2), len(cents), [None, pa.py_buffer(words.tobytes())]
    )


def _days(days: npt.NDArray[np.int64]) -> pa.Array:
    return pa.array(days.astype(np.int32)).cast(pa.date32())


def _picked(values: list[str], which: npt.NDArray[np.int64]) -> pa.Array:
    return pa.array(values).take(pa.array(which))


def _comments(random: np.random.Generator, rows: int) -> pa.Array:
    text = np.frombuffer(_text(random).encode(), np.uint8)
    size = random.integers(10, 44, rows)
    start = random.integers(0, len(text) - 43, rows)
    ends = np.cumsum(size)
    data = text[np.repeat(start - (ends - size), size) + np.arange(ends[-1])]
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(data))


def _text(random: np.random.Generator, sentences: int = 40_000) -> str:
    """Return sentences: who, does, how, to what."""
    kinds = [
        _ADVERBS,
        _ADJECTIVES,
        _NOUNS,
        _VERBS,
        _ADVERBS,
        _PREPOSITIONS,
        ["the"],
        _ADJECTIVES,
        _NOUNS,
    ]
    picked = [np.asarray(words)[random.integers(0, len(words), sentences)] for words in kinds]
    kept = random.random((len(kinds), sentences)) < np.array(
        [[0.3], [0.5], [1], [1], [0.4], [0.7], [0.5], [0.4], [0.8]]
    )
    ends = np.asarray([". ", "; ", "? ", "! "])[random.integers(0, 4, sentences)]
    return "".join(
        " ".join(word for word, is_kept in zip(words, keeps, strict=True) if is_kept) + end
        for words, keeps, end in zip(zip(*picked, strict=True), kept.T, ends, strict=True)
    )
