"""IJB-B and IJB-C against loops and whole matrices of scores, with ties, and from files to numbers."""

import json
import re

import numpy as np
import pytest

from sphereface.arrays import unit_rows
from sphereface.contract import Alignment, Card
from sphereface.data.aligning.run import Job, align_folder
from sphereface.data.lists.ijb import (
    FoundFace,
    Member,
    TemplatePairs,
    convert_landmarks,
    write_found_faces,
    write_members,
    write_subjects,
    write_template_pairs,
)
from sphereface.data.manifest import SetManifest, write_manifest
from sphereface.data.synthetic.people import SyntheticPeople
from sphereface.data.synthetic.shapes import write_ijb
from sphereface.embed.run import embed_set
from sphereface.embed.store import FEATURES, open_features
from sphereface.errors import ContractMismatch, DataFormatError, UnreadableImage
from sphereface.evaluation.protocols.ijb import evaluate_ijb
from sphereface.evaluation.rules.search import search_gallery
from sphereface.evaluation.rules.template_pairs import HighestScores, verify_templates
from sphereface.evaluation.rules.templates import pool_templates
from sphereface.evaluation.streaming.scores import dots
from sphereface.faces.warp import targets
from sphereface.metrics import cmc, rates_over_people, tar_at_far, threshold_at_far
from tests.evaluation.networks import tiles

PEOPLE, PHOTOS, TEMPLATES = 12, 6, 3  # each person has three templates of two photos: gallery, and two probes
QUICK = {"rounds": 20}


def unit32(rows):
    return unit_rows(rows, dtype=np.float32)


def score_matrix(a, b):
    """Every cosine, a row at a time."""
    a, b = unit32(a), unit32(b)
    return np.array([dots(np.broadcast_to(row, b.shape), b) for row in a])


def coarse(rng, count, width=12):
    """Features of signs alone: few different scores, so that nearly everything ties."""
    return unit32(np.sign(rng.normal(size=(count, width))))


# pooling


def pooled_slowly(features, templates, media, weights):
    """One template after another, one media after another."""
    found = {}
    for template in sorted(set(templates.tolist())):
        means = []
        for each in sorted(set(media[templates == template].tolist())):
            chosen = np.flatnonzero((templates == template) & (media == each))
            means.append(sum(features[place].astype(np.float64) * weights[place] for place in chosen) / len(chosen))
        mean = sum(means) / len(means)
        found[template] = mean / np.sqrt((mean * mean).sum())
    return found


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("unit_length", [False, True])
def test_pooling_is_that_of_a_slow_loop_whatever_the_block(weighted, unit_length):
    rng = np.random.default_rng(2)
    features = (rng.normal(size=(300, 7)) * rng.uniform(0.1, 9, size=(300, 1))).astype(np.float32)
    rows, templates = rng.integers(300, size=200), rng.integers(40, size=200) * 7
    media = rng.integers(4, size=200)
    weights = rng.uniform(0.5, 1, size=200) if weighted else None
    taken = features[rows].astype(np.float64)
    if unit_length:
        taken /= np.linalg.norm(taken, axis=1, keepdims=True)
    expected = pooled_slowly(taken, templates, media, np.ones(200) if weights is None else weights)
    found = [
        pool_templates(features, templates, media, rows=rows, weights=weights, unit_length=unit_length, block=block)
        for block in (1, 3, 50, 1000)
    ]
    assert found[0].numbers.tolist() == sorted(expected)
    assert np.allclose(found[0].features, list(expected.values()), atol=1e-6)
    assert all(np.array_equal(each.features, found[0].features) for each in found)


def test_a_long_video_counts_as_much_as_a_photo():
    features = np.array([[1.0, 0]] * 99 + [[0, 1.0]])
    found = pool_templates(features, [5] * 100, [1] * 99 + [2])
    assert np.allclose(found.features, np.sqrt([[0.5, 0.5]]))
    assert found.find([5, 4, 6]).tolist() == [0, -1, -1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": np.array([[1, np.nan], [1, 1]])}, "the feature of a.jpg has a number that is not finite"),
        ({"features": np.array([[1, 1], [-1, -1]])}, "the feature of template 3 has length zero"),
        ({"features": np.ones((3, 2))}, r"features \(3, 2\) for templates \(2,\)"),
        ({"rows": [0, 2]}, "rows from 0 to 2 of 2 features"),
        ({"weights": [1, -1]}, "weight 1 is -1.0"),
        ({"block": 0}, "block is 0"),
    ],
)
def test_what_cannot_be_pooled_is_named(change, message):
    asked = {"features": np.ones((2, 2)), "templates": [3, 3], "media": [1, 1], "images": ["a.jpg", "b.jpg"], **change}
    with pytest.raises(ValueError, match=message):
        pool_templates(**asked)


# 1:1


@pytest.fixture(scope="module")
def ties():
    """Templates of signs, and every pair of two of them."""
    rng = np.random.default_rng(4)
    features, subjects = coarse(rng, 60), np.arange(60) % 15
    features[15:] = np.where(rng.random((45, 12)) < 0.2, -1, 1) * features[subjects[15:]]
    first, second = np.triu_indices(60, 1)
    shuffled = rng.permutation(len(first))
    first, second = first[shuffled], second[shuffled]
    return features, subjects, first, second, subjects[first] == subjects[second]


@pytest.mark.parametrize("block", [1, 7, 500, 10_000])
def test_rates_of_pairs_are_those_of_the_whole_curve(ties, block):
    features, _, first, second, same = ties
    scores = score_matrix(features, features)[first, second]
    fars = (0.1, 0.02, 1e-3, 1e-6)
    found = verify_templates(features, first, second, same, fars=fars, block=block)
    assert (found.same, found.different) == (90, 60 * 59 // 2 - 90)
    assert found.tar[1e-6] is None  # one of 1,680 is more
    assert found.thresholds[1e-6] is None
    for far in fars[:-1]:
        assert found.tar[far].value == tar_at_far(same, scores, far=far)
        assert found.thresholds[far] == threshold_at_far(same, scores, far=far)
        low, high = found.tar[far].interval
        assert low <= found.tar[far].value <= high
    assert len(found.tail.negatives) == 2 * 168 + 1
    assert "Wilson" in found.intervals


@pytest.mark.parametrize("block", [1, 7, 500])
def test_the_highest_scores_of_a_stream_are_those_of_a_sort_however_often_some_are_dropped(block):
    scores = np.random.default_rng(6).integers(40, size=2000) / 8.0  # many ties
    found = HighestScores(150, room=5)
    for start in range(0, 2000, block):
        found.add(scores[start : start + block], np.arange(start, min(start + block, 2000)))
    kept, places = found.falling()
    assert np.array_equal(kept, -np.sort(-scores)[:150])
    assert np.array_equal(scores[places], kept)
    assert len(set(places.tolist())) == 150


def test_draws_of_people_weigh_pairs_as_a_bootstrap_of_all_pairs_would(ties):
    features, subjects, first, second, same = ties
    scores = score_matrix(features, features)[first, second]
    fars = (0.1, 0.01)
    found = verify_templates(features, first, second, same, subjects=subjects, fars=fars, rounds=30, seed=3)

    def slowly(weights):
        if not weights[same].any() or not weights[~same].any():
            return np.full(2, np.nan)
        return np.array([tar_at_far(same, scores, far=far, weights=weights) for far in fars])

    expected = rates_over_people(slowly, subjects[first], subjects[second], rounds=30, seed=3)
    assert [found.tar[far] for far in fars] == expected
    assert "30 draws" in found.intervals


def test_draws_that_the_kept_pairs_cannot_decide_are_passed_over(ties):
    features, subjects, first, second, same = ties
    asked = {"subjects": subjects, "fars": (0.1,), "rounds": 60}
    roomy = verify_templates(features, first, second, same, **asked).tar[0.1]
    tight = verify_templates(features, first, second, same, **asked, spare=1)
    assert len(tight.tail.negatives) == 169
    assert tight.tar[0.1].value == roomy.value
    assert tight.tar[0.1].interval != roomy.interval  # many draws need more than was kept


def test_where_everything_ties_nothing_is_accepted_and_json_knows_no_infinity():
    found = verify_templates(
        np.ones((4, 2), dtype=np.float32), *np.triu_indices(4, 1), np.arange(6) < 2, fars=(0.5, 0.1)
    )
    assert found.tar[0.5].value == 0
    assert found.thresholds[0.5] == np.inf
    assert json.loads(json.dumps(found.as_dict(), allow_nan=False))["threshold_at_far"] == {"0.5": None, "0.1": None}


def test_too_few_pairs_have_no_rate_at_all(ties):
    features, subjects, *_ = ties
    found = verify_templates(features, np.array([0, 0]), np.array([15, 1]), np.array([True, False]), subjects=subjects)
    assert list(found.tar.values()) == [None] * 6


def test_pairs_of_one_kind_are_refused(ties):
    features, _, first, second, same = ties
    with pytest.raises(ValueError, match="some of either kind"):
        verify_templates(features, first[same], second[same], same[same])


# 1:N


@pytest.mark.parametrize("twice", [False, True], ids=["one template a subject", "some subjects with two"])
def test_a_search_is_that_of_the_whole_matrix_with_ties(twice):
    rng = np.random.default_rng(7)
    known = np.arange(30)
    known[25:] = [0, 0, 3, 4, 4] if twice else known[25:]
    gallery, asked = coarse(rng, 30), rng.integers(45, size=150)
    probes = coarse(rng, 150)
    mates = np.flatnonzero(np.isin(asked, known))
    flips = np.where(rng.random((len(mates), 12)) < 0.25, -1, 1)
    probes[mates] = gallery[[np.flatnonzero(known == who)[-1] for who in asked[mates]]] * flips
    scores = score_matrix(probes, gallery)
    same = asked[:, None] == known
    found = search_gallery(probes, asked, gallery, known, block=6)
    assert found.mated.tolist() == np.flatnonzero(same.any(1)).tolist()
    assert sorted([*found.mated, *found.strangers]) == list(range(150))
    assert np.array_equal(found.highest, scores[found.strangers].max(1))
    best = np.where(same, scores, -np.inf).max(1)[found.mated]
    ranks = [
        1 + sum(scores[probe, column] >= score for column in range(30) if not same[probe, column])
        for probe, score in zip(found.mated, best, strict=True)
    ]
    assert np.array_equal(found.scores, best)
    assert found.ranks.tolist() == ranks
    rates = found.rates((1, 5, 10), (0.5, 0.1), np.ones(150))
    assert np.array_equal(rates[:3], cmc(same[found.mated], scores[found.mated], ranks=10)[[0, 4, 9]])
    for rate, fpir in zip(rates[3:], (0.5, 0.1), strict=True):
        thresholds = [t for t in np.append(np.unique(scores), np.inf) if (found.highest >= t).mean() <= fpir]
        hits = [rank == 1 and score >= min(thresholds) for rank, score in zip(ranks, best, strict=True)]
        assert rate == np.mean(hits)
    assert 0 < rates[4] <= rates[3] <= rates[0] < 1


def test_a_model_that_scores_all_alike_finds_nobody():
    alike = np.ones((4, 3), dtype=np.float32)
    found = search_gallery(alike, [0, 1, 2, 9], alike[:3], [0, 1, 2])
    assert found.rates((1, 2, 3), (1.0, 0.5), np.ones(4)).tolist() == [0, 0, 1, 0, 0]


def test_smooth_scores_are_searched_exactly():
    rng = np.random.default_rng(0)
    gallery = rng.normal(size=(40, 64)).astype(np.float32)
    probes = (gallery[np.arange(80) % 40] + 2 * rng.normal(size=(80, 64))).astype(np.float32)
    probes[60:] = gallery[20:40]  # copies
    found = search_gallery(probes, np.arange(80) % 40, gallery[:30], np.arange(30))
    scores = score_matrix(probes, gallery[:30])
    assert np.array_equal(found.highest, scores[found.strangers].max(1))
    assert np.array_equal(found.scores, scores[found.mated, found.mated % 40])
    assert np.array_equal(found.ranks, 1 + (scores[found.mated] >= found.scores[:, None]).sum(1) - 1)


# the whole


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """IJB-C in small: faces 1.png, 2.png, ..., and its metadata; half of the people in each gallery."""
    root = tmp_path_factory.mktemp("ijb")
    SyntheticPeople(seed=3).write(root / "people", PEOPLE, PHOTOS)
    faces, meta = root / "faces" / "loose_crop", root / "meta"
    faces.mkdir(parents=True)
    meta.mkdir()
    members, subjects, number = [], {}, 0
    for person in range(PEOPLE):
        for photo in range(PHOTOS):
            number += 1
            template = 100 + TEMPLATES * person + photo // 2
            (root / "people" / f"p{person:04d}" / f"{photo:04d}.png").rename(faces / f"{number}.png")
            members.append(Member(f"{number}.jpg", template, photo // 3))
            subjects[template] = 1000 + person
    write_manifest(root / "faces", SetManifest(made_by="a test"))
    write_members(meta / "ijbc_face_tid_mid.txt", members)
    galleries = [template for template in subjects if (template - 100) % TEMPLATES == 0]
    for name, chosen in (("G1", galleries[::2]), ("G2", galleries[1::2])):
        write_subjects(meta / f"ijbc_1N_gallery_{name}.csv", {template: subjects[template] for template in chosen})
    probes = {template: subject for template, subject in subjects.items() if template not in galleries}
    write_subjects(meta / "ijbc_1N_probe_mixed.csv", probes)
    first, second = (side.ravel().astype(np.int32) for side in np.meshgrid(galleries, list(probes)))
    same = np.array([subjects[a] == subjects[b] for a, b in zip(first.tolist(), second.tolist(), strict=True)])
    write_template_pairs(meta / "ijbc_template_pair_label.txt", TemplatePairs(first, second, same))
    landmarks = targets("sphereface", "112x96")
    found = {member.image: FoundFace(landmarks, 0.5 + place / 200) for place, member in enumerate(members)}
    write_found_faces(meta / "ijbc_name_5pts_score.txt", found)
    return root


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    return tiles(tmp_path_factory.mktemp("model") / "tiles.onnx")


@pytest.fixture(scope="module")
def stored(whole, embedder):
    embed_set(whole / "faces", whole / "features", embedder)
    return whole / "features"


@pytest.fixture
def meta(whole, tmp_path):
    """A copy of the metadata, to be changed."""
    for path in (whole / "meta").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def test_faces_and_stored_features_give_the_same_numbers_which_are_those_of_loops(whole, embedder, stored):
    result = evaluate_ijb(embedder, whole / "meta", faces=whole / "faces", **QUICK)
    again = evaluate_ijb(stored, whole, **QUICK)  # the folder above `meta` will do
    assert json.dumps(result.as_dict()) == json.dumps(again.as_dict())
    assert evaluate_ijb(open_features(stored), whole / "meta", **QUICK).table() == result.table()
    features = open_features(stored)
    numbers = {
        int(path.split("/")[1].split(".")[0]): row for path, row in zip(features.paths, features.rows, strict=True)
    }
    members = [line.split() for line in (whole / "meta" / "ijbc_face_tid_mid.txt").read_text().splitlines()]
    templates, media = (np.array([int(line[k]) for line in members]) for k in (1, 2))
    rows = np.array([numbers[int(line[0].removesuffix(".jpg"))] for line in members])
    pooled = pooled_slowly(rows, templates, media, np.ones(len(rows)))
    pairs = np.loadtxt(whole / "meta" / "ijbc_template_pair_label.txt", dtype=int)
    scores = np.array([pooled[a] @ pooled[b] for a, b, _ in pairs])
    for far in (0.1, 0.01):
        expected = tar_at_far(pairs[:, 2] == 1, scores, far=far)
        assert result.verification.tar[far].value == pytest.approx(expected, abs=1e-9)
    assert result.verification.tar[1e-3] is None  # of 264 different pairs
    assert "bootstrap over people" in result.verification.intervals
    for gallery, start in zip(result.galleries, (0, 1), strict=True):
        ours = [100 + TEMPLATES * person for person in range(start, PEOPLE, 2)]
        probes = [template for template in pooled if (template - 100) % TEMPLATES]
        matrix = np.array([[pooled[a] @ pooled[b] for b in ours] for a in probes])
        same = np.array([[(a - 100) // TEMPLATES == (b - 100) // TEMPLATES for b in ours] for a in probes])
        mated = same.any(1)
        curve = cmc(same[mated], matrix[mated], ranks=10)
        assert [gallery.rank[rank].value for rank in (1, 5, 10)] == curve[[0, 4, 9]].tolist()
        assert (gallery.mated, gallery.strangers, gallery.templates) == (PEOPLE, PEOPLE, PEOPLE // 2)
        refused = np.sort(matrix[~mated].max(1))[-2]  # one of twelve strangers may pass
        best = np.where(same, matrix, -np.inf).max(1)[mated]
        assert gallery.tpir[0.1].value == np.mean((best >= matrix[mated].max(1)) & (best > refused))
        assert gallery.tpir[0.01] is None
    for rank in (1, 5, 10):
        each = [gallery.rank[rank].value for gallery in result.galleries]
        assert result.mean.rank[rank].value == pytest.approx(np.mean(each))
    assert result.mean.tpir[0.01] is None
    assert (result.images, result.templates, result.pairs_listed) == (72, 36, 12 * 24)


def test_scores_and_lengths_change_the_pooling_and_are_told(stored, whole):
    plain, weighted, unit = (
        evaluate_ijb(stored, whole / "meta", **QUICK, **options)
        for options in ({}, {"score_weights": True}, {"unit_length": True})
    )
    tails = [each.verification.tail.positives for each in (plain, weighted, unit)]
    assert not np.array_equal(tails[0], tails[1])
    assert not np.array_equal(tails[0], tails[2])
    assert "detection score" in weighted.pooling
    assert "length one" in unit.table()
    assert "concatenated" in plain.features


def test_without_lists_of_subjects_only_pairs_are_judged_with_wilson(stored, meta):
    for path in meta.glob("*.csv"):
        path.unlink()
    result = evaluate_ijb(stored, meta)
    assert "Wilson" in result.verification.intervals
    assert result.galleries == ()
    assert result.mean is None
    assert any("galleries are not there" in note for note in result.notes)


def test_without_pairs_only_galleries_are_searched(stored, meta):
    (meta / "ijbc_template_pair_label.txt").unlink()
    result = evaluate_ijb(stored, meta, **QUICK)
    assert result.verification is None
    assert len(result.galleries) == 2
    assert "no 1:1" in result.table()


def test_labels_that_disagree_with_subjects_are_noted_and_judged_as_they_stand(stored, meta):
    path = meta / "ijbc_template_pair_label.txt"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0][:-1] + ("1" if lines[0].endswith("0") else "0"), *lines[1:]]))
    result = evaluate_ijb(stored, meta, **QUICK)
    assert any("disagree" in note for note in result.notes)
    assert "Wilson" in result.verification.intervals


def test_a_pair_that_is_listed_again_counts_again_where_that_is_asked_for(stored, meta):
    once = evaluate_ijb(stored, meta, **QUICK).verification
    path = meta / "ijbc_template_pair_label.txt"
    first, second, label = next(line for line in path.read_text().splitlines() if line.endswith("1")).split()
    path.write_text(path.read_text() + f"{second} {first} {label}\n{first} {second} {label}\n")
    with pytest.raises(DataFormatError, match=r'label.txt:289: .* it is on line \d+, too \(2 such .*repeats="keep"'):
        evaluate_ijb(stored, meta)
    result = evaluate_ijb(stored, meta, repeats="keep", **QUICK)
    assert (result.verification.same, result.verification.different) == (once.same + 2, once.different)
    added = np.setdiff1d(*(np.round(each, 12) for each in (result.verification.tail.positives, once.tail.positives)))
    assert not len(added)  # they score as the one above does
    assert "2 pairs are listed again, and count again" in result.notes


def test_missing_images_fail_or_are_left_out_and_counted(whole, embedder, stored, meta):
    path = meta / "ijbc_face_tid_mid.txt"
    path.write_text(path.read_text() + "x/900.jpg 100 5\n901.jpg 7 1\n")
    (meta / "ijbc_1N_probe_mixed.csv").write_text((meta / "ijbc_1N_probe_mixed.csv").read_text() + "7,1003\n")
    for asked in ({"features": stored}, {"features": embedder, "faces": whole / "faces"}):
        with pytest.raises(DataFormatError, match=r"2 of 74 listed images .* such as x/900.jpg \(not in the set\)"):
            evaluate_ijb(meta=meta, **asked)
        result = evaluate_ijb(meta=meta, missing="skip", **asked, **QUICK)
        assert result.missing == dict.fromkeys(["x/900.jpg", "901.jpg"], "not in the set")
        assert (result.lost_templates, result.templates, result.probes_listed) == (1, 36, 25)
        assert [gallery.mated + gallery.strangers for gallery in result.galleries] == [24, 24]
        assert "left out: 2 images" in result.table()


def test_unreadable_faces_fail_or_are_left_out(whole, embedder, tmp_path):
    faces = tmp_path / "faces"
    faces.mkdir()
    for path in (whole / "faces" / "loose_crop").iterdir():
        (faces / path.name).symlink_to(path)
    (faces / "3.png").unlink()
    (faces / "3.png").write_bytes(b"no image")
    with pytest.raises(UnreadableImage, match=r"3\.png"):
        evaluate_ijb(embedder, whole / "meta", faces=faces)
    result = evaluate_ijb(embedder, whole / "meta", faces=faces, missing="skip", **QUICK)
    assert list(result.missing) == ["3.jpg"]
    assert result.images == 71
    assert any("by their size alone" in note for note in result.notes)


def test_faces_aligned_otherwise_are_refused(whole, embedder, tmp_path):
    (tmp_path / "loose_crop").symlink_to(whole / "faces" / "loose_crop")
    write_manifest(tmp_path, SetManifest(made_by="a test", alignment=Alignment(template="matlab")))
    with pytest.raises(ContractMismatch, match="template matlab"):
        evaluate_ijb(embedder, whole / "meta", faces=tmp_path)


def test_a_feature_that_is_not_finite_is_named(stored, whole, tmp_path):
    for path in stored.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    content = bytearray((tmp_path / FEATURES).read_bytes())
    content[-4:] = np.float32(np.nan).tobytes()
    (tmp_path / FEATURES).write_bytes(content)
    last = open_features(tmp_path).paths[-1].split("/")[1].replace("png", "jpg")
    with pytest.raises(ValueError, match=f"the feature of {re.escape(last)} has a number that is not finite"):
        evaluate_ijb(tmp_path, whole / "meta")


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        ("ijbc_template_pair_label.txt", "100 77 0", r"label.txt:289: '100 77 0'; wanted templates of .* have 77"),
        ("ijbc_template_pair_label.txt", "104 100 0", r"label.txt:289: .* each pair once; it is on line 25, too"),
        ("ijbc_1N_gallery_G1.csv", "77,1000", r"G1.csv:8: '77,1000'; wanted templates of .* does not have 77"),
        ("ijbc_1N_gallery_G2.csv", "100,1001", r"G2.csv:8: '100,1001'; wanted subject 1000, as in another list"),
    ],
)
def test_lists_that_contradict_each_other_are_named_by_line(stored, meta, file, line, message):
    (meta / file).write_text((meta / file).read_text() + f"{line}\n")
    with pytest.raises(DataFormatError, match=message):
        evaluate_ijb(stored, meta)


def test_a_gallery_of_strangers_only_is_refused(stored, meta):
    (meta / "ijbc_1N_gallery_G1.csv").write_text("TEMPLATE_ID,SUBJECT_ID\n100,5\n")
    (meta / "ijbc_1N_gallery_G2.csv").unlink()
    with pytest.raises(DataFormatError, match=r"G1\.csv: no probe has a mate"):
        evaluate_ijb(stored, meta)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"missing": "drop"}, "missing is 'drop'; choose 'fail' or 'skip'"),
        ({"repeats": "drop"}, "repeats is 'drop'; choose one of fail, keep"),
        ({"fars": [0]}, "wanted shares"),
        ({"ranks": [0]}, "ranks are"),
        ({"name": "ijba"}, "unknown set 'ijba'; choose one of ijbb, ijbc"),
        ({"name": "ijbb"}, "ijbb_face_tid_mid.txt: no such list"),
        ({"faces": "faces"}, "leave one of them out"),
    ],
)
def test_choices_that_cannot_be_are_refused(stored, whole, options, message):
    with pytest.raises(ValueError, match=message):
        evaluate_ijb(stored, whole / "meta", **options)


def test_an_embedder_wants_faces(whole, embedder):
    with pytest.raises(ValueError, match="name the folder of aligned faces"):
        evaluate_ijb(embedder, whole / "meta")


def test_scores_for_weights_must_be_there(stored, meta):
    path = meta / "ijbc_name_5pts_score.txt"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[1:]))
    with pytest.raises(DataFormatError, match=r"1 images have no score, such as 1\.jpg"):
        evaluate_ijb(stored, meta, score_weights=True)
    path.write_text("\n".join([lines[0].rsplit(" ", 1)[0] + " -0.5", *lines[1:]]))
    with pytest.raises(DataFormatError, match=r"1\.jpg has the score -0\.5"):
        evaluate_ijb(stored, meta, score_weights=True)
    path.unlink()
    with pytest.raises(DataFormatError, match="no list of detection scores"):
        evaluate_ijb(stored, meta, score_weights=True)


def test_loose_crops_are_aligned_by_the_given_points_and_scored(whole, embedder, tmp_path):
    source = tmp_path / "IJBC"
    source.mkdir()
    (source / "loose_crop").mkdir()
    for path in (whole / "faces" / "loose_crop").iterdir():
        (source / "loose_crop" / path.name.replace("png", "jpg")).write_bytes(path.read_bytes())
    assert convert_landmarks(whole / "meta" / "ijbc_name_5pts_score.txt", tmp_path / "landmarks.txt") == 72
    align_folder(Job(source, tmp_path / "aligned", landmarks=tmp_path / "landmarks.txt", format="png"))
    result = evaluate_ijb(embedder, whole / "meta", faces=tmp_path / "aligned", **QUICK)
    direct = evaluate_ijb(embedder, whole / "meta", faces=whole / "faces", **QUICK)
    assert result.notes == ()
    assert np.allclose(result.verification.tail.positives, direct.verification.tail.positives, atol=1e-3)


def test_the_card_says_how_image_and_mirror_are_joined(whole, embedder):
    summed = evaluate_ijb(embedder.with_rule("sum"), whole / "meta", faces=whole / "faces", **QUICK)
    assert summed.features == "image and mirror image, summed"
    assert summed.model == Card(name="tiles").name


def test_a_synthetic_ijb_b_is_scored_from_its_files(embedder, tmp_path):
    write_ijb(SyntheticPeople(seed=5), tmp_path / "IJBB", 8, 6, name="ijbb")
    result = evaluate_ijb(embedder, tmp_path / "IJBB", "ijbb", faces=tmp_path / "IJBB", **QUICK)
    assert [gallery.name for gallery in result.galleries] == ["S1", "S2"]
    assert [(gallery.templates, gallery.mated, gallery.strangers) for gallery in result.galleries] == [(4, 8, 8)] * 2
    assert (result.templates, result.verification.same, result.verification.different) == (24, 16, 8 * 14)
    assert result.verification.tar[0.1].value > 0.2  # twice what chance would give
    assert result.mean.rank[1].value > 0.3
    assert result.notes == ()


def test_why_an_image_has_no_feature_is_told(whole, embedder, tmp_path):
    faces = tmp_path / "faces" / "loose_crop"
    faces.mkdir(parents=True)
    for path in (whole / "faces" / "loose_crop").iterdir():
        (faces / path.name).symlink_to(path)
    (faces / "3.png").unlink()
    (faces / "3.png").write_bytes(b"no image")
    embed_set(tmp_path / "faces", tmp_path / "features", embedder, missing="skip")
    with pytest.raises(
        DataFormatError, match=r"1 of 72 listed images are not in the features, such as 3\.jpg \(.*image"
    ):
        evaluate_ijb(tmp_path / "features", whole / "meta")
    result = evaluate_ijb(tmp_path / "features", whole / "meta", missing="skip", **QUICK)
    assert list(result.missing) == ["3.jpg"]


def test_names_that_may_be_two_images_are_refused(whole, embedder, tmp_path):
    (tmp_path / "loose_crop").symlink_to(whole / "faces" / "loose_crop")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "5.png").symlink_to(whole / "faces" / "loose_crop" / "5.png")
    with pytest.raises(DataFormatError, match=r"5\.jpg may be loose_crop/5\.png and more/5\.png; keep one"):
        evaluate_ijb(embedder, whole / "meta", faces=tmp_path)


def test_two_names_for_one_image_are_refused(stored, meta):
    path = meta / "ijbc_face_tid_mid.txt"
    path.write_text(path.read_text() + "5.bmp 100 5\n")
    with pytest.raises(DataFormatError, match=r"loose_crop/5\.png may be 5\.jpg and 5\.bmp"):
        evaluate_ijb(stored, meta)
