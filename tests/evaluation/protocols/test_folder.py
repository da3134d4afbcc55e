"""Your own people as a test, from faces to numbers and pictures, with a small ONNX embedder."""

import json
import shutil
from itertools import combinations

import cv2
import numpy as np
import pytest

from sphereface.data.formats.sets import convert
from sphereface.data.synthetic.people import SyntheticPeople
from sphereface.embed.run import embed_set
from sphereface.embed.store import open_features
from sphereface.errors import DataFormatError, UnreadableImage
from sphereface.evaluation.groups.compare import evaluate_groups
from sphereface.evaluation.protocols.folder import COLUMNS, HardPair, evaluate_folder, write_hardest
from sphereface.evaluation.rules.drawn_pairs import draw_pairs
from sphereface.evaluation.rules.identification import identify
from tests.evaluation import transcriptions
from tests.evaluation.networks import tiles

PEOPLE, PHOTOS = 40, 3
QUICK = {"pairs": 60, "rounds": 20, "splits": 2, "fpirs": (0.1,)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    root = tmp_path_factory.mktemp("own") / "people"
    SyntheticPeople(seed=1).write(root, PEOPLE, PHOTOS)
    return root


@pytest.fixture
def root(whole, tmp_path):
    """A copy that a test may spoil."""
    return shutil.copytree(whole, tmp_path / "people")


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    return tiles(tmp_path_factory.mktemp("model") / "tiles.onnx")


@pytest.fixture(scope="module")
def result(whole, embedder):
    return evaluate_folder(embedder, whole, **QUICK)


@pytest.fixture(scope="module")
def embedded(whole, embedder):
    """Paths, people and features, straight from the files."""
    paths = sorted(path.relative_to(whole).as_posix() for path in whole.glob("*/*.png"))
    pixels = np.stack([pixels_of(whole, path) for path in paths])
    return paths, np.array([int(path[1:5]) for path in paths]), embedder.embed(pixels).astype(float)


def pixels_of(root, path):
    return cv2.cvtColor(cv2.imread(str(root / path)), cv2.COLOR_BGR2RGB)


def test_drawn_pairs_are_verified_in_ten_folds_by_the_authors_script(result, embedded):
    _, people, features = embedded
    left, right, same, fold = draw_pairs(people, pairs=60)
    accuracies, thresholds = transcriptions.authors(features[left], features[right], np.where(same, 1, -1), fold)
    report = result.verification.report
    np.testing.assert_allclose(report.accuracies, accuracies)
    np.testing.assert_allclose(report.thresholds, thresholds)
    assert (report.same, report.different, len(report.accuracies)) == (60, 60, 10)
    assert "bootstrap over" in report.intervals
    assert result.verification.images == PEOPLE * PHOTOS


def test_identification_is_of_all_photos(result, embedded):
    _, people, features = embedded
    expected = identify(features, people, fpirs=(0.1,), splits=2, rounds=20)
    assert result.identification.rank1.value == pytest.approx(expected.rank1.value)
    assert result.identification.open_set[0.1].dir.value == pytest.approx(expected.open_set[0.1].dir.value)
    assert result.identification.probes == PEOPLE * (PHOTOS - 1)


def test_the_hardest_pairs_are_the_ends_of_a_sort_of_all(result, embedded):
    paths, people, features = embedded
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    pairs = [(unit[a] @ unit[b], a, b) for a, b in combinations(range(len(unit)), 2)]
    same = sorted(pair for pair in pairs if people[pair[1]] == people[pair[2]])[:12]
    different = sorted((pair for pair in pairs if people[pair[1]] != people[pair[2]]), reverse=True)[:12]
    expected = [(paths[a], paths[b]) for _, a, b in (*same, *different)]
    assert [(pair.left, pair.right) for pair in result.hardest] == expected
    assert [pair.score for pair in result.hardest] == pytest.approx([pair[0] for pair in (*same, *different)])
    assert [pair.same for pair in result.hardest] == [True] * 12 + [False] * 12


def test_hard_pairs_become_one_picture_with_both_faces_of_each(whole, result, tmp_path):
    written = write_hardest(result.hardest, whole, tmp_path / "hardest.png")
    picture = cv2.cvtColor(cv2.imread(str(written)), cv2.COLOR_BGR2RGB)
    height, width = picture.shape[0] // 6, picture.shape[1] // COLUMNS
    for place, pair in enumerate(result.hardest):
        top, start = (place // COLUMNS) * height + 2, (place % COLUMNS) * width + 2
        tile = picture[top : top + 112, start : start + 192]
        expected = np.hstack([pixels_of(whole, pair.left), pixels_of(whole, pair.right)])
        np.testing.assert_array_equal(tile, expected)
        strip = picture[top + 112 : top + height - 4, start : start + 192]
        assert strip.min() < 100  # there are words
        assert (strip[0, 0, 1] > strip[0, 0, 0]) == pair.same  # green or red


def test_pairs_of_another_set_are_not_drawn(whole, tmp_path):
    with pytest.raises(DataFormatError, match=r"nobody/1\.png is not in it"):
        write_hardest([HardPair("nobody/1.png", "p0000/0000.png", False, 0.5)], whole, tmp_path / "hardest.png")
    with pytest.raises(ValueError, match="no pair to draw"):
        write_hardest([], whole, tmp_path / "hardest.png")
    assert not (tmp_path / "hardest.png").exists()


def test_stored_features_and_other_formats_give_the_same_result(whole, embedder, result, tmp_path):
    embed_set(whole, tmp_path / "features", embedder, workers=0)
    convert(whole, tmp_path / "people.zip", to="zip")
    for other in (
        evaluate_folder(open_features(tmp_path / "features"), **QUICK),
        evaluate_folder(embedder, tmp_path / "people.zip", **QUICK),
    ):
        assert other.verification.report.accuracies == result.verification.report.accuracies
        assert other.identification.rank1 == result.identification.rank1
        assert [pair[:3] for pair in other.hardest] == [pair[:3] for pair in result.hardest]


def test_the_seed_draws_other_pairs(whole, embedder, result):
    other = evaluate_folder(embedder, whole, seed=1, **QUICK)
    assert other.verification.report.accuracies != result.verification.report.accuracies
    assert other.hardest == result.hardest  # no lot falls there
    assert "pairs drawn with seed 1" in other.table()


def test_a_result_is_one_json_object_and_a_table(result):
    content = json.loads(json.dumps(result.as_dict(), allow_nan=False))
    assert content["identification"]["closed_set"]["enrolled"] == PEOPLE
    assert len(content["hardest"]) == 24
    assert content["groups"] is None
    shown = result.table()
    assert "DIR at FPIR 0.1: " in shown
    assert f"same  {result.hardest[0].score:+.4f}  {result.hardest[0].left}" in shown


def test_an_unreadable_photo_is_an_error_or_is_left_out_and_named(root, embedder):
    (root / "p0003" / "0001.png").write_bytes(b"no image")
    with pytest.raises(UnreadableImage, match=r"p0003/0001\.png"):
        evaluate_folder(embedder, root, **QUICK)
    result = evaluate_folder(embedder, root, missing="skip", **QUICK)
    assert [*result.verification.missing] == ["p0003/0001.png"]
    assert result.verification.images == PEOPLE * PHOTOS - 1
    assert result.identification.probes == PEOPLE * (PHOTOS - 1) - 1


def test_few_people_make_few_folds_and_that_is_said(root, embedder):
    for person in range(8, PEOPLE):
        shutil.rmtree(root / f"p{person:04d}")
    result = evaluate_folder(embedder, root, **QUICK)
    assert "4 folds instead of 10: there are too few people" in result.verification.notes
    fewer = evaluate_folder(embedder, root, **{**QUICK, "pairs": 3})
    assert "3 folds instead of 10: there are too few pairs" in fewer.verification.notes
    for person in range(3, 8):
        shutil.rmtree(root / f"p{person:04d}")
    with pytest.raises(
        ValueError, match="pairs of 3 people make 1 fold, so that none can be held out; wanted at least 4"
    ):
        evaluate_folder(embedder, root, **QUICK)


def test_a_set_must_be_named():
    class Nobody:
        pass

    with pytest.raises(ValueError, match="no set of faces is named"):
        evaluate_folder(Nobody())


def test_groups_come_along_with_a_table(whole, embedder, tmp_path):
    table = tmp_path / "groups.csv"
    rows = [f"p{person:04d},{'even' if person % 2 == 0 else 'odd'}" for person in range(PEOPLE)]
    table.write_text("\n".join(["person,parity", *rows]))
    result = evaluate_folder(embedder, whole, groups=table, far=0.05, **QUICK)
    alone = evaluate_groups(embedder, whole, table, far=0.05, rounds=20)
    assert result.groups == alone
    assert [line.people for line in alone.attributes[0].groups] == [20, 20]
    assert "parity" in result.table()
    given = evaluate_folder(embedder, whole, groups=table, threshold=alone.threshold, **QUICK).groups
    assert (given.threshold, given.stated, given.fmr) == (alone.threshold, None, alone.fmr)
    assert given.attributes == alone.attributes
    with pytest.raises(ValueError, match=r"even: 1,710 pairs of different people, of which FMR 0\.001 lets 1\.71 pass"):
        evaluate_groups(embedder, whole, table)
