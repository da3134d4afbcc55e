"""Bytes to pixels: Pillow is the second opinion, and no bytes crash, hang or eat the memory."""

import io
import struct
import zlib

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Pillow
from PIL import ImageOps

from sphereface.errors import UnreadableImage
from sphereface.faces.images import Limits, decode, encode_jpeg, encode_png, inspect, read_bytes, read_photo

FORMATS = ["JPEG", "PNG", "WEBP", "BMP", "TIFF"]
ORIENTATION = 274


def picture(height=40, width=56, seed=0):
    """A smooth colour picture, so that lossy formats stay close to it."""
    noise = np.random.default_rng(seed).uniform(0, 255, (5, 7, 3)).astype(np.float32)
    return cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC).clip(0, 255).astype(np.uint8)


def encoded(image, kind, **options):
    buffer = io.BytesIO()
    (image if isinstance(image, Pillow.Image) else Pillow.fromarray(image)).save(buffer, kind, **options)
    return buffer.getvalue()


def as_pillow_sees(data):
    return np.asarray(ImageOps.exif_transpose(Pillow.open(io.BytesIO(data))).convert("RGB")).astype(int)


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_reads_as_pillow_reads_it(kind):
    data = encoded(picture(), kind)
    assert np.abs(decode(data) - as_pillow_sees(data)).max() <= 3  # JPEG decoders round differently
    header = inspect(data)
    assert (header.format.upper(), header.width, header.height) == (kind, 56, 40)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_camera_held_sideways_gives_an_upright_photo(kind, orientation):
    exif = Pillow.Exif()
    exif[ORIENTATION] = orientation
    data = encoded(picture(), kind, exif=exif)
    assert np.abs(decode(data) - as_pillow_sees(data)).max() <= 3


@pytest.mark.parametrize("kind", FORMATS)
def test_grey_photos_have_three_equal_channels(kind):
    data = encoded(Pillow.fromarray(picture()).convert("L"), kind)
    photo = decode(data)
    assert photo.shape == (40, 56, 3)
    assert np.ptp(photo, axis=2).max() <= (kind == "WEBP")  # which stores colours even for grey
    assert np.abs(photo - as_pillow_sees(data)).max() <= 3


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_keep_the_upper_eight(kind):
    deep = picture()[:, :, 0].astype(np.uint16) * 257
    suffix = {"PNG": ".png", "TIFF": ".tif"}[kind]
    data = cv2.imencode(suffix, deep)[1].tobytes()
    assert np.abs(decode(data)[:, :, 0].astype(int) - picture()[:, :, 0]).max() <= 1


def test_a_palette_is_looked_up():
    data = encoded(Pillow.fromarray(picture()).quantize(64), "PNG")
    assert (decode(data) == as_pillow_sees(data)).all()


@pytest.mark.parametrize("mode", ["CMYK"])
def test_cmyk_becomes_rgb(mode):
    data = encoded(Pillow.fromarray(picture()).convert(mode), "JPEG", quality=100)
    assert np.abs(decode(data) - as_pillow_sees(data)).mean() < 3


def test_a_cmyk_photo_of_unknown_polarity_is_refused():
    data = encoded(Pillow.fromarray(picture()).convert("CMYK"), "JPEG")
    at = data.index(b"\xff\xee")
    (length,) = struct.unpack_from(">H", data, at + 2)
    with pytest.raises(UnreadableImage, match="which end is black"):
        decode(data[:at] + data[at + 2 + length :])


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_what_is_transparent_becomes_white_whatever_colour_hides_there(kind):
    rgba = np.dstack([picture(), np.full((40, 56), 255, np.uint8)])
    rgba[:, :20, 3] = 0
    rgba[:, 20:30, 3] = 128
    photo = decode(encoded(Pillow.fromarray(rgba), kind, **({"lossless": True} if kind == "WEBP" else {})))
    assert (photo[:, :20] == 255).all()
    expected = 255 + (rgba[:, 20:30, :3].astype(float) - 255) * 128 / 255
    assert np.abs(photo[:, 20:30] - expected).max() <= 1
    assert (photo[:, 30:] == rgba[:, 30:, :3]).all()


def test_a_transparent_colour_of_a_palette_counts_too():
    image = Pillow.fromarray(picture()).quantize(8)
    data = encoded(image, "PNG", transparency=0)
    clear = np.asarray(image) == 0
    assert (decode(data)[clear] == 255).all()
    assert (decode(data)[~clear] == as_pillow_sees(encoded(image, "PNG"))[~clear]).all()


def test_png_comes_back_bit_for_bit_and_jpeg_nearly():
    assert (decode(encode_png(picture())) == picture()).all()
    assert np.abs(decode(encode_jpeg(picture())).astype(int) - picture()).mean() < 3  # colours at half the resolution


def huge_png(width, height):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = chunk(b"IDAT", zlib.compress(b"\0" * 100))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + pixels + chunk(b"IEND", b"")


def test_a_small_file_that_claims_to_be_huge_is_refused_before_decoding():
    with pytest.raises(UnreadableImage, match=r"photo: 60000 x 60000 pixels; the limit is 100,000,000"):
        decode(huge_png(60_000, 60_000), source="photo")
    at = (data := encoded(picture(), "JPEG")).index(b"\xff\xc0")
    with pytest.raises(UnreadableImage, match="65000 x 64000"):
        decode(data[: at + 5] + struct.pack(">HH", 64_000, 65_000) + data[at + 9 :])


def test_limits_are_the_callers_to_set(tmp_path):
    data = encode_png(picture())
    (tmp_path / "a.png").write_bytes(data)
    with pytest.raises(UnreadableImage, match="the limit is 10"):
        read_bytes(tmp_path / "a.png", limits=Limits(bytes=10))
    with pytest.raises(UnreadableImage, match="the limit is 10"):
        decode(data, limits=Limits(bytes=10))
    with pytest.raises(UnreadableImage, match="the limit is 2,239 in all"):
        decode(data, limits=Limits(pixels=40 * 56 - 1))
    assert decode(data, limits=Limits(pixels=40 * 56)).shape == (40, 56, 3)


def test_the_suffix_of_a_file_means_nothing(tmp_path):
    (tmp_path / "a.jpg").write_bytes(encode_png(picture()))
    assert (read_photo(tmp_path / "a.jpg") == picture()).all()
    (tmp_path / "b.jpg").write_text("<html>not found</html>")
    with pytest.raises(UnreadableImage, match=r"b\.jpg: starts with b'<html>no'; wanted a JPEG, PNG"):
        read_photo(tmp_path / "b.jpg")
    with pytest.raises(UnreadableImage, match="cannot be read"):
        read_photo(tmp_path / "c.jpg")
    with pytest.raises(UnreadableImage, match="cannot be read"):
        read_photo(tmp_path)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_photo_that_is_cut_off_is_refused_wherever_it_ends(kind):
    data = encoded(picture(16, 20), kind)
    shortest = len(data) - (0 if kind == "TIFF" else 1)  # Pillow's TIFF ends with its directory or with its pixels
    for end in range(0, shortest, 7):
        with pytest.raises(UnreadableImage):
            decode(data[:end])


def test_trailing_bytes_after_a_jpeg_do_no_harm():
    data = encoded(picture(), "JPEG")
    assert (decode(data + b"\0" * 100) == decode(data)).all()


@given(kind=st.sampled_from(FORMATS), place=st.floats(0, 1), value=st.integers(0, 255), more=st.binary(max_size=8))
def test_a_damaged_photo_is_pixels_or_a_clear_error(kind, place, value, more):
    data = bytearray(encoded(picture(16, 20), kind))
    at = min(int(place * len(data)), len(data) - 1)
    data[at : at + 1] = bytes([value]) + more
    try:
        photo = decode(bytes(data), limits=Limits(pixels=1_000_000))
    except UnreadableImage:
        return
    assert photo.dtype == np.uint8
    assert photo.ndim == 3
    assert photo.shape[2] == 3


@given(st.binary(max_size=200), st.sampled_from([b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"RIFF", b"BM", b"II*\0"]))
def test_random_bytes_are_no_photo(data, start):
    with pytest.raises(UnreadableImage):
        decode(start + data)
