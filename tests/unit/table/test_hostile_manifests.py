"""Manifests with extreme numbers, names and types raise errors of this library."""

import contextlib

import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import LanceletError
from lancelet.format.protos import table_pb
from lancelet.format.trailer import strip_trailer

ROWS = pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]})


def change_max_u64(name):
    return lambda proto: setattr(proto, name, 2**64 - 1)


def change_max_i64(name):
    return lambda proto: setattr(proto, name, 2**63 - 1)


def change_beyond_i64(name):
    return lambda proto: setattr(proto, name, 2**63)


def set_fragment_counter(proto):
    proto.max_fragment_id = 2**32 - 1


def set_list_size(proto):
    proto.fields[0].logical_type = "fixed_size_list:int64:2147483647"


def set_huge_list_size(proto):
    proto.fields[0].logical_type = "fixed_size_list:int64:9223372036854775807"


def set_negative_list_size(proto):
    proto.fields[0].logical_type = "fixed_size_list:int64:-1"


def repeat_name(proto):
    proto.fields[1].name = "a"


def repeat_id(proto):
    proto.fields[1].id = proto.fields[0].id


def set_type(text):
    def change(proto):
        proto.fields[0].logical_type = text

    return change


def add_base(path):
    def change(proto):
        proto.reader_feature_flags |= 16
        proto.writer_feature_flags |= 16
        proto.base_paths.add(id=1, path=path)
        proto.fragments[0].files[0].base_id = 1

    return change


CHANGES = {
    **{
        f"{name}-{how.__name__}": how(name)
        for name in ("next_row_id", "version", "version_aux_data", "blob_dataset_version")
        for how in (change_max_u64, change_max_i64, change_beyond_i64)
    },
    "max_fragment_id": set_fragment_counter,
    "list-size": set_list_size,
    "list-size-huge": set_huge_list_size,
    "list-size-negative": set_negative_list_size,
    "same-names": repeat_name,
    "same-ids": repeat_id,
    **{
        f"type-{text}": set_type(text)
        for text in (
            "",
            "decimal:128:99:1",
            "decimal:128:x",
            "fixed_size_binary:2147483648",
            "fixed_size_binary:-1",
            "timestamp:x:-",
            "dict:",
            "list",
            "struct",
        )
    },
    **{
        f"base-{path}": add_base(path)
        for path in (
            "http://127.0.0.1:1/x",
            "https://127.0.0.1:1/x",
            "ftp://127.0.0.1:1/x",
            "nothing://x",
            "s3://",
            "",
            "\0",
            "file://other.host/x",
        )
    },
}

USES = {
    "read": lambda uri: lancelet.dataset(uri).to_table(),
    "filter": lambda uri: lancelet.dataset(uri).to_table(filter="a = 2"),
    "take": lambda uri: lancelet.dataset(uri).take([0]),
    "append": lambda uri: lancelet.write_dataset(ROWS, uri, mode="append"),
    "overwrite": lambda uri: lancelet.write_dataset(ROWS, uri, mode="overwrite"),
    "delete": lambda uri: lancelet.dataset(uri).delete("a = 1"),
    "update": lambda uri: lancelet.dataset(uri).update({"a": "a + 1"}),
    "compact": lambda uri: lancelet.dataset(uri).optimize.compact_files(),
    "index": lambda uri: lancelet.dataset(uri).create_scalar_index("a", "BTREE"),
    "clean up": lambda uri: lancelet.dataset(uri).cleanup_old_versions(),
    "add columns": lambda uri: lancelet.dataset(uri).add_columns({"c": "1"}),
    "restore": lambda uri: lancelet.dataset(uri).restore(),
    "validate": lambda uri: lancelet.dataset(uri).validate(),
    "versions": lambda uri: lancelet.dataset(uri).versions(),
}


def rewrite_newest(folder, change):
    """Change the manifest of the newest version, with a valid checksum."""
    path = min((folder / "_versions").glob("*.manifest"))
    rewritten = rewrite(path.read_bytes(), change)
    path.write_bytes(rewritten)


def rewrite(data, change):
    """Return a manifest file with a changed message and unchanged positions of other sections."""
    position = int.from_bytes(data[-16:-8], "little")
    size = int.from_bytes(data[position : position + 4], "little")
    stored = np.frombuffer(data[position + 4 : position + 4 + size], np.uint8)
    proto = table_pb.Manifest.FromString(strip_trailer(stored).tobytes())
    change(proto)
    message = proto.SerializeToString()
    head = data[:position] + len(message).to_bytes(4, "little") + message
    return head + position.to_bytes(8, "little") + data[-8:]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable"])
def test_a_hostile_manifest_ends_in_an_error_of_ours_or_a_result(tmp_path, change, stable):
    for number, use in enumerate(USES.values()):
        folder = tmp_path / str(number)
        lancelet.write_dataset(ROWS, str(folder), enable_stable_row_ids=stable)
        rewrite_newest(folder, CHANGES[change])
        with contextlib.suppress(LanceletError):
            use(str(folder))
