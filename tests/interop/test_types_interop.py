"""Every type, in every place it may have, with every pattern of nulls, in every version, both ways.

Generated tables (`tests/property/test_file_roundtrip.py`) go deeper; these cases are complete, and
say by name what does not work. A gap is listed with a part of the error that shows it, and is
strict: one that closes fails here until it is taken off the list.
"""

import lance.file
import numpy as np
import pyarrow as pa
import pytest
from lance.arrow import BFloat16Type

import lancelet.file
from lancelet.format.version import FileVersion
from tests.kit import strategies
from tests.kit.strategies import Distribution, assert_same_rows, random_array, stored_table

pytestmark = pytest.mark.interop

TYPES = [
    *strategies.LEAVES,
    *strategies.VIEWS,
    *strategies.EXTENSIONS,
    *strategies.DICTIONARIES,
    *(pa.list_(item, 3) for item in strategies.LIST_ITEMS),
    BFloat16Type(),
    *(pa.dictionary(width, pa.string()) for width in strategies.INTEGERS),
]
NULL_SHARES = {"full": 0.0, "holes": 0.3, "nulls": 1.0}
ROWS = 1100
"""More than the 1024 values of a block of packed integers."""

KNOWN_GAPS: dict[tuple[str, str], str] = {}
"""Part of the error of a version and type."""


def places(data_type, version):
    """Return the types that a type is a part of, or is itself."""
    found = {
        "itself": data_type,
        "list": pa.list_(data_type),
        "lists": pa.list_(pa.large_list(data_type)),
        "struct": pa.struct([("a", data_type), ("b", pa.list_(data_type))]),
        "structs": pa.list_(pa.struct([("a", data_type)])),
    }
    if version >= FileVersion.V2_2:
        found["map"] = pa.map_(pa.string(), data_type)
        # The reference lacks structs of these within lists of one size.
        if not pa.types.is_nested(data_type) and not isinstance(data_type, pa.BaseExtensionType):
            found["fixed"] = pa.list_(pa.struct([("a", data_type)]), 2)
    return found


def column(data_type, version, null_share, seed):
    has_no_null_structs = version is FileVersion.V2_0 and strategies.holds_struct(data_type)
    spread = Distribution(
        distinct=40,
        runs=False,
        text_bytes=300 if seed % 2 else 12,
        list_items=3,
        null_share=0.0 if has_no_null_structs else null_share,
    )
    return random_array(np.random.default_rng(seed), data_type, ROWS, spread)


def write(module, path, table, version):
    with module.LanceFileWriter(str(path), table.schema, version=version.value) as writer:
        writer.write_batch(table)


def read(module, path, name):
    return module.LanceFileReader(str(path), columns=[name]).read_all().to_table()


def check(data_type, version, folder):
    for seed, (place, whole) in enumerate(places(data_type, version).items()):
        columns = {
            nulls: column(whole, version, share, seed) for nulls, share in NULL_SHARES.items()
        }
        table = pa.table(columns)
        expected = stored_table(table)
        ours, theirs = folder / f"{place}.ours.lance", folder / f"{place}.theirs.lance"
        write(lancelet.file, ours, table, version)
        write(lance.file, theirs, expected, version)
        for name in columns:
            for module, path in (
                (lancelet.file, ours),
                (lance.file, ours),
                (lancelet.file, theirs),
            ):
                assert_same_rows(read(module, path, name), expected.select([name]))


@pytest.mark.parametrize(
    "version",
    [
        FileVersion.V2_0,
        pytest.param(FileVersion.V2_1, marks=pytest.mark.slow),  # 2.2 has the same encodings
        FileVersion.V2_2,
    ],
    ids=lambda version: version.value,
)
@pytest.mark.parametrize("data_type", TYPES, ids=str)
def test_every_type_reads_back_both_ways(data_type, version, tmp_path):
    gap = KNOWN_GAPS.get((version.value, str(data_type)))
    if gap is None:
        check(data_type, version, tmp_path)
        return
    with pytest.raises(Exception, match=gap):
        check(data_type, version, tmp_path)
