"""Only the listed modules read and write pages; a new one needs a design decision.

Decoders do no I/O: functions that convert page bytes to arrays are generators that request ranges
(`ReadCoroutine`), locate values stored in Arrow layout, or pass pages to native plans. Kernels do
the rest. A new module or class has to be added to these tables, which requires a reason that
decision records 21 and 25 do not cover.
"""

import ast
from collections.abc import Callable
from functools import cache
from pathlib import Path

import lancelet
from lancelet.kernels.topics import KERNELS

ROOT = Path(lancelet.__file__).parent

READERS = {
    # The definition, for 2.1 and later: fields of levels, whose layouts read their pages.
    "encodings/base.py": {"FieldReader"},
    "encodings/pages/structural.py": {"PageReader", "StructuralReader", "_LeafReader"},
    "encodings/constant/read.py": {"ConstantPage"},
    "encodings/fullzip/read.py": {"FullZipPage"},
    "encodings/miniblock/read.py": {"MiniBlockPages"},
    "encodings/v2_1/blob.py": {"BlobPage"},
    "encodings/v2_3/sparse.py": {"SparsePage"},
    "encodings/v2_3/values.py": {
        "ChunkedValues",
        "ConstantValues",
        "IndexedValues",
        "SparseValues",
        "ZippedValues",
        "_empty_read",
    },
    # The native way to read these pages, of many columns at once.
    "encodings/pages/planned.py": {"PlannedColumns"},
    # The definition for 2.0.
    "encodings/v2_0/page.py": {"Decoder"},
    "encodings/v2_0/reader.py": {
        "FieldReader",
        "Node",
        "_Blob",
        "_Leaf",
        "_List",
        "_ByteLists",
        "_Struct",
        "_read",
    },
    "encodings/v2_0/fixed_width.py": {"Bitpacked", "BitpackedForNonNeg", "CompressedFlat", "Flat"},
    "encodings/v2_0/nested.py": {
        "AllNull",
        "Dictionary",
        "FixedSizeListItems",
        "PackedStruct",
        "SomeNull",
    },
    "encodings/v2_0/variable.py": {"Binary", "EndOffsets", "FixedSizeBinary", "Fsst"},
    # The definition for 0.1.
    "encodings/v0_1/reader.py": {
        "FieldReader",
        "Node",
        "_Binary",
        "_Dictionary",
        "_List",
        "_Null",
        "_FixedWidthReader",
        "_Struct",
        "_read",
        "_read_edges",
    },
    # The metadata around pages.
    "file/v0_1/metadata.py": {"read_metadata"},
    "file/v0_1/statistics.py": {"read_statistics"},
    "file/v2/column_metadata.py": {"_resolve", "decode_column"},
    "file/v2/metadata.py": {"FileMetadata", "read_metadata"},
}
"""The classes and functions that are a `ReadCoroutine`, or have methods that are."""

WRITERS = {
    "encodings/pages/encode_field.py": {"_to_encoded_pages"},  # pages of 2.1 and later
    "encodings/v2_1/fields.py": {"_encode_blobs"},  # their blobs
    "encodings/v2_0/writer.py": {"_FieldWriter"},
    "encodings/v0_1/writer.py": {"_Bits", "_Fixed", "_List", "_Null", "_Variable"},
}
"""The classes and functions that make `EncodedPages`, or add pages to files of 0.1."""

CALLERS = {
    "bitpack": {
        "encodings/codecs/inline_bitpacking.py",
        "encodings/codecs/out_of_line_bitpacking.py",
    },
    "chunks": {
        "encodings/fullzip/read.py",
        "encodings/miniblock/frame.py",
        "encodings/miniblock/page_metadata.py",
        "encodings/miniblock/read.py",
    },
    "dictionary": {"encodings/codecs/dictionary.py", "encodings/take.py"},
    "fsst": {"encodings/codecs/fsst.py"},
    "full_zip": {"encodings/fullzip/read.py", "encodings/fullzip/write.py"},
    "levels": {
        "encodings/codecs/out_of_line_bitpacking.py",
        "encodings/levels/shred.py",
        "encodings/levels/unravel.py",
        "encodings/miniblock/read.py",
    },
    "lz4": {"encodings/codecs/general.py"},
    # The native way: what stored metadata say becomes plans, by which rows are read.
    "plans": {"encodings/pages/planned.py", "file/v2/reader.py"},
    "rle": {"encodings/codecs/rle.py"},
    "pages": {"encodings/pages/encode_pages.py"},
    "split_bytes": {"encodings/codecs/byte_stream_split.py"},
    "variable": {"encodings/codecs/variable.py"},
    "zstd": {"encodings/codecs/general.py"},
}
"""The modules that call kernels of pages, by the topics of these."""

IN_PLACE = {
    "encodings/base.py": {"FieldReader"},
    "encodings/pages/structural.py": {"PageReader", "StructuralReader", "_LeafReader"},
    "encodings/fullzip/read.py": {"FullZipPage"},
}
"""The classes that say where values are that are stored as Arrow has them."""


GENERAL = {"read", "_read", "_read_unit", "_read_edges", "_empty_read", "read_slots"}
"""The functions of the general way; a class has one of them."""

WAYS = {
    "PlannedColumns.read": "column plans",
    "PlannedColumns.read_ranges": "column plans",
    "PlannedColumns._take": "column plans",
    "open_small_files": "packs",
    "value_ranges": "in place",
    "match": "filters on encoded data",
    "_match": "filters on encoded data",
    "_matched": "filters on encoded data",
    "select": "filters on encoded data",
    "_select": "filters on encoded data",
    "_selected": "filters on encoded data",
}
"""The other functions that convert page bytes to arrays or locate arrays in them, and their names
in decision record 36, which has the gain of each. A new one needs a row with at least a tenth.
"""
DECISION = Path(__file__).parents[2] / "docs" / "adr" / "0036-ways-to-read-pages.md"
ARRAYS = ("LeafRows", "pa.Array", "Flags", "np.bool_")


@cache
def sources() -> dict[str, list[ast.AST]]:
    """Each module that may read and write pages, as its nodes; kernels know of none."""
    return {
        name.as_posix(): list(ast.walk(ast.parse((ROOT / name).read_text())))
        for name in (path.relative_to(ROOT) for path in sorted(ROOT.rglob("*.py")))
        if name.parts[0] != "kernels"
    }


def owners(is_one: Callable[[ast.AST], bool], *layers: str) -> dict[str, set[str]]:
    """Return, of each module of some layers, the classes and functions in which one is."""
    found = {
        module: {
            node.name
            for node in ast.iter_child_nodes(nodes[0])
            if isinstance(node, ast.ClassDef | ast.FunctionDef)
            if any(map(is_one, ast.walk(node)))
        }
        for module, nodes in sources().items()
        if not layers or module.split("/")[0] in layers
    }
    return {module: names for module, names in found.items() if names}


def is_reading(node: ast.AST) -> bool:
    returned = node.returns if isinstance(node, ast.FunctionDef) else None
    return returned is not None and ast.unparse(returned).startswith("ReadCoroutine[")


def makes_pages(node: ast.AST) -> bool:
    match node:
        case ast.Call(ast.Name("EncodedPages")) | ast.Call(ast.Attribute(_, "add_page")):
            return True
    return False


def tells_places(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == "value_ranges"


def kernels_named(nodes: list[ast.AST]) -> set[str]:
    """Return what a module imports from `kernels`, or takes as an attribute of it."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and "kernels" in (node.module or ""):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found |= {node.attr} if node.value.id == "kernels" else set()
    return found


def test_only_allowed_modules_read_pages():
    assert owners(is_reading, "encodings", "file") == READERS


def test_only_allowed_modules_locate_values():
    assert owners(tells_places, "encodings", "file") == IN_PLACE


def test_only_allowed_modules_write_pages():
    assert owners(makes_pages) == WRITERS


def test_only_allowed_modules_call_page_kernels():
    topic_of = {name: topic for topic in CALLERS for name in KERNELS[topic].split()}
    found: dict[str, set[str]] = {}
    for module, nodes in sources().items():
        for name in kernels_named(nodes) & topic_of.keys():
            found.setdefault(topic_of[name], set()).add(module)
    assert found == CALLERS


def converts_pages(function: ast.FunctionDef) -> bool:
    """Return whether a function decodes pages, locates arrays in them, or opens them to do so."""
    if function.returns is None or tells_places(function):
        return function.returns is not None
    returned = ast.unparse(function.returns)
    if returned.startswith("ReadCoroutine["):
        return any(name in returned for name in (*ARRAYS, "PlannedRows"))
    return returned in ("PlannedRows | None", "SmallFiles | None")


def ways_of(layer: str) -> dict[str, list[str]]:
    """Return the functions of each class and module that convert pages."""
    found: dict[str, list[str]] = {}
    for module, nodes in sources().items():
        if module.split("/")[0] != layer:
            continue
        for node in ast.iter_child_nodes(nodes[0]):
            members = node.body if isinstance(node, ast.ClassDef) else [node]
            owner = f"{module}:{node.name}" if isinstance(node, ast.ClassDef) else module
            found.setdefault(owner, []).extend(
                each.name
                for each in members
                if isinstance(each, ast.FunctionDef) and converts_pages(each)
            )
    return {owner: names for owner, names in found.items() if names}


def test_every_additional_way_to_read_pages_is_declared():
    """A second function of a class, or one of another name, is a new way."""
    used = set()
    for owner, names in {**ways_of("encodings"), **ways_of("file")}.items():
        general = []
        for name in names:
            qualified = f"{owner.rpartition(':')[2]}.{name}"
            way = qualified if qualified in WAYS else name
            (used.add(way) if way in WAYS else general.append(name))
        assert set(general) <= GENERAL, (owner, general)
        if ":" in owner and general != ["read", "read_slots"]:  # slots: pages without levels
            assert len(general) <= 1, (owner, general)
    assert used == WAYS.keys()


def test_every_additional_way_has_a_measured_gain():
    text = DECISION.read_text(encoding="utf-8")
    table = {line.split(" | ")[0].strip("| ") for line in text.splitlines() if " | " in line}
    assert set(WAYS.values()) <= table
    measured = {name.partition(":")[0] for name in table if ":" in name}
    assert set(WAYS.values()) - measured == {"filters on encoded data"}  # in decision record 34
