"""Laws of transactions: the wire form gives every operation back, and nothing is lost."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.errors import CorruptDataError
from lancelet.format import operation as op
from lancelet.format.key_filter import KeyFilter, UnknownKeys
from lancelet.format.protos import transaction_pb
from lancelet.format.roaring import parse_bitmap
from lancelet.format.transaction import Transaction
from tests.kit.format_strategies import OPERATIONS, TEXTS, transactions

Proto = transaction_pb.Transaction


@pytest.mark.parametrize("kind", OPERATIONS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_the_wire_form_gives_the_transaction_back(kind, data):
    transaction = data.draw(transactions(OPERATIONS[kind]))
    assert Transaction.parse(transaction.render()) == transaction


def test_every_operation_is_tested():
    assert set(OPERATIONS) == set(get_args(op.Operation))


@given(transactions(), st.data())
def test_a_damaged_transaction_is_a_transaction_or_corrupt(transaction, data):
    damaged = bytearray(transaction.render())
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        again = Transaction.parse(bytes(damaged))
    except CorruptDataError:
        return
    assert Transaction.parse(again.render()) == again


@given(st.binary(max_size=40))
def test_arbitrary_bytes_are_a_transaction_or_corrupt(data):
    try:
        transaction = Transaction.parse(data)
    except CorruptDataError:
        return
    assert Transaction.parse(transaction.render()) == transaction


def test_an_operation_of_a_later_release_is_carried():
    wire = Proto(read_version=3, uuid="u", transaction_properties={"a": "b"}).SerializeToString()
    later = bytes.fromhex("a2 0c 02 08 01".replace(" ", ""))  # field 196
    transaction = Transaction.parse(wire + later)
    assert transaction.operation == op.UnknownOperation(later)
    assert Transaction.parse(transaction.render()) == transaction


def test_files_of_older_releases_have_the_same_meaning():
    fragment = {"id": 7, "physical_rows": 3}
    rewrite = Proto.Rewrite(old_fragments=[fragment], new_fragments=[fragment, fragment])
    read = Transaction.parse(Proto(rewrite=rewrite).SerializeToString()).operation
    assert [(len(g.old_fragments), len(g.new_fragments)) for g in read.groups] == [(1, 2)]

    config = Proto.UpdateConfig(
        upsert_values={"a": "1"}, delete_keys=["b"], schema_metadata={"c": "2"}
    )
    config.field_metadata[4].metadata["d"] = "3"
    read = Transaction.parse(Proto(update_config=config).SerializeToString()).operation
    assert read == op.UpdateConfig(
        config=op.UpdateMap({"a": "1", "b": None}),
        schema_metadata=op.UpdateMap({"c": "2"}, replace=True),
        field_metadata={4: op.UpdateMap({"d": "3"}, replace=True)},
    )

    update = Proto.Update()
    update.updated_fragment_offsets[2].values.extend([3, 1])
    read = Transaction.parse(Proto(update=update).SerializeToString()).operation
    assert {part: list(parse_bitmap(data)) for part, data in read.updated_offsets.items()} == {
        2: [1, 3]
    }


def test_a_filter_of_a_later_release_may_hold_any_key():
    update = Proto.Update()
    update.inserted_rows.MergeFromString(bytes.fromhex("0a0103 a20100"))
    transaction = Transaction.parse(Proto(update=update).SerializeToString())
    keys = transaction.operation.inserted_rows
    assert keys == KeyFilter((3,), UnknownKeys(bytes.fromhex("a20100")))
    assert keys.may_intersect(keys)
    assert Transaction.parse(transaction.render()) == transaction


@given(TEXTS, TEXTS, st.booleans())
def test_changes_to_a_map_set_delete_and_replace(before, changes, replace):
    entries = {**changes, **dict.fromkeys(list(before)[:1])}
    after = op.UpdateMap(entries, replace).apply(before)
    for key in {*before, *entries}:
        kept = None if replace else before.get(key)
        assert after.get(key) == entries.get(key, kept)
