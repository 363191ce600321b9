"""Images round-trip through Arrow, pickle and tables."""

import http.server
import pickle
import threading

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.arrow import (
    EncodedImageArray,
    EncodedImageType,
    FixedShapeImageTensorArray,
    FixedShapeImageTensorType,
    ImageArray,
    ImageURIArray,
    ImageURIType,
    images,
)
from lancelet.errors import InvalidInputError, StorageError

PIXELS = np.arange(24, dtype=np.uint8).reshape(2, 2, 2, 3)


def _encode(pixels):
    return pa.array([image.tobytes() for image in pixels], pa.binary())


def _decode(images):
    return np.stack([np.frombuffer(data, np.uint8).reshape(2, 2, 3) for data in images.to_pylist()])


def _tensors():
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(PIXELS)
    return ImageArray.from_array(tensors)


def test_images_are_read_decoded_and_encoded(tmp_path):
    for number, image in enumerate(PIXELS):
        (tmp_path / f"{number}.raw").write_bytes(image.tobytes())
    paths = [tmp_path / "0.raw", (tmp_path / "1.raw").as_uri()]
    encoded = ImageURIArray.from_uris(paths).read_uris()
    assert isinstance(encoded, EncodedImageArray)
    tensors = encoded.to_tensor(_decode)
    assert isinstance(tensors, FixedShapeImageTensorArray)
    np.testing.assert_array_equal(tensors.to_numpy(), PIXELS)
    assert tensors.to_encoded(_encode) == encoded
    assert tensors.to_encoded(_encode, pa.large_binary()).type.storage_type == pa.large_binary()


def test_images_are_read_from_the_web():
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/a" else 404)
            self.end_headers()
            self.wfile.write(b"image")

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            home = f"http://127.0.0.1:{server.server_port}"
            found = ImageURIArray.from_uris([f"{home}/a"]).read_uris()
            with pytest.raises(StorageError, match="cannot read"):
                ImageURIArray.from_uris([f"{home}/b"]).read_uris()
        finally:
            server.shutdown()
            thread.join()
    assert found.to_pylist() == [b"image"]


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (["a", None], ImageURIType()),
        (pa.array(["a", None], pa.large_string()), ImageURIType(pa.large_string())),
        (pa.array([b"a", None]), EncodedImageType()),
        (pa.array([b"a", None], pa.large_binary()), EncodedImageType(pa.large_binary())),
    ],
)
def test_arrays_become_images_by_their_type(given, kind):
    images = ImageArray.from_array(given)
    assert images.type == kind
    assert ImageArray.from_array(images) is images
    assert images.to_pylist()[1] is None
    assert type(images[0]).__name__ == type(images).__name__.replace("Array", "Scalar")


def test_images_are_pickled_and_written(tmp_path):
    table = pa.table(
        {
            "uri": ImageURIArray.from_uris(["a", "b"]),
            "encoded": ImageArray.from_array(_encode(PIXELS)),
            "tensor": _tensors(),
        }
    )
    for column in table.columns:
        assert pickle.loads(pickle.dumps(column.combine_chunks())) == column.combine_chunks()
    lancelet.write_dataset(table, tmp_path / "t")
    # The reference may have registered its classes for these types first.
    for read in (lancelet.dataset(tmp_path / "t"), lance.dataset(str(tmp_path / "t"))):
        found = read.to_table()
        assert [column.type.extension_name for column in found.columns] == [
            column.type.extension_name for column in table.columns
        ]
        assert found.to_pydict() == table.to_pydict()


def test_image_formats_are_detected():
    assert "ImageURIArray" in repr(ImageURIArray.from_uris(["a"]))
    shown = repr(ImageArray.from_array(pa.array([b"x" * 100])))
    assert shown.endswith(repr(b"x" * 30))


def test_encoded_images_are_shown_by_pillow_where_it_is_there(monkeypatch):
    class Pillow:
        @staticmethod
        def open(file):
            if file.read() != b"image":
                raise OSError("cannot identify image file")
            return "decoded"

    monkeypatch.setattr(images, "find_spec", lambda name: name)
    monkeypatch.setattr(images, "_pillow", lambda: Pillow)
    assert repr(ImageArray.from_array(pa.array([b"image"]))).endswith("['decoded', ..]\nb'image'")
    assert repr(ImageArray.from_array(pa.array([b"other"]))).endswith("\nb'other'")
    assert repr(ImageArray.from_array(pa.array([None], pa.binary()))).endswith("\nNone")
    assert FixedShapeImageTensorType(pa.uint8(), (2, 3)).storage_type == pa.list_(pa.uint8(), 6)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: ImageURIType(pa.binary()),
        lambda: EncodedImageType(pa.string()),
        lambda: FixedShapeImageTensorType(pa.uint8(), ()),
        lambda: ImageArray.from_array(3),
        lambda: ImageURIArray.from_uris(3),
    ],
)
def test_non_image_input_is_rejected(wrong):
    with pytest.raises(InvalidInputError):
        wrong()


def test_without_pillow_a_function_is_required(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(InvalidInputError, match="Pillow"):
        _tensors().to_encoded()
    with pytest.raises(InvalidInputError, match="Pillow"):
        ImageArray.from_array(_encode(PIXELS)).to_tensor()
