"""Alignment against scikit-image, and against what a similarity must do."""

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from skimage import data as samples
from skimage.transform import SimilarityTransform
from skimage.transform import warp as skimage_warp

from sphereface import align
from sphereface.errors import ContractMismatch
from sphereface.faces.warp import CROPS, PRINTED, as_crop, centre_crop, prefilter, similarity, targets

angles, scales, shifts = st.floats(-np.pi, np.pi), st.floats(0.05, 20), st.floats(-500, 500)


def turned(points, angle, scale, shift):
    """Points turned by an angle, scaled and shifted, by complex numbers."""
    z = (points[:, 0] + 1j * points[:, 1]) * scale * np.exp(1j * angle) + complex(*shift)
    return np.stack([z.real, z.imag], axis=1)


def carry(matrix, points):
    return points @ matrix[:, :2].T + matrix[:, 2]


@given(angles, scales, shifts, shifts, st.integers(0, 1000))
def test_the_matrix_is_scikit_images(angle, scale, x, y, seed):
    noise = np.random.default_rng(seed).normal(0, 2, (5, 2))
    points = turned(PRINTED + noise, angle, scale, (x, y))
    reference = SimilarityTransform.from_estimate(points, PRINTED).params[:2]
    assert np.abs(similarity(points, PRINTED) - reference).max() < 1e-6


@given(angles, scales, shifts, shifts)
def test_an_exact_similarity_of_the_template_lands_on_it(angle, scale, x, y):
    points = turned(PRINTED, angle, scale, (x, y))
    assert np.abs(carry(similarity(points, PRINTED), points) - PRINTED).max() < 0.01


def test_no_similarity_fits_better():
    rng = np.random.default_rng(0)
    points = PRINTED + rng.normal(0, 5, (5, 2))
    best = similarity(points, PRINTED)
    error = ((carry(best, points) - PRINTED) ** 2).sum()
    for _ in range(200):
        a, b, x, y = rng.normal(0, 0.01, 4)
        other = best + np.array([[a, -b, x], [b, a, y]])
        assert ((carry(other, points) - PRINTED) ** 2).sum() >= error


def test_a_mirror_image_is_not_mirrored_back_unless_asked():
    mirrored = PRINTED * [-1, 1]
    assert np.linalg.det(similarity(mirrored, PRINTED)[:, :2]) > 0
    allowed = similarity(mirrored, PRINTED, reflect=True)
    assert np.linalg.det(allowed[:, :2]) < 0
    assert np.abs(carry(allowed, mirrored) - PRINTED).max() < 1e-9


@pytest.mark.parametrize(
    ("points", "complaint"),
    [(np.zeros((5, 2)), "one place"), (np.full((5, 2), np.nan), "NaN"), (np.zeros((4, 2)), r"\(4, 2\)")],
)
def test_points_that_make_no_face_are_refused(points, complaint):
    with pytest.raises(ValueError, match=complaint):
        similarity(points, PRINTED)


def face_in(photo, scale=1.3, angle=0.2):
    return turned(PRINTED - PRINTED.mean(axis=0), angle, scale, (photo.shape[1] / 2, photo.shape[0] / 2))


@pytest.mark.parametrize(("scale", "angle"), [(0.7, 0.0), (1.0, 0.4), (1.9, -0.3)])
def test_without_antialiasing_the_pixels_are_those_of_a_bilinear_warp(scale, angle):
    photo = samples.astronaut()
    points = face_in(photo, scale, angle)
    there = SimilarityTransform.from_estimate(points, PRINTED)
    expected = skimage_warp(photo.astype(float), there.inverse, output_shape=(112, 96), order=1, preserve_range=True)
    face = align(photo, points, antialias=False)
    assert (np.abs(face - expected) <= 2).mean() >= 0.999


def test_a_face_that_grows_needs_no_antialiasing():
    photo = samples.astronaut()
    points = face_in(photo, scale=0.6)
    assert (align(photo, points) == align(photo, points, antialias=False)).all()


def test_shrinking_a_fine_pattern_gives_its_mean_and_not_an_echo_of_it():
    stripes = np.zeros((800, 800, 3), np.uint8)
    stripes[:, ::3] = 255
    face = align(stripes, face_in(stripes, scale=5, angle=0.1)).astype(float)
    jagged = align(stripes, face_in(stripes, scale=5, angle=0.1), antialias=False).astype(float)
    assert jagged.std() > 3 * face.std()  # as good as a mean over the area
    assert abs(face.mean() - 85) < 3


@pytest.mark.parametrize("scale", [0.9, 1.4, 2.5, 4.6, 9.0])
def test_antialiasing_moves_nothing(scale):
    """A soft blob lies where the matrix says, however often the photo was halved on the way."""
    y, x = np.mgrid[:1200, :1100]
    blob = 255 * np.exp(-(((x - 431.3) ** 2 + (y - 620.8) ** 2) / (2 * (9 * scale) ** 2)))
    photo = np.repeat(blob[:, :, None], 3, axis=2).astype(np.uint8)
    points = turned(PRINTED - PRINTED[2], 0.3, scale, (431.3, 620.8))
    face = align(photo, points)[:, :, 0].astype(float)
    rows, columns = np.mgrid[:112, :96]
    middle = np.array([(face * columns).sum(), (face * rows).sum()]) / face.sum()
    assert np.abs(middle - PRINTED[2]).max() < 0.15


def test_only_the_needed_part_of_a_large_photo_is_smoothed():
    photo = np.zeros((4000, 4000, 3), np.uint8)
    part, _ = prefilter(photo, similarity(face_in(photo, scale=3), PRINTED), (112, 96))
    assert part.shape[0] < 500


def test_crops_look_at_the_same_face():
    photo = samples.astronaut()
    points = face_in(photo, scale=2.7)
    narrow, square = align(photo, points), align(photo, points, crop="112x112")
    most = 255 // 32 if cv2.__version__.startswith("4.") else 1  # OpenCV 4 rounds places to 1/32 of a pixel
    assert np.abs(square[:, 8:104].astype(int) - narrow).max() <= most
    assert (as_crop(square, "112x96") == square[:, 8:104]).all()
    shifted = align(photo, points, template="matlab")
    assert np.abs(shifted[10:-10, 10:-10].astype(int) - narrow[11:-9, 11:-9]).max() <= most  # a pixel up and left


@pytest.mark.parametrize("crop", ["wide", "upper"])
def test_a_patch_is_a_zoom_of_the_crop(crop):
    photo = samples.astronaut()
    points = face_in(photo, scale=0.5)
    patch, whole = align(photo, points, crop=crop), align(photo, points, antialias=False)
    _, _, zoom, shift = CROPS[crop]
    grown = cv2.warpAffine(whole, np.array([[zoom, 0, shift[0]], [0, zoom, shift[1]]]), (96, 112))
    inside = np.s_[30:80, 25:70]
    assert np.abs(patch[inside].astype(int) - grown[inside]).mean() < 3
    assert (
        np.abs(carry(similarity(points, targets("sphereface", crop)), points) - targets("sphereface", crop)).max()
        < 1e-6
    )


def test_outside_the_photo_is_black():
    photo = np.full((100, 100, 3), 200, np.uint8)
    face = align(photo, PRINTED + np.array([60, 0]))
    assert (face[:, 60:] == 0).all()
    assert (face[:100, :35] == 200).all()


def test_faces_of_other_sizes_are_refused_with_the_way_out():
    with pytest.raises(
        ContractMismatch, match=r"a\.jpg: 250 pixels high and 250 wide, wanted 112 and 96; .* data align"
    ):
        as_crop(np.zeros((250, 250, 3), np.uint8), "112x96", source="a.jpg")


@pytest.mark.parametrize("shape", [(200, 100), (100, 200), (50, 50), (1000, 900), (1, 1)])
def test_a_centre_crop_is_the_middle(shape):
    y, x = np.mgrid[: shape[0], : shape[1]]
    photo = np.stack([np.full(shape, 128), 255 * x / max(shape[1] - 1, 1), 255 * y / max(shape[0] - 1, 1)], axis=2)
    face = centre_crop(photo.astype(np.uint8)).astype(float)
    assert face.shape == (112, 96, 3)
    assert np.abs(face[56, 48] - photo[shape[0] // 2, shape[1] // 2]).max() < 8
    assert (face[:, :, 0] == 128).all()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"template": "Matlab"}, "unknown template 'Matlab'; choose one of sphereface, matlab"),
        ({"crop": "96x112"}, "unknown crop '96x112'; choose one of 112x96, 112x112, wide, upper"),
    ],
)
def test_unknown_names_are_errors_that_name_the_known(arguments, complaint):
    with pytest.raises(ValueError, match=complaint):
        align(np.zeros((10, 10, 3), np.uint8), PRINTED, **arguments)


def test_photos_and_landmarks_of_the_wrong_kind_are_refused():
    with pytest.raises(ValueError, match="float64"):
        align(np.zeros((10, 10, 3)), PRINTED)
    with pytest.raises(ValueError, match=r"landmarks \(1, 5, 2\)"):
        align(np.zeros((10, 10, 3), np.uint8), PRINTED[None])
