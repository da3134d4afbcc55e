"""YouTube Faces from folders of frames to numbers, with a small ONNX embedder and synthetic videos."""

import json
import shutil

import cv2
import numpy as np
import pytest

from sphereface.contract import Alignment, Card
from sphereface.data.lists.videos import VideoPair, write_video_pairs
from sphereface.data.manifest import SetManifest, write_manifest
from sphereface.data.synthetic.people import SyntheticPeople
from sphereface.data.synthetic.shapes import write_shape
from sphereface.embed.embedder import Embedder
from sphereface.embed.ensemble import join_features
from sphereface.embed.run import embed_set
from sphereface.embed.store import FEATURES as ROWS
from sphereface.embed.store import open_features
from sphereface.errors import ContractMismatch, DataFormatError, JobFailed, UnreadableImage
from sphereface.evaluation import RULES, verify_folds
from sphereface.evaluation.protocols.ytf import evaluate_ytf, evenly, in_time
from sphereface.evaluation.rules.videos import verify_scores
from tests.evaluation import transcriptions
from tests.evaluation.networks import tiles

PEOPLE, FRAMES = 20, 5
QUICK = {"rounds": 20}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    root = tmp_path_factory.mktemp("ytf") / "frames"
    write_shape(SyntheticPeople(seed=2), root, PEOPLE, FRAMES, shape="ytf")
    return root


@pytest.fixture
def root(whole, tmp_path):
    """A copy that a test may spoil."""
    return shutil.copytree(whole, tmp_path / "frames")


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    return tiles(tmp_path_factory.mktemp("model") / "tiles.onnx")


def listed(root, place="splits.txt"):
    """The list, read once more: videos, truth and split of each pair."""
    rows = [line.split(", ") for line in (root / place).read_text().splitlines()[1:]]
    return (
        [row[2:4] for row in rows],
        np.array([row[4] == "1" for row in rows]),
        np.array([int(row[0]) for row in rows]),
    )


def features_of(embedder, root, video, numbers=range(1, FRAMES + 1)):
    """Features of some frames of a video, straight from their files."""
    number = video.split("/")[1]
    paths = [root / video / f"{number}.{frame}.png" for frame in numbers]
    faces = [cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB) for path in paths]
    return embedder.embed(np.stack(faces)).astype(float)


def test_a_video_is_the_mean_feature_of_its_frames_and_the_authors_rule_judges_it(whole, embedder):
    result = evaluate_ytf(embedder, whole, **QUICK)
    pairs, same, split = listed(whole)
    mean = {video: features_of(embedder, whole, video).mean(0) for pair in pairs for video in pair}
    left, right = (np.stack([mean[pair[side]] for pair in pairs]) for side in (0, 1))
    accuracies, thresholds = transcriptions.authors(left, right, np.where(same, 1, -1), split)
    assert len(result.report.accuracies) == 10
    np.testing.assert_allclose(result.report.accuracies, accuracies)
    np.testing.assert_allclose(result.report.thresholds, thresholds, atol=1e-9)
    assert (result.listed, result.scored, result.videos) == (len(pairs), len(pairs), len(mean))
    assert result.embedded == len(mean) * FRAMES
    assert (result.missing, result.unreadable, result.notes) == ({}, {}, ())
    assert f"bootstrap over {PEOPLE} people" in result.report.intervals


@pytest.mark.parametrize(("policy", "pool"), [("mean-score", np.mean), ("max-score", np.max)])
def test_scores_of_frames_are_pooled_over_every_pair_of_them(whole, embedder, policy, pool):
    result = evaluate_ytf(embedder, whole, policy=policy, all_rules=True, **QUICK)
    pairs, same, split = listed(whole)

    def pooled(features):
        def cosine(a, b):
            return sum(x * y for x, y in zip(a, b, strict=True)) / np.sqrt(sum(a * a) * sum(b * b))

        return np.array([pool([[cosine(x, y) for y in features[b]] for x in features[a]]) for a, b in pairs[:4]])

    features = {video: features_of(embedder, whole, video) for pair in pairs for video in pair}
    units = {video: f / np.linalg.norm(f, axis=1, keepdims=True) for video, f in features.items()}
    scores = np.array([pool(units[a] @ units[b].T) for a, b in pairs])
    np.testing.assert_allclose(scores[:4], pooled(features))  # the quick way is the slow way
    summed = {video: f[:, :126] + f[:, 126:] for video, f in features.items()}
    units = {video: f / np.linalg.norm(f, axis=1, keepdims=True) for video, f in summed.items()}
    of_sums = np.array([pool(units[a] @ units[b].T) for a, b in pairs])
    for rule in RULES:
        expected = verify_scores(of_sums if rule == "insightface" else scores, same, split, rule=rule)
        np.testing.assert_allclose(result.reports[rule].accuracies, expected.accuracies)
        np.testing.assert_allclose(result.reports[rule].thresholds, expected.thresholds, atol=1e-6)
    assert result.features["insightface"] == "image and mirror image, summed"
    assert "no mean is subtracted" in result.sentence


def test_thresholds_on_scores_come_from_the_other_splits():
    rng = np.random.default_rng(0)
    scores, same, split = np.round(rng.uniform(-1, 1, 60), 2), rng.uniform(size=60) < 0.5, np.repeat(range(1, 7), 10)
    found = verify_scores(scores, same, split)
    for number in range(6):
        rest, test = split != number + 1, split == number + 1
        grid = np.arange(-10_000, 10_001) / 10_000
        above, below = scores[rest, None] > grid, scores[rest, None] < grid
        right = np.where(same[rest, None], above, below).sum(0)
        threshold = grid[right == right.max()].mean()
        assert found.thresholds[number] == pytest.approx(threshold)
        wanted = np.where(same[test], scores[test] > threshold, scores[test] < threshold)
        assert found.accuracies[number] == pytest.approx(wanted.mean())


@pytest.mark.parametrize("rule", ["insightface", "best"])
def test_rules_without_a_mean_say_of_scores_what_they_say_of_features(rule):
    rng = np.random.default_rng(1)
    angle, same, split = rng.uniform(0, np.pi, 40), rng.uniform(size=40) < 0.5, np.arange(40) % 4
    left = np.tile([1.0, 0.0], (40, 1))
    right = np.column_stack([np.cos(angle), np.sin(angle)])
    by_features, by_scores = verify_folds(left, right, same, split, rule=rule), verify_scores(
        np.cos(angle), same, split, rule=rule
    )  # fmt: skip
    np.testing.assert_allclose(by_scores.accuracies, by_features.accuracies)
    np.testing.assert_allclose(by_scores.thresholds, by_features.thresholds)
    np.testing.assert_allclose(by_scores.scores, by_features.scores)


def test_wrong_shapes_and_a_single_split_of_scores_are_refused():
    with pytest.raises(ValueError, match=r"shapes \(2,\), \(3,\), \(2,\)"):
        verify_scores([0, 1], [True, False, True], [0, 1])
    with pytest.raises(ValueError, match="unknown rule 'mine'"):
        verify_scores([0, 1], [True, False], [0, 1], rule="mine")
    with pytest.raises(ValueError, match="1 fold; wanted at least 2"):
        verify_scores([0, 1], [True, False], [3, 3])
    with pytest.raises(ValueError, match="1 of 2 cosines are not finite"):
        verify_scores([0, np.nan], [True, False], [0, 1])


def test_frames_are_evenly_spaced_and_never_more_than_asked_for():
    assert evenly([5, 6, 7], 3) == evenly([5, 6, 7], 100) == [5, 6, 7]
    assert evenly(range(10), 1) == [5]
    assert evenly(range(10), 5) == [1, 3, 5, 7, 9]
    for count in (101, 150, 6_070):
        chosen = np.array(evenly(range(count), 100))
        assert len(chosen) == 100
        gaps = np.diff(chosen)
        assert gaps.min() >= 1
        assert gaps.max() - gaps.min() <= 1
        assert abs(chosen[0] - (count - 1 - chosen[-1])) <= 1  # as much is left out before as behind


def test_frames_are_taken_in_the_order_of_time_not_of_their_names(whole, root, embedder):
    assert sorted(["v/0.100.jpg", "v/0.99.jpg", "v/0.9.jpg"], key=in_time) == ["v/0.9.jpg", "v/0.99.jpg", "v/0.100.jpg"]
    for path in list(root.glob("*/*/*.png")):  # frames 1 ... 5 become 8 ... 12
        video, number = path.stem.split(".")
        path.rename(path.with_name(f"{video}.{int(number) + 7}.png"))
    result = evaluate_ytf(embedder, root, frames=2, **QUICK)
    pairs, same, split = listed(whole)
    mean = {video: features_of(embedder, whole, video, (2, 4)).mean(0) for pair in pairs for video in pair}
    left, right = (np.stack([mean[pair[side]] for pair in pairs]) for side in (0, 1))
    expected = verify_folds(left, right, same, split)
    np.testing.assert_allclose(result.report.thresholds, expected.thresholds, atol=1e-9)
    assert result.embedded == 2 * result.videos
    assert "up to 2 evenly spaced frames" in result.sentence


def test_each_video_is_embedded_once_and_alone(whole, embedder):
    seen, heard = [], []

    class Counting:
        card = embedder.card

        def embed(self, faces):
            seen.append(len(faces))
            return embedder.embed(faces)

    result = evaluate_ytf(Counting(), whole, frames=3, progress=lambda *done: heard.append(done), **QUICK)
    assert seen == [3] * result.videos
    assert heard[-1] == (3 * result.videos, 3 * result.videos)


def test_the_list_may_lie_elsewhere_and_is_named(whole, embedder, tmp_path):
    shutil.copy(whole / "splits.txt", tmp_path / "splits.txt")
    expected = evaluate_ytf(embedder, whole, frames=2, **QUICK).report
    assert evaluate_ytf(embedder, whole, tmp_path, frames=2, **QUICK).report == expected
    with pytest.raises(DataFormatError, match=r"none\.txt: no such list"):
        evaluate_ytf(embedder, whole, tmp_path / "none.txt")


def test_a_corrected_list_is_followed_in_the_pair_that_it_corrects(whole, embedder, tmp_path):
    lines = (whole / "splits.txt").read_text().splitlines()
    wrong = next(number for number, line in enumerate(lines) if line.endswith(", 1"))
    lines[wrong] = lines[wrong][:-1] + "0"  # the published list calls some pairs different that are the same
    (tmp_path / "splits_corrected.txt").write_text("\n".join(lines) + "\n")
    corrected = evaluate_ytf(embedder, whole, tmp_path / "splits_corrected.txt", **QUICK)
    pairs, same, split = listed(tmp_path, "splits_corrected.txt")
    assert (same != listed(whole)[1]).tolist() == [number + 1 == wrong for number in range(len(same))]
    mean = {video: features_of(embedder, whole, video).mean(0) for pair in pairs for video in pair}
    left, right = (np.stack([mean[pair[side]] for pair in pairs]) for side in (0, 1))
    accuracies, thresholds = transcriptions.authors(left, right, np.where(same, 1, -1), split)
    np.testing.assert_allclose(corrected.report.accuracies, accuracies)
    np.testing.assert_allclose(corrected.report.thresholds, thresholds, atol=1e-9)
    assert corrected.report.accuracies != evaluate_ytf(embedder, whole, **QUICK).report.accuracies
    assert corrected.data == "frames (splits_corrected.txt)"


def test_a_missing_video_is_an_error_that_says_how_many_pairs_it_costs(root, embedder):
    pairs, _, _ = listed(root)
    video = pairs[0][0]
    shutil.rmtree(root / video)
    lost = sum(video in pair for pair in pairs)
    with pytest.raises(
        DataFormatError, match=rf"1 of \d+ listed videos are not there, such as {video}, which {lost} of"
    ):
        evaluate_ytf(embedder, root)


@pytest.mark.parametrize("policy", ["mean-feature", "mean-score", "max-score"])
def test_missing_videos_and_unreadable_frames_are_left_out_counted_and_named(root, embedder, policy):
    pairs, same, split = listed(root)
    gone, broken, (scarred, _) = pairs[0][0], pairs[20][1], pairs[40]
    assert len({gone, broken, scarred}) == 3
    shutil.rmtree(root / gone)
    for path in (root / broken).iterdir():
        path.write_bytes(b"no image")
    spoilt = f"{scarred}/{scarred.split('/')[1]}.3.png"
    (root / spoilt).write_bytes(b"no image")
    result = evaluate_ytf(embedder, root, policy=policy, missing="skip", **QUICK)
    kept = np.array([gone not in pair and broken not in pair for pair in pairs])
    assert (result.listed, result.scored) == (len(pairs), kept.sum())
    assert list(result.missing) == [gone, broken]
    assert result.missing[gone] == "not in the set"
    assert "none of the listed images can be used" in result.missing[broken]
    assert list(result.unreadable) == [spoilt]
    assert result.embedded == result.videos * FRAMES - 1
    assert f"left out: {len(pairs) - kept.sum()} pairs, for lack of {gone} (not in the set)" in result.table()
    assert f"left out: 1 frames, {spoilt}" in result.table()
    if policy == "mean-feature":
        numbers = {video: range(1, FRAMES + 1) for pair in pairs for video in pair if video not in (gone, broken)}
        numbers[scarred] = [number for number in range(1, FRAMES + 1) if number != 3]
        mean = {video: features_of(embedder, root, video, some).mean(0) for video, some in numbers.items()}
        left, right = (np.stack([mean[pairs[k][side]] for k in np.flatnonzero(kept)]) for side in (0, 1))
        expected = verify_folds(left, right, same[kept], split[kept])
        np.testing.assert_allclose(result.report.accuracies, expected.accuracies)


def test_an_unreadable_frame_is_an_error_unless_it_may_be_skipped(root, embedder):
    video = listed(root)[0][0][0]
    next(iter((root / video).iterdir())).write_bytes(b"no image")
    with pytest.raises(UnreadableImage, match=video):
        evaluate_ytf(embedder, root)


def test_a_split_that_is_gone_altogether_is_noted_and_nothing_left_is_refused(root, embedder):
    for person in (0, 1):
        shutil.rmtree(root / f"p{person:04d}")
    result = evaluate_ytf(embedder, root, missing="skip", frames=2, **QUICK)
    assert "1 of the splits have no pair left" in result.notes
    for person in range(2, PEOPLE):
        for video in range(1, 3):
            shutil.rmtree(root / f"p{person:04d}" / str(video))
    write_video_pairs(root / "splits.txt", [VideoPair(k, f"p{k:04d}/0", f"p{k:04d}/1", True) for k in range(2, 6)])
    with pytest.raises(DataFormatError, match=r"splits\.txt: no pair has both videos"):
        evaluate_ytf(embedder, root, missing="skip")


def test_videos_listed_twice_with_themselves_or_in_one_split_are_refused(whole, embedder, tmp_path):
    a, b, c = "p0000/0", "p0000/1", "p0001/0"
    for pairs, message in (
        ([VideoPair(1, a, b, True), VideoPair(2, b, a, False)], "p0000/1 and p0000/0 are listed twice"),
        ([VideoPair(1, a, a, True), VideoPair(2, b, c, False)], "p0000/0 is listed with itself"),
        ([VideoPair(1, a, b, True), VideoPair(1, b, c, False)], "one split, so that none can be held out"),
    ):
        write_video_pairs(tmp_path / "splits.txt", pairs)
        with pytest.raises(ValueError, match=message):
            evaluate_ytf(embedder, whole, tmp_path)


def test_faces_made_for_another_model_are_refused(root, embedder):
    write_manifest(root, SetManifest(alignment=Alignment(template="matlab"), made_by="a test"))
    with pytest.raises(ContractMismatch, match="aligned to template matlab"):
        evaluate_ytf(embedder, root)


def test_features_that_are_not_numbers_are_refused_by_name(whole):
    broken = Embedder(lambda inputs: np.full((len(inputs), 3), np.nan, np.float32), Card())
    with pytest.raises(JobFailed, match=r"not finite, such as that of p000[01]/"):
        evaluate_ytf(broken, whole)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": "median"}, "unknown policy 'median'; choose one of mean-feature, mean-score, max-score"),
        ({"frames": 0}, "frames is 0; wanted at least 1"),
        ({"scratch": "nowhere"}, "nowhere: no such folder"),
        ({"rule": "mine"}, "unknown rule 'mine'"),
        ({"missing": "centre"}, "missing is 'centre'"),
    ],
)
def test_unknown_choices_are_refused_before_anything_is_embedded(whole, options, message):
    with pytest.raises(ValueError, match=message):
        evaluate_ytf(Embedder(None, Card()), whole, **options)


def test_the_result_says_in_one_sentence_which_frames_and_which_rule(whole, embedder):
    result = evaluate_ytf(embedder, whole, all_rules=True, **QUICK)
    payload = json.loads(json.dumps(result.as_dict()))
    assert payload["sentence"] == result.sentence
    assert "\n" not in result.sentence
    assert result.sentence.startswith("a video is the mean of the features")
    assert "up to 100 evenly spaced frames; mean feature and threshold come from the pairs" in result.sentence
    assert payload["rules"]["best"]["accuracy"]["value"] == result.reports["best"].accuracy.value
    assert (payload["policy"], payload["frames"], payload["pairs_scored"]) == ("mean-feature", 100, result.scored)
    assert "frames: a video is the mean" in result.table()
    assert f"{result.videos:,} videos, {result.embedded:,} frames" in result.table()


@pytest.fixture(scope="module")
def stored(whole, embedder, tmp_path_factory):
    """The features of all frames, on disk."""
    return embed_set(whole, tmp_path_factory.mktemp("stored") / "features", embedder).folder


@pytest.mark.parametrize("policy", ["mean-feature", "mean-score", "max-score"])
def test_stored_features_give_what_the_model_gives(whole, embedder, stored, policy):
    asked = {"policy": policy, "frames": 3, "all_rules": True, **QUICK}
    made = evaluate_ytf(embedder, whole, **asked)
    assert evaluate_ytf(open_features(stored), whole, **asked).as_dict() == made.as_dict()
    assert evaluate_ytf(open_features(stored), splits=whole, **asked).as_dict() == made.as_dict()  # no frame is needed


def test_one_model_joined_with_itself_scores_as_that_model_at_length_one(whole, embedder, stored):
    joined = join_features([open_features(stored), open_features(stored)])
    twice = evaluate_ytf(joined, whole, policy="mean-score", **QUICK)
    once = evaluate_ytf(embedder, whole, policy="mean-score", **QUICK)
    np.testing.assert_allclose(twice.report.thresholds, once.report.thresholds, atol=2e-4)  # a step of the grid
    assert twice.report.accuracies == pytest.approx(once.report.accuracies)
    assert twice.model == "tiles + tiles"


def test_frames_that_could_not_be_read_when_they_were_embedded_are_left_out_alike(root, embedder, tmp_path):
    pairs, _, _ = listed(root)
    broken, scarred = pairs[20][1], pairs[40][0]
    for path in (root / broken).iterdir():
        path.write_bytes(b"no image")
    (root / scarred / f"{scarred.split('/')[1]}.3.png").write_bytes(b"no image")
    embed_set(root, tmp_path / "features", embedder, missing="skip")
    features = open_features(tmp_path / "features")
    made = evaluate_ytf(embedder, root, frames=3, missing="skip", **QUICK)
    read = evaluate_ytf(features, root, frames=3, missing="skip", **QUICK)
    assert read.as_dict() == made.as_dict()
    assert list(read.missing) == [broken]
    assert len(read.unreadable) == 1
    with pytest.raises(UnreadableImage, match="it was left out when the set was embedded"):
        evaluate_ytf(features, root)


def test_a_stored_feature_that_is_not_finite_is_an_error_also_where_much_may_be_skipped(whole, stored, tmp_path):
    shutil.copytree(stored, tmp_path / "features")
    content = bytearray((tmp_path / "features" / ROWS).read_bytes())
    content[-4:] = np.float32(np.nan).tobytes()
    (tmp_path / "features" / ROWS).write_bytes(content)
    features = open_features(tmp_path / "features")
    write_video_pairs(
        tmp_path / "splits.txt",
        [
            VideoPair(1, "p0000/0", "p0000/1", True),
            VideoPair(2, features.paths[-1].rpartition("/")[0], "p0000/0", False),
        ],
    )
    with pytest.raises(DataFormatError, match=rf"the feature of {features.paths[-1]} is not finite"):
        evaluate_ytf(features, splits=tmp_path, missing="skip")


def test_neither_a_set_nor_a_list_is_refused(stored):
    with pytest.raises(ValueError, match="neither a set nor a list is named"):
        evaluate_ytf(open_features(stored))
