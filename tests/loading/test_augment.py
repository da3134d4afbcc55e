"""Random changes of faces: seeded, within their limits, and none by default."""

import numpy as np
import pytest

from sphereface.loading.augment import Augmentation, Views, recoloured

FACE = np.random.default_rng(0).integers(0, 256, (112, 96, 3), dtype=np.uint8)
SMOOTH = np.repeat(np.linspace(60, 180, 96).astype(np.uint8)[None, :, None], 112, 0).repeat(3, 2)
MIDDLE = np.full(8, 0.5)  # a draw that changes nothing but by chance


def draw(**values):
    numbers = MIDDLE.copy()
    for place, value in values.items():
        numbers[int(place[1:])] = value
    return numbers


def test_no_augmentation_leaves_a_face_as_it_is():
    views = Views(Augmentation(), seed=1)
    assert np.array_equal(views.lose_detail(views.view(FACE, 3, 5), 5), FACE)


def test_a_view_depends_on_seed_face_and_number_only():
    views = Views(Augmentation(shift=3, rotation=8, scale=0.1, colour=0.3), seed=1, count=4)
    assert np.array_equal(views.view(FACE, 3, 2), views.view(FACE, 3, 2))
    others = views.view(FACE, 3, 3), views.view(FACE, 4, 2), Views(views.augmentation, 2, 4).view(FACE, 3, 2)
    assert not any(np.array_equal(views.view(FACE, 3, 2), other) for other in others)


def test_view_0_of_numbered_views_is_the_unchanged_face():
    views = Views(Augmentation(shift=3, grey=1.0), seed=1, count=4)
    assert np.array_equal(views.view(FACE, 3, 0), FACE)


def test_each_pass_over_a_set_has_the_next_view():
    views = Views(Augmentation(), seed=1, count=3)
    assert [views.number(place, 10) for place in (0, 9, 10, 25, 30, 39, 40)] == [0, 0, 1, 2, 0, 0, 1]
    assert [Views(Augmentation(), seed=1).number(place, 10) for place in (0, 9, 10)] == [0, 9, 10]


def test_a_shift_moves_the_face_by_whole_pixels():
    moved = Augmentation(shift=2).view(FACE, draw(_2=1.0, _3=0.0))  # +2 in x, -2 in y
    assert np.array_equal(moved[:-2, 2:], FACE[2:, :-2])


def test_scale_and_rotation_keep_the_centre_and_move_the_edge():
    spot = np.zeros((111, 95, 3), np.uint8)
    spot[55, 47] = 255
    changed = Augmentation(scale=0.1, rotation=30).view(spot, draw(_0=1.0, _1=1.0))
    assert np.unravel_index(changed[..., 0].argmax(), (111, 95)) == (55, 47)
    spot = np.zeros((111, 95, 3), np.uint8)
    spot[55 - 40, 47] = 255  # 40 pixels above the centre, turned by 90 degrees to the left
    turned = Augmentation(rotation=90).view(spot, draw(_0=1.0))
    assert np.unravel_index(turned[..., 0].argmax(), (111, 95)) == (55, 47 - 40)


def test_brightness_contrast_and_saturation_are_factors():
    face = SMOOTH.copy()
    face[..., 0] += 20
    assert recoloured(face, 0.5, 1, 1).mean() == pytest.approx(face.mean() / 2, abs=0.5)
    assert recoloured(face, 1, 0.5, 1).std() == pytest.approx(face.std() / 2, abs=0.5)
    assert (recoloured(face, 1, 1, 0).std(axis=2) == 0).all()
    spread = recoloured(face, 1, 1, 0.5).astype(int)
    assert (spread[..., 0] - spread[..., 1]).mean() == pytest.approx(10, abs=1)


@pytest.mark.parametrize(("kind", "places"), [("low_resolution", (0, 1)), ("blur", (2, 3)), ("jpeg", (4, 5))])
def test_loss_of_detail_comes_by_chance_and_keeps_the_large_shapes(kind, places):
    chance, strength = places
    augmentation = Augmentation(**{kind: 0.5})
    hit, miss = draw(**{f"_{chance}": 0.4, f"_{strength}": 0.2}), draw(**{f"_{chance}": 0.6})
    assert np.array_equal(augmentation.lose_detail(FACE, miss), FACE)
    assert augmentation.lose_detail(FACE, hit).astype(float).std() < FACE.astype(float).std()
    assert np.abs(augmentation.lose_detail(SMOOTH, hit).astype(int) - SMOOTH).max() <= 6
