"""Goal: the parts of a dataset can be inspected."""

from pathlib import Path

import pyarrow as pa

import lancelet
from lancelet.debug import format_fragment, format_manifest, format_schema, list_transactions

ROWS = pa.table({"x": range(10), "s": [{"y": None}] * 10})


def test_schemas_manifests_and_fragments_are_shown(tmp_path: Path) -> None:
    ds = lancelet.write_dataset(ROWS, tmp_path / "t")
    ds.update_config({"k": "v"})
    assert '    name: "x",\n            id: 0,\n' in format_schema(ds)
    shown = format_manifest(ds)
    assert shown.startswith("Manifest {\n")
    assert 'config: {\n        "k": "v",\n    },' in shown
    assert "fragments: [\n        Fragment {\n            id: 0,\n" in shown
    fragment = format_fragment(ds.get_fragment(0).metadata, ds)
    assert ds.get_fragment(0).data_files()[0].path in fragment
    assert 'name: "y"' in fragment


def test_transactions_are_listed_newest_first(tmp_path: Path) -> None:
    ds = lancelet.write_dataset(ROWS, tmp_path / "t")
    ds.insert(ROWS)
    ds.delete("x = 5")
    found = list_transactions(ds)
    assert all(each.startswith("Transaction {") for each in found)
    kinds = ["Delete {", "Append {", "Overwrite {"]
    assert [kind in each for kind, each in zip(kinds, found, strict=True)] == [True] * 3
    assert list_transactions(ds, 2) == found[:2]
    assert list_transactions(ds.checkout_version(1)) == found[2:]
