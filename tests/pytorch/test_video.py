"""Windows of videos: segments of blobs, decoded by PyAV in threads and in workers."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pytest
from torch.utils.data import DataLoader

import lancelet
from lancelet import training
from lancelet.errors import InvalidInputError
from lancelet.torch.data import LanceDataset

av = pytest.importorskip("av")
pytestmark = [
    pytest.mark.filterwarnings("ignore:lance is not fork-safe"),  # pylance, if imported
    pytest.mark.filterwarnings("ignore:os.fork.* was called:RuntimeWarning"),  # JAX, if imported
]
FRAMES, HEIGHT, WIDTH = 6, 32, 48


def video_of(shades):
    """Return a video with a frame per shade of grey."""
    file = io.BytesIO()
    with av.open(file, "w", format="matroska") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for shade in shades:
            pixels = np.full((HEIGHT, WIDTH, 3), shade, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
    return file.getvalue()


@pytest.fixture
def clips(tmp_path):
    """Return a table of two segments per video; a segment is decoded without the other one."""
    segments = [video_of(range(10 * row, 10 * row + FRAMES)) for row in range(8)]
    rows = {"id": [], "begin": [], "length": [], "video": []}
    for first in range(0, 8, 2):
        whole = b"".join(segments[first : first + 2])
        for row, begin in ((first, 0), (first + 1, len(segments[first]))):
            values = (row, begin, len(segments[row]), whole)
            for name, value in zip(rows, values, strict=True):
                rows[name].append(value)
    schema = pa.schema(
        [
            *((name, pa.int64()) for name in ("id", "begin", "length")),
            pa.field("video", pa.large_binary(), metadata={"lance-encoding:blob": "true"}),
        ]
    )
    return lancelet.write_dataset(pa.table(rows, schema=schema), str(tmp_path / "clips.lance"))


def plan_of(clips):
    return training.plan(
        clips, columns=["id", "video"], blob_ranges={"video": ("begin", "length")}, seed=2
    )


def check(batches):
    shades = {}
    for batch in batches:
        assert tuple(batch["video"].shape[1:]) == (FRAMES, HEIGHT, WIDTH, 3)
        for row, frames in zip(batch["id"].tolist(), batch["video"], strict=True):
            shades[row] = np.asarray(frames, np.float64).mean(axis=(1, 2, 3))
    assert sorted(shades) == list(range(8))
    for row, found in shades.items():
        np.testing.assert_allclose(
            found, np.arange(10 * row, 10 * row + FRAMES), atol=3.5
        )  # the codec is lossy


def test_segments_of_videos_are_decoded_to_frames(clips):
    check(plan_of(clips).loader(3, to="numpy", decode={"video": "video"}, num_threads=2))
    dataset = LanceDataset(plan_of(clips), 3, decode={"video": "video"})
    check(DataLoader(dataset, batch_size=None, num_workers=2))


def test_damaged_videos_are_named_or_skipped(clips):
    plan = training.plan(clips, columns=["id", "video"], shuffle="none")
    damaged = training.plan(clips, columns=["id", "begin"], shuffle="none")
    broken = {
        "begin": lambda begin: training.decoders.decode_video(b"no video" if begin else video)
    }
    video = next(iter(plan.loader(1)))["video"][0].as_py()
    loader = damaged.loader(4, to="numpy", decode=broken)
    with pytest.raises(InvalidInputError, match=r"could not be decoded.*column='begin'.*row=1"):
        list(loader)
    skipping = damaged.loader(4, to="numpy", decode=broken, undecodable="skip")
    assert [batch["id"].tolist() for batch in skipping] == [[0, 2], [4, 6]]
    assert skipping.skipped == 4
