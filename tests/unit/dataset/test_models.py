"""Models of Pydantic become rows with the schema that the reference gives them."""

import enum
from datetime import date, datetime

import lance.pydantic
import numpy as np
import pyarrow as pa
import pydantic
import pytest

import lancelet
import lancelet.pydantic as ours
from lancelet.errors import InvalidInputError, UnsupportedError


class Colour(enum.Enum):
    RED = "red"


class Inner(pydantic.BaseModel):
    x: float
    tags: list[str] | None = None


def _model(library):
    class OrderItem(pydantic.BaseModel):
        id: int
        name: str | None = None
        flag: bool
        raw: bytes
        at: datetime
        day: date
        inner: Inner
        many: list[Inner]
        vector: library.Vector(2)
        vectors: library.MultiVector(2)
        whole: library.Vector(3, pa.float64(), nullable=False)

    return OrderItem


ROW = {
    "id": 1,
    "flag": True,
    "raw": b"x",
    "at": datetime(2026, 1, 2),  # noqa: DTZ001
    "day": date(2026, 1, 2),
    "inner": {"x": 0.5},
    "many": [{"x": 1.0, "tags": ["a"]}],
    "vector": np.array([1, 2], np.float32),
    "vectors": [[1, 2], [3, 4]],
    "whole": [1, 2, 3],
}


def test_a_schema_is_that_of_the_reference():
    expected = lance.pydantic.pydantic_to_schema(_model(lance.pydantic))
    assert ours.pydantic_to_schema(_model(ours)) == expected


def test_models_are_written_and_come_back(tmp_path, monkeypatch):
    model = _model(ours)
    item = model(**ROW)
    dataset = lancelet.LanceDataset.from_pydantic_model(model, [item], tmp_path / "t")
    (row,) = dataset.to_table().to_pylist()
    assert model(**row) == item
    monkeypatch.chdir(tmp_path)
    named = lancelet.LanceDataset.from_pydantic_model(model, [item])
    assert named.uri == "order_item"


def test_vectors_have_their_dimension():
    model = _model(ours)
    with pytest.raises(pydantic.ValidationError):
        model(**{**ROW, "vector": [1.0]})
    assert model.model_fields["vector"].annotation.dim() == 2
    assert ours.is_nullable(model.model_fields["name"])
    assert not ours.is_nullable(model.model_fields["whole"])
    with pytest.raises(InvalidInputError):
        ours.Vector(0)


def test_a_field_has_additional_properties():
    field = pydantic.Field(json_schema_extra={"k": "v"})
    assert ours.get_extras(field, "k") == "v"
    assert ours.get_extras(pydantic.Field(), "k") is None


def test_non_column_input_is_rejected():
    class Wrong(pydantic.BaseModel):
        a: int | str

    class Wide(pydantic.BaseModel):
        a: dict[str, int]

    class Shade(pydantic.BaseModel):
        a: Colour

    with pytest.raises(UnsupportedError):
        ours.pydantic_to_schema(Wrong)
    with pytest.raises(UnsupportedError):
        ours.pydantic_to_schema(Wide)
    assert ours.pydantic_to_schema(Shade).field("a").type == pa.dictionary(pa.int32(), pa.string())
    with pytest.raises(TypeError):
        lancelet.LanceDataset.from_pydantic_model(int, [1])
    with pytest.raises(TypeError):
        lancelet.LanceDataset.from_pydantic_model(Shade, [1])
    with pytest.raises(ValueError, match="non-empty"):
        lancelet.LanceDataset.from_pydantic_model(Shade, [])
