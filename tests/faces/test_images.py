"""Bytes to pixels: Pillow is the second opinion, and no bytes crash, hang or eat the memory."""

import io
import os
import struct
import tracemalloc
import zlib

import cv2
import numpy as np
import pytest
import tifffile
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Pillow
from PIL import ImageOps

from sphereface.errors import UnreadableImage
from sphereface.faces.headers import PARTS, SCANS
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


def tiff(pixels, **options):
    buffer = io.BytesIO()
    tifffile.imwrite(buffer, pixels, photometric="rgb", metadata=None, **options)
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


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
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


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("stored", ["unassalpha", "assocalpha"])
def test_a_tiff_may_hold_colours_times_alpha_or_not(bits, stored):
    colours, alpha = picture().astype(float), np.tile(np.linspace(0, 255, 56).round(), (40, 1))[..., None]
    shares = colours * alpha / 255 if stored == "assocalpha" else colours
    whole = np.concatenate([shares, alpha], axis=2).round() * (1 if bits == 8 else 257)
    data = tiff(whole.astype(f"uint{bits}"), extrasamples=[stored])
    assert np.abs(decode(data) - (255 + (colours - 255) * alpha / 255)).max() <= 1.5


def test_a_transparent_photo_is_blended_in_little_memory():
    data = encoded(Pillow.new("RGBA", (2000, 2000), (10, 20, 30, 40)), "PNG")
    tracemalloc.start()
    photo = decode(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (photo == [217, 218, 220]).all()  # 255 + (10 - 255) * 40 / 255, ...
    assert peak < 5 * photo.nbytes  # the photo twice, its four channels, and a part in 16 bits


def test_png_comes_back_bit_for_bit_and_jpeg_nearly():
    assert (decode(encode_png(picture())) == picture()).all()
    assert np.abs(decode(encode_jpeg(picture())).astype(int) - picture()).mean() < 3  # colours at half the resolution


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def chunks(png):
    """What a PNG holds, as (kind, body)."""
    place, found = 8, []
    while place < len(png):
        (length,) = struct.unpack_from(">I", png, place)
        found.append((png[place + 4 : place + 8], png[place + 8 : place + 8 + length]))
        place += 12 + length
    return found


def huge_png(width, height):
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
    with pytest.raises(UnreadableImage, match="not a regular file"):
        read_photo(tmp_path)
    os.mkfifo(tmp_path / "d.jpg")  # to open it would wait for a writer
    with pytest.raises(UnreadableImage, match="not a regular file"):
        read_photo(tmp_path / "d.jpg")


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


def test_a_tiff_with_two_sizes_is_as_large_as_the_decoder_takes_it():
    data = bytearray(encoded(picture(), "TIFF"))
    (place,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, place)
    tags = {struct.unpack_from("<H", data, at)[0]: at for at in range(place + 2, place + 2 + 12 * count, 12)}
    assert {256, 258} <= set(tags)
    data[tags[258] : tags[258] + 12] = struct.pack("<HHII", 256, 3, 1, 4)  # a second width, in place of another tag
    assert inspect(bytes(data)).width == 56
    with pytest.raises(UnreadableImage, match="56 x 40 pixels; the limit is 1,000 in all"):
        decode(bytes(data), limits=Limits(pixels=1000))


def test_a_tiff_of_tiles_far_larger_than_itself_is_refused():
    data = tiff(picture(), tile=(4096, 4096), compression="zlib")  # 17,000 bytes
    with pytest.raises(UnreadableImage, match="a damaged TIFF header"):
        decode(data)
    data = tiff(picture(), tile=(64, 64), compression="zlib")
    assert (decode(data) == picture()).all()


def test_a_tiff_that_lacks_a_colour_is_cut_off():
    data = tiff(picture().transpose(2, 0, 1), planarconfig="separate")
    assert (decode(data) == picture()).all()
    with pytest.raises(UnreadableImage, match="cut off"):
        decode(data[:-100])


def test_a_tiff_of_real_numbers_says_what_is_wanted():
    with pytest.raises(UnreadableImage, match="32 bits a channel; wanted 8 or 16: convert it to PNG"):
        decode(tiff(picture().astype(np.float32)))


def test_an_exif_block_is_found_by_the_file_s_structure():
    exif, profile = Pillow.Exif(), Pillow.Exif()
    exif[ORIENTATION], profile[ORIENTATION] = 6, 3
    mark = b"EXIF\x1a\0\0\0" + profile.tobytes().removeprefix(b"Exif\0\0")  # as bytes of another chunk
    data = encoded(picture(), "WEBP", exif=exif, icc_profile=mark)
    assert np.abs(decode(data) - as_pillow_sees(data)).max() <= 3


def test_a_moving_png_is_its_first_picture():
    still, *others = (Pillow.fromarray(picture(seed=seed)) for seed in range(3))
    data = encoded(still, "PNG", save_all=True, append_images=others)
    assert (decode(data) == picture()).all()


def test_a_moving_png_that_is_damaged_is_refused_or_its_first_picture():
    """OpenCV 5.0 crashes over one that promises many pictures, of which a later one is damaged."""
    still, other = (Pillow.fromarray(picture(seed=seed)) for seed in range(2))
    data = encoded(still, "PNG", save_all=True, append_images=[other], default_image=True)
    parts = dict(chunks(data))
    rows = zlib.decompress(parts[b"fdAT"][4:])
    parts[b"fdAT"] = parts[b"fdAT"][:4] + zlib.compress(b"\x09" + rows[1:])  # no such filter
    parts[b"acTL"] = struct.pack(">II", 60_000, 0)
    damaged = data[:8] + b"".join(chunk(kind, body) for kind, body in parts.items())
    assert (decode(damaged) == picture()).all()


def test_a_jpeg_of_very_many_scans_is_refused():
    data = encoded(picture(), "JPEG", progressive=True)
    scan = data[data.rindex(b"\xff\xda") : -2]
    allowed = SCANS - data.count(b"\xff\xda")
    assert decode(data[:-2] + scan * allowed + data[-2:]).shape == (40, 56, 3)
    hidden = b"\xff\xfe\0\4\xff\xd9"  # a comment that looks like the end
    for many in (scan * (allowed + 1), hidden + scan * 1000):
        with pytest.raises(UnreadableImage, match="over 100 scans"):
            decode(data[:-2] + many + data[-2:])


@pytest.mark.parametrize("progressive", [False, True])
def test_what_follows_a_jpeg_is_no_scan(progressive):
    data = encoded(picture(), "JPEG", progressive=progressive)
    assert (decode(data + b"\xff\xda" * 1000 + b"\xff\xd9") == decode(data)).all()  # as a phone's moving picture


def test_a_file_of_very_many_parts_is_refused():
    jpeg, png = encoded(picture(), "JPEG"), encoded(picture(), "PNG")
    assert (decode(jpeg[:2] + b"\xff" * 1000 + jpeg[2:]) == decode(jpeg)).all()
    for many in (b"\xff" * PARTS, b"\xff\xfe\0\2" * PARTS):
        with pytest.raises(UnreadableImage, match="over 100,000 markers"):
            decode(jpeg[:2] + many + jpeg[2:])
    with pytest.raises(UnreadableImage, match="over 100,000 chunks"):
        decode(png[:33] + chunk(b"tEXt", b"") * PARTS + png[33:])


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
