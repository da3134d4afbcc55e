"""LFW's views and InsightFace's `.bin` sets, from files to numbers, with a small ONNX embedder and synthetic faces."""

import json
import re
import shutil

import cv2
import numpy as np
import pytest

from sphereface.contract import Alignment, Card
from sphereface.data.formats.bins import PairSet, write_bin
from sphereface.data.formats.sets import convert
from sphereface.data.lists.pairs import Pair, bin_to_folder, pairs_to_bin, read_pairs, write_pairs
from sphereface.data.manifest import SetManifest, write_manifest
from sphereface.data.synthetic.people import SyntheticPeople
from sphereface.embed.embedder import Embedder
from sphereface.embed.ensemble import Ensemble, join_features
from sphereface.embed.run import embed_set
from sphereface.embed.store import FEATURES, open_features
from sphereface.errors import ContractMismatch, DataFormatError, JobFailed, UnreadableImage
from sphereface.evaluation import RULES, evaluate_lfw, verification_report, verify_folds, verify_held_out
from tests.evaluation import transcriptions
from tests.evaluation.networks import tiles

PEOPLE, PHOTOS = 10, 4
QUICK = {"rounds": 20}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Faces named as in LFW but stored as PNG, and lists that say .jpg: ten folds, DevTrain and DevTest."""
    root = tmp_path_factory.mktemp("lfw") / "faces"
    SyntheticPeople(seed=1).write(root, PEOPLE, PHOTOS)
    for person in range(PEOPLE):
        for photo in range(PHOTOS):
            (root / f"p{person:04d}" / f"{photo:04d}.png").rename(root / name(person, photo, "png"))
    pairs = []
    for fold in range(10):  # person `fold` with itself, and with the next two
        pairs += [Pair(name(fold, 0), name(fold, 1), True, fold), Pair(name(fold, 2), name(fold, 3), True, fold)]
        pairs += [Pair(name(fold, k), name((fold + k) % PEOPLE, k), False, fold) for k in (1, 2)]
    write_pairs(root / "pairs.txt", pairs, layout="view2")
    dev = [Pair(pair.left, pair.right, pair.same) for pair in pairs]
    for place, listed in (("pairsDevTrain.txt", dev[:20]), ("pairsDevTest.txt", dev[20:])):
        write_pairs(root / place, sorted(listed, key=lambda pair: not pair.same), layout="view1")
    return root


def name(person, photo, suffix="jpg"):
    return f"p{person:04d}/p{person:04d}_{photo + 1:04d}.{suffix}"


@pytest.fixture
def root(whole, tmp_path):
    """A copy that a test may spoil."""
    return shutil.copytree(whole, tmp_path / "faces")


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    return tiles(tmp_path_factory.mktemp("model") / "tiles.onnx")


def features_of(embedder, root, path):
    """One image at a time, straight from its file."""
    pixels = cv2.cvtColor(cv2.imread(str(root / path.replace(".jpg", ".png"))), cv2.COLOR_BGR2RGB)
    return embedder.embed(pixels[None])[0].astype(float)


def sides(embedder, root, pairs):
    return [np.stack([features_of(embedder, root, path) for path in side]) for side in zip(*pairs, strict=True)]


def listed(root, place="pairs.txt"):
    """The pairs of LFW's own layouts, read once more: names and whether they are same, in order."""
    pairs = []
    for line in (root / place).read_text().splitlines()[1:]:
        first, i, *other, j = line.split("\t")
        second = other[0] if other else first
        pairs.append((f"{first}/{first}_{int(i):04d}.jpg", f"{second}/{second}_{int(j):04d}.jpg"))
    return pairs, np.array([a.split("/")[0] == b.split("/")[0] for a, b in pairs])


def test_view_2_is_ten_folds_by_the_authors_script(whole, embedder):
    result = evaluate_lfw(embedder, whole, **QUICK)
    pairs, same = listed(whole)
    left, right = sides(embedder, whole, pairs)
    accuracies, thresholds = transcriptions.authors(left, right, np.where(same, 1, -1), np.arange(40) // 4)
    assert result.rule == "authors"
    np.testing.assert_allclose(result.report.accuracies, accuracies)
    np.testing.assert_allclose(result.report.thresholds, thresholds)
    assert (result.listed, result.scored, result.images) == (40, 40, 40)
    assert result.missing == {}
    assert f"bootstrap over {PEOPLE} people" in result.report.intervals
    assert result.features == {"authors": "image and mirror image, concatenated"}


def test_insightface_sums_what_the_embedder_put_side_by_side(whole, embedder):
    result = evaluate_lfw(embedder, whole, rule="insightface", **QUICK)
    pairs, same = listed(whole)
    both = np.stack(sides(embedder, whole, pairs), axis=1).reshape(80, 252)
    accuracies, distances = transcriptions.insightface(both[:, :126], both[:, 126:], same, 10)
    np.testing.assert_allclose(result.report.accuracies, accuracies)
    np.testing.assert_allclose(result.report.thresholds, 1 - distances / 2)
    assert result.features == {"insightface": "image and mirror image, summed"}


def test_features_that_are_summed_already_are_not_halved(whole, tmp_path, embedder):
    summed = tiles(tmp_path / "sum.onnx", card=Card(feature_rule="sum"))
    ours, theirs = (evaluate_lfw(each, whole, rule="insightface", **QUICK) for each in (summed, embedder))
    assert ours.report == theirs.report
    assert evaluate_lfw(summed, whole, **QUICK).features == {"authors": "image and mirror image, summed"}


def test_view_1_learns_from_dev_train_and_judges_dev_test(whole, embedder):
    result = evaluate_lfw(embedder, whole, view=1, all_rules=True, **QUICK)
    (train, train_same), (test, test_same) = (listed(whole, f"pairsDev{part}.txt") for part in ("Train", "Test"))
    left, right = sides(embedder, whole, train + test)
    same, held_out = np.append(train_same, test_same), np.arange(40) >= 20
    flags = np.where(same, 1, -1)
    accuracies, thresholds = transcriptions.authors(left, right, flags, held_out.astype(int))
    assert result.report.accuracies == pytest.approx([accuracies[1]])
    assert result.report.thresholds == pytest.approx([thresholds[1]])
    for rule in RULES:
        found = verify_held_out(left, right, same, held_out, rule=rule, mirrored=True)
        assert result.reports[rule].accuracies == pytest.approx([found.accuracy])
    assert (result.listed, result.scored, result.dev_train) == (20, 20, (20, 20))
    assert result.report.standard_error is None


def test_lists_may_lie_elsewhere(whole, embedder, tmp_path):
    for place in ("pairs.txt", "pairsDevTrain.txt", "pairsDevTest.txt"):
        shutil.copy(whole / place, tmp_path / place)
    faces = shutil.copytree(whole, tmp_path / "set", ignore=shutil.ignore_patterns("*.txt"))
    expected = evaluate_lfw(embedder, whole, **QUICK).report
    assert evaluate_lfw(embedder, faces, tmp_path, **QUICK).report == expected
    assert evaluate_lfw(embedder, faces, tmp_path / "pairs.txt", **QUICK).report == expected
    both = tmp_path / "pairsDevTrain.txt", tmp_path / "pairsDevTest.txt"
    in_folder, by_name = (evaluate_lfw(embedder, faces, pairs, view=1, **QUICK) for pairs in (tmp_path, both))
    assert in_folder.report == by_name.report
    with pytest.raises(DataFormatError, match=r"set/pairs\.txt: no such list"):
        evaluate_lfw(embedder, faces)
    with pytest.raises(ValueError, match=r"view 1 takes pairsDevTrain\.txt and pairsDevTest\.txt"):
        evaluate_lfw(embedder, faces, tmp_path / "pairs.txt", view=1)
    with pytest.raises(ValueError, match="one fold, so that none can be held out; wanted ten, or two lists"):
        evaluate_lfw(embedder, faces, tmp_path / "pairsDevTest.txt")


def test_faces_may_come_in_any_format(whole, embedder, tmp_path):
    convert(whole, tmp_path / "faces.zip", to="zip")
    result = evaluate_lfw(embedder, tmp_path / "faces.zip", whole / "pairs.txt", **QUICK)
    assert result.report == evaluate_lfw(embedder, whole, **QUICK).report


def test_each_distinct_image_is_embedded_once(whole, embedder, tmp_path):
    pairs = [Pair(name(0, 0), name(k, 0), False, k % 2) for k in range(1, 6)]
    pairs += [Pair(name(0, 0), name(0, k), True, k % 2) for k in (1, 2)]
    write_pairs(tmp_path / "pairs.txt", pairs)
    seen, heard = [], []

    class Counting:
        card = embedder.card

        def embed(self, faces):
            seen.append(len(faces))
            return embedder.embed(faces)

    result = evaluate_lfw(Counting(), whole, tmp_path / "pairs.txt", progress=lambda *done: heard.append(done), **QUICK)
    assert sum(seen) == result.images == 8
    assert heard[-1] == (8, 8)


def test_a_missing_face_is_an_error_that_says_how_many_pairs_it_costs(root, embedder):
    (root / name(3, 0, "png")).unlink()
    with pytest.raises(
        DataFormatError, match=r"1 of 40 listed images are not there, such as p0003.*1 of 40 pairs need"
    ):
        evaluate_lfw(embedder, root)


def test_pairs_with_missing_faces_are_left_out_counted_and_named(root, embedder):
    (root / name(3, 0, "png")).unlink()
    (root / name(5, 2, "png")).write_bytes(b"no image")
    result = evaluate_lfw(embedder, root, missing="skip", **QUICK)
    pairs, same = listed(root)
    lost = [name(3, 0) in pair or name(5, 2) in pair for pair in pairs]
    kept = [place for place in range(40) if not lost[place]]
    left, right = sides(embedder, root, [pairs[place] for place in kept])
    expected = verify_folds(left, right, same[kept], np.array(kept) // 4)
    assert result.report.accuracies == pytest.approx(expected.accuracies.tolist())
    assert (result.listed, result.scored, result.images) == (40, len(kept), 38)
    assert result.missing[name(3, 0)] == "not in the set"
    assert "wanted a JPEG" in result.missing[name(5, 2, "png")]
    assert re.search(rf"{len(kept)} of 40 pairs scored", result.table())
    assert f"left out: {40 - len(kept)} pairs, for lack of {name(3, 0)} (not in the set)" in result.table()
    with pytest.raises(DataFormatError, match="listed images are not there"):
        evaluate_lfw(embedder, root, missing="fail")


def test_an_unreadable_face_is_an_error_unless_it_may_be_skipped(root, embedder):
    (root / name(5, 2, "png")).write_bytes(b"no image")
    with pytest.raises(UnreadableImage, match="p0005_0003"):
        evaluate_lfw(embedder, root)


def test_a_fold_that_is_gone_altogether_is_noted(root, embedder):
    for person in (2, 3, 4):
        shutil.rmtree(root / f"p{person:04d}")
    result = evaluate_lfw(embedder, root, missing="skip", **QUICK)
    assert "3 of the folds have no pair left" in result.notes


def test_a_set_without_any_of_the_listed_faces_is_refused(root, embedder):
    for person in range(PEOPLE):
        shutil.rmtree(root / f"p{person:04d}")
    (root / "other").mkdir()
    cv2.imwrite(str(root / "other" / "1.png"), np.zeros((112, 96, 3), np.uint8))
    with pytest.raises(DataFormatError, match="none of the listed images can be used"):
        evaluate_lfw(embedder, root, missing="skip")


def test_faces_made_for_another_model_are_refused(root, embedder):
    write_manifest(root, SetManifest(alignment=Alignment(template="matlab"), made_by="a test"))
    with pytest.raises(ContractMismatch, match="aligned to template matlab"):
        evaluate_lfw(embedder, root)


def test_faces_without_a_manifest_are_judged_by_size_and_that_is_said(root, embedder):
    (root / "manifest.json").unlink()
    result = evaluate_lfw(embedder, root, **QUICK)
    assert any("no manifest" in note for note in result.notes)
    assert "note: " in result.table()


@pytest.mark.parametrize("again", [(0, 1, 0, 0), (0, 0, 0, 1)])
def test_a_pair_that_is_listed_twice_is_refused(root, embedder, again):
    a, i, b, j = again
    pairs = [Pair(name(0, 0), name(0, 1), True, 0), Pair(name(0, 0), name(1, 1), False, 1)]
    write_pairs(root / "twice.txt", [*pairs, Pair(name(a, i), name(b, j), True, 1)])
    with pytest.raises(DataFormatError, match=r"are listed twice, as pairs 1 and \d+"):
        evaluate_lfw(embedder, root, root / "twice.txt")


def test_the_way_out_of_a_pair_that_lfws_own_list_has_twice_is_a_plain_list(root, embedder):
    lines = (root / "pairs.txt").read_text().splitlines()
    (root / "pairs.txt").write_text("\n".join([*lines[:2], lines[1], *lines[3:]]) + "\n")
    with pytest.raises(DataFormatError, match=r"as pairs 1 and 2; leave one of these lines out.*as a plain list"):
        evaluate_lfw(embedder, root, **QUICK)
    pairs = read_pairs(root / "pairs.txt")
    write_pairs(root / "plain.txt", [*pairs[:1], *pairs[2:]])
    assert evaluate_lfw(embedder, root, root / "plain.txt", **QUICK).scored == len(pairs) - 1


def test_an_image_that_may_be_two_files_is_refused(root, embedder):
    shutil.copy(root / name(0, 0, "png"), root / name(0, 0, "bmp"))
    with pytest.raises(DataFormatError, match=r"may be .*\.bmp and .*\.png; keep one"):
        evaluate_lfw(embedder, root)


def test_folders_that_are_no_people_give_no_bootstrap_over_people(root, embedder):
    for person in range(2):
        shutil.copy(root / name(person, 0, "png"), root / "p0009" / f"{person}.png")
    pairs = [Pair(name(k, 0), name(k, 1), True, k % 2) for k in range(4)]
    pairs += [Pair(name(k, 2), name(k + 1, 3), False, k % 2) for k in range(4)]
    write_pairs(root / "few.txt", [*pairs, Pair("p0009/0.png", "p0009/1.png", False, 0)])
    assert evaluate_lfw(embedder, root, root / "few.txt", **QUICK).report.intervals.startswith("Wilson")
    write_pairs(root / "few.txt", pairs)
    assert evaluate_lfw(embedder, root, root / "few.txt", **QUICK).report.intervals.startswith(
        "bootstrap over 5 people"
    )


def test_features_that_are_not_numbers_are_refused_by_name(whole):
    broken = Embedder(lambda inputs: np.full((len(inputs), 3), np.nan, np.float32), Card())
    with pytest.raises(JobFailed, match=r"40 of 40 features are not finite, such as that of p0000/p0000_0001\.png"):
        evaluate_lfw(broken, whole)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "mine"}, "unknown rule 'mine'; choose one of authors"),
        ({"missing": "centre"}, "missing is 'centre'; choose 'fail' or 'skip'"),
        ({"view": 3}, "view is 3"),
        ({"fars": [0.0]}, "wanted shares"),
    ],
)
def test_unknown_choices_are_refused_before_anything_is_embedded(whole, options, message):
    with pytest.raises(ValueError, match=message):
        evaluate_lfw(Embedder(None, Card()), whole, **options)


def test_an_unknown_option_is_a_type_error(whole):
    with pytest.raises(TypeError, match="unexpected keyword argument 'rules'"):
        evaluate_lfw(Embedder(None, Card()), whole, rules="best")


@pytest.fixture
def bin_set(whole, tmp_path):
    pairs, same = listed(whole)
    stored = [
        Pair(*(path.replace(".jpg", ".png") for path in pair), truth)
        for pair, truth in zip(pairs, same.tolist(), strict=True)
    ]
    pairs_to_bin(stored, whole, tmp_path / "agedb_30.bin")
    return tmp_path / "agedb_30.bin"


def test_a_bin_gives_what_its_folder_gives(whole, embedder, bin_set):
    from_bin = evaluate_lfw(embedder, bin_set, all_rules=True)
    from_folder = evaluate_lfw(embedder, whole, all_rules=True, **QUICK)
    for rule in RULES:
        assert from_bin.reports[rule].accuracies == from_folder.reports[rule].accuracies
        assert from_bin.reports[rule].auc.value == from_folder.reports[rule].auc.value
    assert from_bin.report.intervals.startswith("Wilson")
    assert (from_bin.listed, from_bin.images) == (40, 40)
    assert any("no manifest" in note for note in from_bin.notes)
    assert evaluate_lfw(embedder, bin_set, all_rules=True) == from_bin
    with pytest.raises(ValueError, match="holds its own pairs"):
        evaluate_lfw(embedder, bin_set, whole / "pairs.txt")


def test_folds_of_a_bin_are_insightfaces_also_where_ten_do_not_divide_them(whole, embedder, tmp_path):
    pairs, same = listed(whole)
    images = [(whole / path.replace(".jpg", ".png")).read_bytes() for pair in pairs[:37] for path in pair]
    write_bin(tmp_path / "odd.bin", PairSet(tuple(images), tuple(same[:37].tolist())))
    both = np.stack(sides(embedder, whole, pairs[:37]), axis=1).reshape(74, 252)
    accuracies, _ = transcriptions.insightface(both[:, :126], both[:, 126:], same[:37], 10)
    result = evaluate_lfw(embedder, tmp_path / "odd.bin", rule="insightface")
    np.testing.assert_allclose(result.report.accuracies, accuracies)


def test_a_bin_unpacked_to_a_folder_gives_what_the_bin_gives_where_ten_do_not_divide_it(whole, embedder, tmp_path):
    pairs, same = listed(whole)
    images = [(whole / path.replace(".jpg", ".png")).read_bytes() for pair in pairs[:23] for path in pair]
    write_bin(tmp_path / "odd.bin", PairSet(tuple(images), tuple(same[:23].tolist())))
    bin_to_folder(tmp_path / "odd.bin", tmp_path / "odd")
    from_bin = evaluate_lfw(embedder, tmp_path / "odd.bin", all_rules=True)
    from_folder = evaluate_lfw(embedder, tmp_path / "odd", all_rules=True, **QUICK)
    for rule in RULES:
        assert from_bin.reports[rule].accuracies == from_folder.reports[rule].accuracies
        assert from_bin.reports[rule].thresholds == from_folder.reports[rule].thresholds


def test_a_bin_with_a_broken_image_an_empty_one_and_photos(whole, embedder, tmp_path, bin_set):
    pairs, same = listed(whole)
    images = [(whole / path.replace(".jpg", ".png")).read_bytes() for pair in pairs for path in pair]
    images[9] = b"broken"
    write_bin(tmp_path / "a.bin", PairSet(tuple(images), tuple(same.tolist())))
    with pytest.raises(UnreadableImage, match=r"a\.bin: image 9"):
        evaluate_lfw(embedder, tmp_path / "a.bin")
    result = evaluate_lfw(embedder, tmp_path / "a.bin", missing="skip")
    assert (result.scored, result.listed, list(result.missing)) == (39, 40, ["a.bin: image 9"])
    write_bin(tmp_path / "a.bin", PairSet((), ()))
    with pytest.raises(DataFormatError, match="no pair in it"):
        evaluate_lfw(embedder, tmp_path / "a.bin")
    photo = cv2.imencode(".png", np.zeros((250, 250, 3), np.uint8))[1].tobytes()
    write_bin(tmp_path / "a.bin", PairSet((photo,) * 2, (True,)))
    with pytest.raises(ContractMismatch, match="data align"):
        evaluate_lfw(embedder, tmp_path / "a.bin")


def test_the_result_is_one_json_object_and_names_its_rules(whole, embedder):
    result = evaluate_lfw(embedder, whole, all_rules=True, **QUICK)
    payload = json.loads(json.dumps(result.as_dict(), allow_nan=False))
    assert (payload["model"], payload["rule"]) == ("tiles", "authors")
    assert (payload["pairs_listed"], payload["pairs_scored"]) == (40, 40)
    assert list(payload["rules"]) == ["authors", "insightface", "best"]
    for name_of_rule, rule in payload["rules"].items():
        assert rule["sentence"] == RULES[name_of_rule].sentence
        assert rule["accuracy"]["value"] == pytest.approx(np.mean(rule["accuracies"]))
    table = result.table()
    assert all(f"rule {rule}: {RULES[rule].sentence}" in table for rule in RULES)
    assert "40 of 40 pairs scored (20 same, 20 different), 40 images" in table


def test_a_report_of_the_same_arrays_is_the_result(whole, embedder):
    pairs, same = listed(whole)
    people = [[path.split("/")[0] for path in side] for side in zip(*pairs, strict=True)]
    verified = verify_folds(*sides(embedder, whole, pairs), same, np.arange(40) // 4)
    report = verification_report(verified, people=tuple(people), **QUICK)
    result = evaluate_lfw(embedder, whole, **QUICK).report
    assert report.auc.value == pytest.approx(result.auc.value)
    assert report.accuracy.interval == pytest.approx(result.accuracy.interval)


@pytest.fixture
def stored(whole, embedder, tmp_path):
    """The features of all faces, on disk."""
    return embed_set(whole, tmp_path / "features", embedder).folder


@pytest.mark.parametrize("view", [1, 2])
def test_stored_features_give_what_the_model_gives(whole, embedder, stored, view):
    made = evaluate_lfw(embedder, whole, view=view, all_rules=True, **QUICK)
    assert evaluate_lfw(open_features(stored), whole, view=view, all_rules=True, **QUICK).as_dict() == made.as_dict()
    read = evaluate_lfw(open_features(stored), pairs=whole, view=view, all_rules=True, **QUICK)  # no face is needed
    assert read.as_dict() == made.as_dict()


def test_joined_features_of_several_models_give_what_the_ensemble_gives(whole, embedder, stored, tmp_path):
    rng = np.random.default_rng(0)
    mix = rng.normal(size=(126, 40)).astype(np.float32)
    other = Embedder(lambda faces: embedder._network(faces) @ mix, Card(name="mix"), model="mix")
    embed_set(whole, tmp_path / "other", other)
    joined = join_features([open_features(stored), open_features(tmp_path / "other")])
    made = evaluate_lfw(Ensemble([embedder, other]), whole, all_rules=True, **QUICK)
    read = evaluate_lfw(joined, whole, all_rules=True, **QUICK)
    assert read.model == made.model == "tiles + mix"
    for rule in RULES:
        np.testing.assert_allclose(read.reports[rule].accuracies, made.reports[rule].accuracies)
        np.testing.assert_allclose(read.reports[rule].thresholds, made.reports[rule].thresholds, atol=1e-6)


def test_faces_that_could_not_be_read_when_they_were_embedded_are_missing_for_that_reason(root, embedder, tmp_path):
    (root / name(5, 2, "png")).write_bytes(b"no image")
    (root / name(3, 0, "png")).unlink()
    embed_set(root, tmp_path / "features", embedder, missing="skip")
    features = open_features(tmp_path / "features")
    with pytest.raises(DataFormatError, match="1 of 40 listed images are not there, such as p0003"):
        evaluate_lfw(features, root)
    made = evaluate_lfw(embedder, root, missing="skip", **QUICK)
    assert evaluate_lfw(features, root, missing="skip", **QUICK).as_dict() == made.as_dict()
    pairs = [Pair(name(5, k), name(5, k + 1), True, k % 2) for k in range(3)]
    write_pairs(tmp_path / "few.txt", [*pairs, Pair(name(5, 0), name(6, 0), False, 0)])
    with pytest.raises(UnreadableImage, match=r"p0005_0003\.png: .*; it was left out when the set was embedded"):
        evaluate_lfw(features, pairs=tmp_path / "few.txt")


def test_stored_features_of_another_alignment_or_with_nan_or_of_a_bin_are_refused(root, stored, bin_set, tmp_path):
    features = open_features(stored)
    write_manifest(root, SetManifest(alignment=Alignment(template="matlab"), made_by="a test"))
    with pytest.raises(ContractMismatch, match="aligned to template matlab, crop 112x96; the features are of template"):
        evaluate_lfw(features, root)
    with pytest.raises(ValueError, match="neither a set nor a list is named"):
        evaluate_lfw(features)
    for evaluate in (evaluate_lfw,):
        with pytest.raises(ValueError, match="has no image names to find features by"):
            evaluate(features, bin_set)
    content = bytearray((stored / FEATURES).read_bytes())
    content[-4:] = np.float32(np.nan).tobytes()
    (stored / FEATURES).write_bytes(content)
    with pytest.raises(DataFormatError, match=rf"the feature of {features.paths[-1]} is not finite; embed"):
        evaluate_lfw(open_features(stored), pairs=root)


def test_a_model_wants_faces(whole, embedder):
    with pytest.raises(ValueError, match="a model without faces"):
        evaluate_lfw(embedder, pairs=whole)


def test_an_image_with_itself_and_pairs_without_both_images_are_refused(root, embedder):
    write_pairs(root / "self.txt", [Pair(name(0, 0), name(0, 0), True, 0), Pair(name(0, 0), name(1, 1), False, 1)])
    with pytest.raises(DataFormatError, match=r"p0000_0001\.jpg is listed with itself, as pair 1; wanted two images"):
        evaluate_lfw(embedder, root, root / "self.txt")
    for person in range(PEOPLE):
        for photo in (1, 2):
            (root / name(person, photo, "png")).unlink()
    with pytest.raises(DataFormatError, match=r"no pair has both images, for lack of p0000/p0000_0002\.jpg \(not in"):
        evaluate_lfw(embedder, root, missing="skip")


def test_two_names_for_one_image_are_refused(root, embedder):
    pairs = [Pair(name(0, 0), name(1, 0), False, 0), Pair(name(0, 0, "bmp"), name(2, 0), False, 1)]
    write_pairs(root / "two.txt", pairs)
    with pytest.raises(DataFormatError, match=r"_0001\.png may be p0000/p0000_0001\.jpg and p0000/p0000_0001\.bmp"):
        evaluate_lfw(embedder, root, root / "two.txt")
