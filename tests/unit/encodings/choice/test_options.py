"""Encoding options in field metadata are parsed, or rejected with the field name."""

import pytest

from lancelet.encodings.choice.options import (
    ByteStreamSplitMode,
    Compression,
    EncodingOptions,
    StructuralEncoding,
)
from lancelet.errors import InvalidInputError


def options(**metadata: str) -> EncodingOptions:
    keys = {f"lance-encoding:{key.replace('_', '-')}": value for key, value in metadata.items()}
    return EncodingOptions.from_metadata("x", keys)


def test_without_options_the_writer_decides() -> None:
    assert EncodingOptions.from_metadata("x", None) == EncodingOptions()
    assert EncodingOptions.from_metadata("x", {"unit": "m", "other:blob": "1"}) == EncodingOptions()


def test_every_key_is_understood() -> None:
    found = options(
        compression="ZSTD",
        compression_level="9",
        rle_threshold="0.3",
        bss="off",
        dict_divisor="4",
        dict_size_ratio="0.5",
        dict_max_size="1000",
        dict_values_compression="none",
        dict_values_compression_level="2",
        structural_encoding="fullzip",
        minichunk_size="16384",
        packed="true",
        blob="true",
        blob_inline_size_threshold="0",
        blob_dedicated_size_threshold="1",
        blob_pack_file_size_threshold="2",
    )
    assert found == EncodingOptions(
        compression=Compression.ZSTD,
        compression_level=9,
        rle_threshold=0.3,
        bss=ByteStreamSplitMode.OFF,
        dict_divisor=4,
        dict_size_ratio=0.5,
        dict_max_size=1000,
        dict_values_compression=Compression.NONE,
        dict_values_compression_level=2,
        structural_encoding=StructuralEncoding.FULL_ZIP,
        minichunk_size=16384,
        packed=True,
        blob=True,
        blob_inline_size_threshold=0,
        blob_dedicated_size_threshold=1,
        blob_pack_file_size_threshold=2,
    )


def test_arrow_gives_metadata_as_bytes() -> None:
    assert EncodingOptions.from_metadata("x", {b"lance-encoding:blob": b"true"}).blob


def test_structs_were_packed_by_another_key_before() -> None:
    assert EncodingOptions.from_metadata("x", {"packed": "true"}).packed
    assert not EncodingOptions.from_metadata("x", {"packed": "false"}).packed


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("compression", "gzip"),
        ("compression_level", "fast"),
        ("compression_level", "23"),
        ("rle_threshold", "1.5"),
        ("rle_threshold", "often"),
        ("bss", "maybe"),
        ("dict_divisor", "0"),
        ("dict_size_ratio", "-1"),
        ("dict_max_size", "many"),
        ("dict_values_compression", "fsst"),
        ("structural_encoding", "zip"),
        ("minichunk_size", "0"),
        ("blob_pack_file_size_threshold", "0"),
    ],
)
def test_a_value_without_sense_names_the_field_and_the_key(key: str, value: str) -> None:
    with pytest.raises(InvalidInputError, match="expected") as caught:
        options(**{key: value})
    assert caught.value.facts["field"] == "x"
    assert caught.value.facts["key"] == f"lance-encoding:{key.replace('_', '-')}"
    assert caught.value.facts["value"] == value


@pytest.mark.parametrize(
    ("variable", "value", "name", "found"),
    [
        ("LANCE_ENCODING_DICT_TOO_SMALL", "7", "dict_too_small", 7),
        ("LANCE_ENCODING_DICT_DIVISOR", "9", "dict_divisor", 9),
        ("LANCE_ENCODING_DICT_MAX_CARDINALITY", "11", "dict_max_size", 11),
        ("LANCE_ENCODING_DICT_SIZE_RATIO", "0.25", "dict_size_ratio", 0.25),
    ],
)
def test_variables_of_the_process_change_defaults(monkeypatch, variable, value, name, found):
    monkeypatch.setenv(variable, value)
    assert getattr(EncodingOptions.from_metadata("x", None), name) == found
    monkeypatch.setenv(variable, "many")
    with pytest.raises(InvalidInputError, match="environment") as caught:
        EncodingOptions.from_metadata("x", None)
    assert caught.value.facts["variable"] == variable


def test_metadata_win_over_variables(monkeypatch):
    monkeypatch.setenv("LANCE_ENCODING_DICT_DIVISOR", "9")
    assert options(dict_divisor="3").dict_divisor == 3
