"""The registry of kernels: each implementation has one module per topic.

For example:

    bind("lancelet.kernels.native", KERNELS)["crc32c"]     from `kernels/native/checksum.py`

Kernels of indices have a registry of their own, in `index/kernels/topics.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

KERNELS: Final[Mapping[str, str]] = {
    "bitpack": (
        "bit_widths match_packed pack_blocks pack_chunks pick_packed select_packed unpack_blocks "
        "unpack_chunks"
    ),
    "checksum": "crc32c crc32c_blocks crc32c_slices crc32c_verify",
    "chunks": "locate_chunks locate_rows split_chunks",
    "copies": "copy_slices join_slices scatter_slices take_fixed take_variable",
    "dictionary": "lookup_fixed lookup_variable",
    "distinct": (
        "byte_entropy_sums count_distinct_fixed count_distinct_strings dictionary_encode_fixed "
        "dictionary_encode_strings"
    ),
    "fsst": "fsst_decode fsst_decode_chunks fsst_encode fsst_train pick_fsst",
    "full_zip": "unzip_fixed unzip_variable zip_fixed zip_variable",
    "hashing": (
        "bucket_rows build_filters match_hashes mix_integers probe_filters xxh64_fixed xxh64_many"
    ),
    "jsonb": "decode_jsonb encode_jsonb",
    "levels": ("count_slots expand_list pack_validity rank_slots unpack_levels unravel_list"),
    "lz4": "lz4_compress_chunks lz4_decompress_chunks",
    "map_file": "map_file release_pages",
    "plans": "add_heads find_ranges plan_columns take_rows",
    "protobuf": "find_parts find_parts_in join_pages read_packed read_varints",
    "read_ahead": "read_ahead",
    "rle": "rle_decode_chunks rle_encode_chunks",
    "pages": "encode_pages",
    "split_bytes": "join_bytes_chunks split_bytes_chunks",
    "text": "compare_bytes contain_bytes",
    "variable": "concat_variable pick_variable split_variable",
    "zones": "zone_min_max zone_min_max_strings",
    "zstd": "zstd_decompress_chunks zstd_encode_prefixes",
}
"""Kernel names by topic module."""


def bind(implementation: str, topics: Mapping[str, str]) -> dict[str, Callable[..., Any]]:
    """Return the kernels of an implementation package by name."""
    found: dict[str, Callable[..., Any]] = {}
    for topic, names in topics.items():
        module = import_module(f"{implementation}.{topic}")
        found |= {name: getattr(module, name) for name in names.split()}
    return found
