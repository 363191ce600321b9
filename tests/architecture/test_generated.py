"""Generated modules are those that their generator writes."""

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOL = runpy.run_path(str(ROOT / "tools/generate_scan_methods.py"))


def test_methods_of_scans_are_current():
    stale = [path.name for path, text in TOOL["render"]().items() if path.read_text() != text]
    assert stale == [], "run tools/generate_scan_methods.py"


def test_a_new_field_becomes_an_argument_and_a_builder_method():
    fields = TOOL["fields_of"](TOOL["DECLARATION"].read_text())
    added = type(fields["limit"])("int | None", "None", "The seed of a sample.")
    arguments = TOOL["arguments_of"]({**fields, "seed": added})
    assert list(arguments)[-1] == "seed"
    assert "        seed: int | None = None,\n" in TOOL["write_methods"](arguments)
    setters = TOOL["write_setters"](arguments)
    assert "def seed(self, seed: int | None) -> Self:" in setters
    assert 'self._set_integer(None, "seed", "seed", seed)' in setters


def test_every_field_has_a_text():
    fields = TOOL["fields_of"](TOOL["DECLARATION"].read_text())
    assert [name for name, field in fields.items() if not field.text.endswith(".")] == []
