"""JSON columns: the same bytes as pylance writes, and the same text as it reads."""

import lance
import lance.file
import numpy as np
import pyarrow as pa
import pytest

from lancelet.encodings.jsonb import documents_from_storage, documents_to_storage

DOCUMENTS = [
    "{}",
    "[]",
    '"ab"',
    "1",
    "300",
    "-1",
    "-70000",
    "0",
    "-0",
    "-0.0",
    "0.0",
    "1.5",
    "1e3",
    "1.0",
    "123456789012345678901234567890",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775808",
    "-9223372036854775809",
    "9223372036854775808",
    "true",
    "false",
    "null",
    '{"b":1,"a":{"c":[2]}}',
    '"\\u00e9\\ud83d\\ude00"',
    "  [1 , 2]  ",
    '{"aa":1,"b":2,"é":3,"Z":4,"":5}',
    "[[],{}]",
    "1e400",
    "-1e400",
    "0.1",
    "127",
    "128",
    "255",
    "256",
    "-128",
    "-129",
    "65535",
    "65536",
    "-32768",
    "-32769",
    "4294967295",
    "4294967296",
    "1E-5",
    "5e-324",
    '[null,true,"x",1.25,{"k":[]}]',
    '"\\n\\t\\"\\\\\\/\\b\\f\\r\\u0000\\u001f"',
    "1234567.125",
    "1e16",
    "1e15",
    "1e22",
    "0e5",
    '"\x7f"',
    "0.00001",
    "0.000001",
    "1.5e-5",
    "123456789.5e20",
    "3.0e10",
    "12345678901234567",
]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """What pylance stores for each document, and what it reads back."""
    folder = tmp_path_factory.mktemp("json")
    table = pa.table({"j": pa.array(DOCUMENTS, pa.json_())})
    path = str(folder / "f.lance")
    with lance.file.LanceFileWriter(path) as writer:
        writer.write_batch(table)
    stored = lance.file.LanceFileReader(path).read_all().to_table()["j"]
    lance.write_dataset(table, str(folder / "d"))
    text = lance.dataset(str(folder / "d")).to_table()["j"]
    return stored.to_pylist(), text.to_pylist()


@pytest.mark.interop
def test_documents_have_the_bytes_that_pylance_gives_them(theirs):
    ours = documents_to_storage(pa.array(DOCUMENTS)).to_pylist()
    for document, mine, other in zip(DOCUMENTS, ours, theirs[0], strict=True):
        assert mine.hex() == other.hex(), document


@pytest.mark.interop
def test_documents_read_as_pylance_reads_them(theirs):
    ours = documents_from_storage(pa.array(theirs[0], pa.large_binary())).to_pylist()
    for document, mine, other in zip(DOCUMENTS, ours, theirs[1], strict=True):
        assert mine == other, document


@pytest.mark.interop
def test_random_doubles_read_as_pylance_reads_them(tmp_path):
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 63, 3000).view(np.float64)
    plain = np.round(rng.normal(size=1000) * 10.0 ** rng.integers(-8, 20, 1000), 6)
    texts = [repr(value) for value in [*bits[np.isfinite(bits)].tolist(), *plain.tolist()]]
    lance.write_dataset(pa.table({"j": pa.array(texts, pa.json_())}), str(tmp_path / "d"))
    other = lance.dataset(str(tmp_path / "d")).to_table()["j"].to_pylist()
    assert documents_from_storage(documents_to_storage(pa.array(texts))).to_pylist() == other
