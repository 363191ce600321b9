"""Which kernels there are: each implementation has a module for every topic, with its kernels.

bind("lancelet.kernels.native")["crc32c"]     the function in `kernels/native/checksum.py`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

KERNELS: Final[Mapping[str, str]] = {
    "automaton": "read_automaton write_automaton",
    "bitpack": "bit_widths pack_blocks pack_chunks pick_packed unpack_blocks unpack_chunks",
    "checksum": "crc32c crc32c_blocks crc32c_slices crc32c_verify",
    "chunks": "locate_rows place_chunks split_chunks",
    "copies": "copy_slices join_slices place_slices take_fixed take_variable",
    "dictionary": "look_up_fixed look_up_variable",
    "fsst": "fsst_decode fsst_decode_chunks fsst_encode fsst_train pick_fsst",
    "full_zip": "unzip_fixed unzip_variable zip_fixed zip_variable",
    "graphs": "build_graph edge_distances search_graph",
    "hashing": "ask_filters bucket_rows fill_filters match_words mix_words xxh64_many xxh64_words",
    "jsonb": "decode_jsonb encode_jsonb",
    "levels": (
        "chunks_of_rows count_slots expand_list pack_validity "
        "rank_slots take_row_levels unpack_levels unravel_list"
    ),
    "lz4": "lz4_compress_chunks lz4_decompress_chunks",
    "map_file": "forget_pages map_file read_ahead",
    "partitions": "admit_rows scan_partitions",
    "plans": "plan_columns take_rows",
    "postings": "decode_postings decode_streams encode_impacts encode_postings encode_streams",
    "protobuf": "find_parts find_parts_in join_pages read_packed read_varints",
    "rle": "count_runs rle_decode_chunks rle_encode_chunks",
    "segments": "find_segments",
    "small_pages": "encode_small_pages",
    "split_bytes": "join_bytes_chunks split_bytes_chunks",
    "substrings": "find_suffixes locate_suffixes order_suffixes rank_bits unwind_text",
    "survey": "index_strings index_words survey_bytes survey_strings survey_words",
    "text_search": "search_phrase search_postings",
    "variable": "concat_variable cut_variable pick_variable",
    "vectors": (
        "nearest_vectors nearest_words round_rows scaled_codes slice_distances "
        "sum_by_label turn_rows vector_distances"
    ),
    "words": "counting_order find_words number_words sort_words",
    "zones": "zone_min_max zone_min_max_strings",
    "zstd": "zstd_code_chunks zstd_decompress_chunks",
}
"""The names of all kernels, by the module that has them."""


def bind(implementation: str) -> dict[str, Callable[..., Any]]:
    """Return the kernels of an implementation, a package, by their names."""
    found: dict[str, Callable[..., Any]] = {}
    for topic, names in KERNELS.items():
        module = import_module(f"{implementation}.{topic}")
        found |= {name: getattr(module, name) for name in names.split()}
    return found
