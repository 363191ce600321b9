"""Laws of manifests and their files: rendering and parsing undo each other, damage is found."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.buffers import ByteSlices, run
from lancelet.errors import CorruptDataError, LanceletError, UnsupportedError
from lancelet.format.flags import Feature
from lancelet.format.fragment_list import FragmentList
from lancelet.format.index_metadata import IndexSection
from lancelet.format.manifest import (
    Clustering,
    Manifest,
    SectionPositions,
    WriterVersion,
    parse_manifest,
    render_manifest,
)
from lancelet.format.manifest_file import (
    TAIL_BYTES,
    parse_manifest_file,
    read_indices,
    read_manifest,
    read_transaction,
    render_manifest_file,
)
from lancelet.format.protos import table_pb
from lancelet.format.version import FileVersion
from tests.kit.format_strategies import (
    BASES,
    FRAGMENTS,
    INDICES,
    LATER,
    SCHEMA,
    SCHEMAS,
    TEXT,
    TEXTS,
    UINT32,
    UINT64,
    transactions,
    tuples,
)

CLUSTERINGS = st.builds(Clustering, UINT32, tuples(st.integers(-2, 9)), TEXT, UINT64)
NON_REUSABLE = int(Feature.NON_REUSABLE_FIELD_IDS)


@st.composite
def manifests(draw):
    fragments = FragmentList.of(draw(st.lists(FRAGMENTS, max_size=3)))
    highest = fragments.max_id
    counted = draw(st.booleans())
    writer_flags = draw(UINT64) & ~NON_REUSABLE
    return Manifest(
        schema=draw(SCHEMAS),
        fragments=fragments,
        version=draw(UINT64),
        data_version=draw(st.sampled_from(FileVersion)),
        timestamp_ns=draw(st.integers(0, 10**18)),
        reader_flags=draw(UINT64),
        writer_flags=writer_flags | NON_REUSABLE if counted else writer_flags,
        max_fragment_id=draw(st.none() | UINT32) if highest is None else max(highest, draw(UINT32)),
        transaction_file=draw(TEXT),
        next_row_id=draw(UINT64),
        writer_version=draw(
            st.builds(WriterVersion, TEXT, TEXT, st.none() | TEXT, st.none() | TEXT)
        ),
        config=draw(TEXTS),
        table_metadata=draw(TEXTS),
        base_paths=draw(tuples(BASES)),
        branch=draw(st.none() | TEXT),
        tag=draw(TEXT),
        version_aux_data=draw(UINT64),
        blob_dataset_version=draw(UINT64),
        max_allocated_field_id=draw(st.integers(0, 99)) if counted else None,
        clustering=draw(
            tuples(st.builds(Clustering, UINT32, tuples(st.integers(-2, 9)), TEXT, UINT64))
        ),
        max_clustering_id=draw(UINT32),
        unknown=draw(LATER),
    )


SECTIONS = st.builds(IndexSection, tuples(INDICES), LATER)


def whole(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


@given(manifests(), st.none() | UINT64, st.none() | UINT64)
def test_the_message_gives_the_manifest_back(manifest, index, transaction):
    positions = SectionPositions(index, transaction)
    head, fragments = render_manifest(manifest, positions)
    assert parse_manifest(whole(head + fragments.tobytes())) == (manifest, positions)


@given(manifests(), SECTIONS, st.none() | transactions(), st.binary(max_size=9))
def test_the_file_gives_all_sections_back(manifest, indices, transaction, dictionaries):
    data = whole(
        render_manifest_file(manifest, indices, transaction, dictionary_values=dictionaries)
    )
    fetch = lambda wanted: ByteSlices(data, wanted.position, wanted.size)  # noqa: E731
    stored = parse_manifest_file(data)
    assert stored.manifest == manifest
    assert run(read_indices(stored), fetch) == indices
    assert run(read_transaction(stored), fetch) == transaction
    assert data[: len(dictionaries)].tobytes() == dictionaries


@given(manifests(), SECTIONS, transactions(), st.data())
def test_a_damaged_file_is_read_or_rejected_with_an_error_of_ours(
    manifest, indices, transaction, data
):
    damaged = bytearray(render_manifest_file(manifest, indices, transaction))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(damaged) - 1))
        damaged[place] = data.draw(st.integers(0, 255))
    cut = whole(bytes(damaged[data.draw(st.integers(0, 3)) :]))
    try:
        stored = parse_manifest_file(cut)
        fetch = lambda wanted: ByteSlices(cut, wanted.position, wanted.size)  # noqa: E731
        run(read_indices(stored), fetch)
        run(read_transaction(stored), fetch)
        list(stored.manifest.fragments)
        stored.manifest.schema.to_arrow()
    except LanceletError as error:
        assert isinstance(error, CorruptDataError | UnsupportedError)  # noqa: PT017


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_no_manifest_file(data):
    with pytest.raises(CorruptDataError):
        parse_manifest_file(whole(data))


EMPTY = Manifest(SCHEMA, FragmentList.of(()), 1, FileVersion.V2_2)


@pytest.mark.parametrize("config_bytes", [10, TAIL_BYTES - 200, TAIL_BYTES, 3 * TAIL_BYTES])
def test_a_manifest_takes_one_round_or_two(config_bytes):
    manifest = replace(EMPTY, config={"k": "v" * config_bytes})
    data = whole(render_manifest_file(manifest, IndexSection(), None))
    rounds = []

    def fetch(wanted):
        rounds.append((wanted.position.tolist(), wanted.size.tolist()))
        return ByteSlices(data, wanted.position, wanted.size)

    assert run(read_manifest(len(data)), fetch).manifest == manifest
    assert len(rounds) == 1 + (len(data) > TAIL_BYTES)


def test_flags_follow_from_content():
    bare = replace(EMPTY, reader_flags=1 | 1 << 40, writer_flags=1 | 8 | 1 << 41).with_flags()
    assert (bare.reader_flags, bare.writer_flags) == (1 << 40, 1 << 41)
    proto = {"physical_rows": 5, "deletion_file": {"num_deleted_rows": 1}, "spilled_row_ids": {}}
    message = table_pb.Manifest(fragments=[proto]).SerializeToString()
    full = replace(
        EMPTY, config={"k": "v"}, fragments=parse_manifest(whole(message))[0].fragments
    ).with_flags()
    assert (full.reader_flags, full.writer_flags) == (1 | 2048, 1 | 8 | 2048)


def test_a_transaction_is_found_where_earlier_releases_stored_it():
    proto = table_pb.Manifest(transaction_section_deprecated=7)
    assert parse_manifest(whole(proto.SerializeToString()))[1] == SectionPositions(None, 7)
    proto.transaction_section = 0
    assert parse_manifest(whole(proto.SerializeToString()))[1] == SectionPositions(None, 0)


@pytest.mark.parametrize(
    ("proto", "version"),
    [
        ({}, FileVersion.V0_1),
        ({"writer_feature_flags": 4}, FileVersion.V2_2),
        ({"reader_feature_flags": 4}, FileVersion.V0_1),
        ({"data_format": {"file_format": "lance", "version": "2.1"}}, FileVersion.V2_1),
        ({"data_format": {"version": "legacy"}}, FileVersion.V0_1),
        ({"fragments": [{"files": [{"file_minor_version": 3}]}]}, FileVersion.V2_0),
    ],
)
def test_the_file_version_is_stated_or_shown(proto, version):
    message = table_pb.Manifest(**proto).SerializeToString()
    assert parse_manifest(whole(message))[0].data_version is version


@pytest.mark.parametrize(
    "proto",
    [
        {"data_format": {"version": "9.9"}},
        {"data_format": {"file_format": "parquet", "version": "2.0"}},
        {"writer_feature_flags": NON_REUSABLE},
        {"max_allocated_field_id": 3},
        {"timestamp": {"seconds": 2**62}},
        {"timestamp": {"seconds": -5}},
        {"fields": [{"id": 1, "parent_id": 0}]},
    ],
)
def test_an_invalid_manifest_is_corrupt(proto):
    with pytest.raises(CorruptDataError):
        parse_manifest(whole(table_pb.Manifest(**proto).SerializeToString()))


def test_a_section_after_the_manifest_is_corrupt():
    data = render_manifest_file(EMPTY, IndexSection(), None)
    head, _ = render_manifest(EMPTY, SectionPositions(index=len(data)))
    lying = len(head).to_bytes(4, "little") + head + bytes(8) + data[-8:]
    with pytest.raises(CorruptDataError):
        parse_manifest_file(whole(lying))


def test_the_counter_of_fragments_is_never_below_a_fragment():
    message = table_pb.Manifest(fragments=[{"id": 9}], max_fragment_id=0).SerializeToString()
    assert parse_manifest(whole(message))[0].max_fragment_id == 9
