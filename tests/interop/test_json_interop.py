"""Goal: schemas and fragments have the JSON form that the reference gives and takes."""

import json
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.fragment import FragmentMetadata
from lance.schema import json_to_schema as their_schema
from lance.schema import schema_to_json as their_json

from lancelet.buffers import Slices, run
from lancelet.errors import InvalidInputError
from lancelet.format.fragment_json import fragment_from_json, fragment_to_json
from lancelet.format.manifest_file import parse_manifest_file, read_transaction
from lancelet.format.schema_json import json_to_schema, schema_to_json

pytestmark = pytest.mark.interop

PART = pa.field("a", pa.int8(), nullable=False, metadata={"q": "r"})
TYPES = [
    pa.null(), pa.bool_(), pa.uint64(), pa.float16(), pa.float64(), pa.string(), pa.large_binary(),
    pa.binary(5), pa.date32(), pa.time64("ns"), pa.timestamp("us"), pa.timestamp("ns", "+05:30"),
    pa.duration("s"), pa.decimal128(5, -2), pa.decimal256(60, 3), pa.struct([]), pa.struct([PART]),
    pa.list_(pa.int8()), pa.large_list(PART), pa.list_(pa.list_(pa.int8(), 2), 3),
    pa.dictionary(pa.int8(), pa.string()), pa.json_(), pa.uuid(), pa.list_(pa.struct([PART]), 2),
    pa.fixed_shape_tensor(pa.float32(), [2, 3]),
]  # fmt: skip


@pytest.mark.parametrize("data_type", TYPES, ids=str)
def test_a_schema_has_their_form_and_comes_back(data_type: pa.DataType) -> None:
    nullable = data_type == pa.null()
    field = pa.field("x", data_type, nullable, metadata={"f": "g"})
    schema = pa.schema([field], metadata={"m": "n"})
    form = schema_to_json(schema)
    assert form == their_json(schema)
    assert json_to_schema(form).equals(schema, check_metadata=True)
    assert their_schema(form).equals(schema, check_metadata=True)


def test_a_map_which_they_refuse_comes_back() -> None:
    schema = pa.schema([pa.field("m", pa.map_(pa.string(), pa.int8()))])
    assert json_to_schema(schema_to_json(schema)).equals(schema)


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"fields": [{}]},
        {"fields": [{"name": "x", "type": {"type": "int8"}}]},
        {"fields": [{"name": "x", "type": {"type": "int8"}, "nullable": 1}]},
        {"fields": [{"name": "x", "type": {"type": "list", "fields": []}, "nullable": True}]},
        {"fields": 3},
    ],
)
def test_an_unsound_form_is_refused(form: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError):
        json_to_schema(form)


def write_everything(root: Path) -> None:
    numbers = pa.table({"a": range(20), "b": range(20)})
    ds = lance.write_dataset(numbers, root, enable_stable_row_ids=True, max_rows_per_file=10)
    ds.delete("a = 3")
    ds.update({"a": "100"}, where="a = 5")
    ds.update_config({"lance.row_lineage.spill": "true", "lance.row_lineage.inline_max_bytes": "1"})
    ds.update({"a": "6"}, where="a > 4")


def test_a_fragment_has_their_form_and_comes_back(tmp_path: Path) -> None:
    write_everything(tmp_path / "t")
    path = min((tmp_path / "t" / "_versions").glob("*.manifest"))
    ours = parse_manifest_file(np.frombuffer(path.read_bytes(), np.uint8)).manifest.fragments
    theirs = [fragment.metadata for fragment in lance.dataset(tmp_path / "t").get_fragments()]
    for mine, their in zip(ours, theirs, strict=True):
        form = fragment_to_json(mine)
        assert form == their.to_json()
        assert fragment_from_json(form) == mine
        assert FragmentMetadata.from_json(json.dumps(form)).to_json() == form


def test_overlays_have_their_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")
    ds = lance.write_dataset(pa.table({"a": range(9), "b": range(9)}), tmp_path / "t")
    op = lance.LanceOperation
    file = ds.get_fragments()[0].metadata.files[0]
    overlays = [op.DataOverlayFile(file, [1, 3]), op.DataOverlayFile(file, [[1], [2, 5]])]
    operation = op.DataOverlay([op.DataOverlayGroup(0, overlays)])
    ds = lance.LanceDataset.commit(ds, operation, read_version=1)
    path = min((tmp_path / "t" / "_versions").glob("*.manifest"))
    data = np.frombuffer(path.read_bytes(), np.uint8)
    stored = parse_manifest_file(data)
    (mine,) = stored.manifest.fragments
    (their,) = ds.get_fragments()
    assert fragment_to_json(mine) == their.metadata.to_json()
    assert fragment_from_json(fragment_to_json(mine)) == mine
    transaction = run(
        read_transaction(stored), lambda wanted: Slices(data, wanted.position, wanted.size)
    )
    assert transaction.operation.groups[0].fragment_id == 0


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"id": 0, "files": [{}], "physical_rows": 1},
        {"id": 0, "files": [], "physical_rows": 1, "row_id_meta": {"Elsewhere": 1}},
        {"id": 0, "files": [], "physical_rows": 1, "deletion_file": {"file_type": "x"}},
    ],
)
def test_an_unsound_fragment_is_refused(form: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError):
        fragment_from_json(form)
