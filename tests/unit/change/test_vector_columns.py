"""Columns of equally long float lists become vectors in new tables, without changing values."""

import dataclasses
import uuid

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pydantic
import pytest

import lancelet
from lancelet.errors import SchemaMismatchError

WIDE = [[row + column / 4 for column in range(8)] for row in range(3)]


def type_of(data, name="values", **options):
    uri = f"memory://vectors-{uuid.uuid4()}/t"
    return lancelet.write_dataset(data, uri, **options).schema.field(name).type


@dataclasses.dataclass
class Record:
    values: list[float]


class Model(pydantic.BaseModel):
    values: list[float]


@pytest.mark.parametrize(
    "data",
    [
        [{"values": each} for each in WIDE],
        {"values": WIDE},
        [Record(each) for each in WIDE],
        [Model(values=each) for each in WIDE],
        pd.DataFrame({"values": WIDE}),
        pl.DataFrame({"values": WIDE}),
    ],
    ids=["dicts", "columns", "dataclasses", "models", "pandas", "polars"],
)
def test_equally_long_lists_become_vectors(data):
    uri = f"memory://equally-long-{uuid.uuid4()}/t"
    dataset = lancelet.write_dataset(data, uri)
    assert dataset.schema.field("values").type == pa.list_(pa.float64(), 8)
    assert dataset.to_table()["values"].to_pylist() == WIDE
    nearest = {"column": "values", "q": WIDE[1], "k": 1}
    assert dataset.to_table(nearest=nearest)["_distance"].to_pylist() == [0.0]


def test_items_keep_their_type():
    rows = [{"embedding": [0.5, 0.25]}, {"embedding": None}]
    uri = "memory://float64-vectors/t"
    dataset = lancelet.write_dataset(rows, uri)
    assert dataset.schema.field("embedding").type == pa.list_(pa.float64(), 2)
    assert dataset.to_table().to_pylist() == rows
    later = [{"embedding": [1e39, 0.1]}]
    assert lancelet.write_dataset(later, uri, mode="append").to_table().to_pylist() == rows + later
    arrays = {"embedding": list(np.ones((2, 4), np.float32))}
    assert type_of(arrays, "embedding") == pa.list_(pa.float32(), 4)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([[1.0] * 8, [1.0] * 9], id="several lengths"),
        pytest.param([[1.0, 2.0]], id="few items"),
        pytest.param([[1.0] * 7 + [None]], id="null items"),
        pytest.param([[1] * 8], id="integers"),
        pytest.param([None], id="nulls"),
        pytest.param([[]], id="empty"),
    ],
)
def test_other_lists_stay_lists(values):
    assert not pa.types.is_fixed_size_list(type_of({"values": values}))


def test_explicit_types_are_not_changed():
    listed = pa.list_(pa.float64())
    assert type_of(pa.table({"values": pa.array(WIDE, listed)})) == listed
    assert type_of({"values": pa.array(WIDE, listed)}) == listed
    assert type_of({"values": WIDE}, schema=pa.schema([("values", listed)])) == listed


def test_short_lists_are_vectors_if_their_column_is_named_like_vectors():
    assert type_of({"text_embedding": [[0.5, 1.0]]}, "text_embedding").list_size == 2
    assert type_of({"v": [[0.5, 1.0]]}, "v").list_size == 2


def test_generated_rows_become_vectors_until_a_length_differs():
    rows = ({"vector": [0.5, float(number)]} for number in range(10_000))
    dataset = lancelet.write_dataset(rows, "memory://generated-vectors/t")
    assert dataset.schema.field("vector").type == pa.list_(pa.float64(), 2)
    assert dataset.count_rows() == 10_000
    ragged = ({"vector": [0.5] * (2 + number // 9_000)} for number in range(10_000))
    with pytest.raises(SchemaMismatchError, match="pass a schema"):
        lancelet.write_dataset(ragged, "memory://ragged-vectors/t")


def test_appended_rows_have_the_vectors_of_the_table():
    uri = "memory://appended-vectors/t"
    lancelet.write_dataset({"vector": np.eye(2, dtype=np.float32)}, uri)
    dataset = lancelet.write_dataset([{"vector": [0.1, 0.2]}], uri, mode="append")
    assert dataset.schema.field("vector").type == pa.list_(pa.float32(), 2)
    assert dataset.count_rows() == 3


def test_a_search_of_lists_names_the_conversion():
    table = pa.table({"v": pa.array([[0.5, 1.0]], pa.list_(pa.float32()))})
    dataset = lancelet.write_dataset(table, "memory://searched-lists/t")
    with pytest.raises(ValueError, match="alter_columns"):
        dataset.to_table(nearest={"column": "v", "q": [0.5, 1.0]})
    dataset.alter_columns({"path": "v", "data_type": pa.list_(pa.float32(), 2)})
    assert dataset.to_table(nearest={"column": "v", "q": [0.5, 1.0]}).num_rows == 1
