"""ImageDecoder of JPEG files: the pixels of libjpeg-turbo bit for bit, and errors for files that are broken."""

from __future__ import annotations

import contextlib
import io
from functools import cache
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest
from conftest import make_model
from onnx import TensorProto, helper, save_model
from PIL import Image

import ingot

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

SAMPLING = {
    "444": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
    "422": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
    "420": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    "440": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440,
    "411": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_411,
}


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> ingot.Graph:
    node = helper.make_node("ImageDecoder", ["file"], ["pixels"])
    model = make_model(
        [node], [("file", TensorProto.UINT8, ["n"])], [("pixels", TensorProto.UINT8, [None, None, 3])], opset=20
    )
    path: Path = tmp_path_factory.mktemp("decoder") / "decoder.onnx"
    save_model(model, path)
    return ingot.compile(path)


def decode(decoder: ingot.Graph, data: bytes) -> NDArray[Any]:
    pixels: NDArray[Any] = decoder.inference([np.frombuffer(data, np.uint8)])["pixels"]
    return pixels


@cache
def picture(height: int, width: int) -> NDArray[Any]:
    """Smooth parts, edges and noise."""
    random = np.random.default_rng(height * 1000 + width)
    y, x = np.mgrid[:height, :width]
    smooth = np.stack([np.sin(x / 9 + c) * np.cos(y / 7 - c) for c in range(3)], -1) * 100 + 128
    noise = random.normal(0, 30, (height, width, 3)) * (x > width / 2)[..., None]
    boxes = ((x // 5 + y // 6) % 2 * 60)[..., None]
    pixels: NDArray[Any] = np.clip(smooth + noise + boxes, 0, 255).astype(np.uint8)
    return pixels


def as_pillow(data: bytes) -> NDArray[Any]:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


@pytest.mark.parametrize("progressive", [0, 1])
@pytest.mark.parametrize("sampling", SAMPLING)
@pytest.mark.parametrize("size", [(1, 1), (2, 3), (8, 8), (17, 5), (33, 31), (64, 100), (101, 67)])
def test_pixels_are_those_of_libjpeg(
    decoder: ingot.Graph, size: tuple[int, int], sampling: str, progressive: int
) -> None:
    for quality, restart in [(30, 0), (75, 2), (98, 1)]:
        options = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_PROGRESSIVE, progressive]
        options += [cv2.IMWRITE_JPEG_RST_INTERVAL, restart, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, SAMPLING[sampling]]
        data = cv2.imencode(".jpg", picture(*size), options)[1].tobytes()
        np.testing.assert_array_equal(decode(decoder, data), as_pillow(data))


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"keep_rgb": True}, {"optimize": True}])
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_grey_and_rgb_files(decoder: ingot.Graph, mode: str, options: dict[str, Any]) -> None:
    file = io.BytesIO()
    Image.fromarray(picture(45, 59)).convert(mode).save(file, "JPEG", **options)
    np.testing.assert_array_equal(decode(decoder, file.getvalue()), as_pillow(file.getvalue()))


def encoded(progressive: bool) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture(40, 56)).save(file, "JPEG", progressive=progressive, quality=80)
    return file.getvalue()


@pytest.mark.parametrize("progressive", [False, True])
def test_truncated_files_are_errors(decoder: ingot.Graph, progressive: bool) -> None:
    data = encoded(progressive)
    for length in [*range(3, 700, 13), len(data) // 2, len(data) - 2]:
        with pytest.raises(ingot.Error, match=r"truncated|corrupt"):
            decode(decoder, data[:length])


@pytest.mark.parametrize("progressive", [False, True])
def test_changed_bytes_are_an_image_or_an_error(decoder: ingot.Graph, progressive: bool) -> None:
    random = np.random.default_rng(1)
    data = np.frombuffer(encoded(progressive), np.uint8)
    for _ in range(400):
        broken = data.copy()
        for at in random.integers(2, len(data), random.integers(1, 6)):
            broken[at] = random.integers(0, 256)
        with contextlib.suppress(ingot.Error):
            assert decode(decoder, broken.tobytes()).shape[2] == 3


def test_what_a_short_file_says_of_its_size_is_not_believed(decoder: ingot.Graph) -> None:
    data = bytearray(encoded(False))
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 4] = b"\xff\xff\xff\xff"
    with pytest.raises(ingot.Error, match="truncated"):
        decode(decoder, bytes(data))


def test_kinds_that_are_not_read_are_named(decoder: ingot.Graph) -> None:
    file = io.BytesIO()
    Image.fromarray(picture(8, 8)).convert("CMYK").save(file, "JPEG")
    with pytest.raises(ingot.UnsupportedError, match="4 components"):
        decode(decoder, file.getvalue())
    arithmetic = encoded(False).replace(b"\xff\xc0", b"\xff\xc9")
    with pytest.raises(ingot.UnsupportedError, match="arithmetically"):
        decode(decoder, arithmetic)
