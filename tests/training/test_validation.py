import json
import math

import numpy as np
import pytest
import torch

from sphereface import create_model
from sphereface.data.lists.pairs import Pair, read_pairs, write_pairs
from sphereface.errors import ContractMismatch, JobFailed, UnreadableImage
from sphereface.evaluation import verify_folds
from sphereface.faces.images import encode_png
from sphereface.models.inputs import to_input
from sphereface.training.validation import Validation, embed, hardest, hold_out, score, validate


class Album:
    """Faces in memory, each noise around its person's own; `reads` counts."""

    def __init__(self, photos, seed=0):
        rng = np.random.default_rng(seed)
        self.people = [f"person {number}" for number in range(len(photos))]
        self.labels = np.repeat(np.arange(len(photos)), photos)
        self.paths = [f"{label}/{number}.png" for number, label in enumerate(self.labels)]
        means = rng.integers(0, 200, (len(photos), 112, 96, 3))
        self.faces = [(means[label] + rng.integers(0, 56, (112, 96, 3))).astype(np.uint8) for label in self.labels]
        self.bytes = [encode_png(face) for face in self.faces]
        self.reads = 0

    def read(self, index):
        self.reads += 1
        return self.bytes[index]


def small_net(**options):
    return create_model("sphereface4", width=0.0625, features=8, **options)


@pytest.fixture(scope="module")
def album():
    return Album([3] * 20)


def slow_features(net, faces):
    """One face at a time, through the network as it stands in evaluation."""
    rows = []
    with torch.no_grad():
        for face in faces:
            image = torch.from_numpy(face)[None].permute(0, 3, 1, 2)
            rows.append(torch.cat([net(to_input(image)), net(to_input(image.flip(3)))], 1)[0].numpy())
    return np.stack(rows)


# Who is held out


def test_people_are_held_out_entirely_and_only_those_with_two_photos():
    labels = np.repeat(np.arange(30), [1, 2, 3] * 10)
    train, held = hold_out(labels, [f"n{person}" for person in range(30)], people=8, seed=1)
    assert sorted([*train, *held]) == list(range(len(labels)))
    assert set(labels[train]).isdisjoint(labels[held])
    assert len(set(labels[held])) == 8
    assert all(person % 3 for person in labels[held])


def test_the_lot_falls_by_name_and_seed_whatever_the_order_of_the_set():
    names = [f"n{person}" for person in range(40)]
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(40), 2))
    turned = 39 - labels[::-1]

    def held(labels, names, seed):
        return {names[label] for label in labels[hold_out(labels, names, people=10, seed=seed).held]}

    assert held(labels, names, 1) == held(turned, names[::-1], 1)
    assert held(labels, names, 1) != held(labels, names, 2)


@pytest.mark.parametrize(
    ("photos", "people", "way_out"),
    [([2, 2, 2, 2], 1, "at least 2"), ([2, 2, 1, 1, 1], 3, "only 2 have two photos"), ([2, 2, 2], 2, "to learn from")],
)
def test_too_many_or_too_few_people_to_hold_out_are_an_error(photos, people, way_out):
    labels = np.repeat(np.arange(len(photos)), photos)
    with pytest.raises(ValueError, match=way_out):
        hold_out(labels, [str(person) for person in range(len(photos))], people=people)


# Scores


def test_scores_agree_with_a_slow_second_way(album):
    net = small_net(norm="batch").eval()
    validation = Validation.of_people(album, pairs=60, seed=3)
    found = validate(net, validation, fars=(0.1, 0.02, 1e-3), batch=7)
    features = slow_features(net, validation.read(range(len(validation.people))))
    left, right, same, fold = validation.pairs
    cosines = np.array(
        [
            features[a] @ features[b] / np.linalg.norm(features[a]) / np.linalg.norm(features[b])
            for a, b in zip(left, right, strict=True)
        ]
    )
    np.testing.assert_allclose(found.same_scores, cosines[same], atol=1e-5)
    np.testing.assert_allclose(found.different_scores, cosines[~same], atol=1e-5)
    assert found.rule == "authors"
    assert found.accuracy == pytest.approx(verify_folds(features[left], features[right], same, fold).accuracy, abs=0.02)
    wins = (cosines[same][:, None] > cosines[~same]).mean()
    assert found.auc == pytest.approx(wins, abs=2e-3)
    assert list(found.tar) == [0.1, 0.02]  # 60 different pairs cannot show 1e-3
    allowed = np.sort(cosines[~same])[::-1][6]  # of 60 pairs, 6 may pass
    assert found.tar[0.1] == pytest.approx((cosines[same] > allowed + 1e-7).mean(), abs=0.02)
    centre = {person: features[validation.people == person].mean(0) for person in np.unique(validation.people)}
    within = between = 0.0
    for feature, person in zip(features, validation.people, strict=True):
        mean, whole = centre[person], features.mean(0)
        within += 1 - feature @ mean / np.linalg.norm(feature) / np.linalg.norm(mean)
        between += 1 - mean @ whole / np.linalg.norm(mean) / np.linalg.norm(whole)
    assert found.fisher == pytest.approx(within / between, rel=1e-3)


def test_people_who_are_easy_to_tell_apart_score_better_than_chance(album):
    found = validate(small_net(norm="batch"), Validation.of_people(album, pairs=60))
    assert found.accuracy > 0.7
    assert found.auc > 0.8
    assert found.same_scores.mean() > found.different_scores.mean()
    assert found.different_scores.mean() < found.threshold < 1


def test_validation_leaves_modes_buffers_and_random_numbers_as_they_were(album):
    net = small_net(norm="batch").train()
    frozen = next(module for module in net.modules() if isinstance(module, torch.nn.BatchNorm2d)).eval()
    modes = [module.training for module in net.modules()]
    before = {name: value.clone() for name, value in net.state_dict().items()}
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    validate(net, Validation.of_people(album, pairs=20))
    assert [module.training for module in net.modules()] == modes
    assert not frozen.training
    assert net.training
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert (np.random.get_state()[1] == numpy_state).all()


def test_the_mode_comes_back_even_where_validation_fails(album):
    net = small_net().train()
    with torch.no_grad():
        net.fc1.bias.fill_(math.nan)
    with pytest.raises(JobFailed, match="diverged"):
        validate(net, Validation.of_people(album, pairs=20))
    assert net.training


class Wrapped(torch.nn.Module):
    """As DistributedDataParallel holds a network; a forward pass of its own would wait for other processes."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, faces):
        raise AssertionError("only one process validates")


def test_autocast_batch_size_workers_and_wrappers_change_nothing(album):
    net, validation = small_net().eval(), Validation.of_people(album, pairs=20)
    plain = embed(net, validation)
    with torch.autocast("cpu", torch.bfloat16):
        assert np.array_equal(embed(net, validation), plain)
    assert np.array_equal(embed(net, validation, workers=1), plain)
    assert np.array_equal(embed(Wrapped(net), validation), plain)
    np.testing.assert_allclose(embed(net, validation, batch=3), plain, atol=1e-5)


def test_faces_are_read_a_batch_at_a_time():
    album, seen = Album([2] * 10), []
    net = small_net()
    net.register_forward_pre_hook(lambda _, inputs: seen.append((album.reads, len(inputs[0]))))
    validation = Validation.of_people(album, pairs=10)
    album.reads = 0
    embed(net, validation, batch=8)
    assert [size for _, size in seen] == [8, 8, 8, 8, 4, 4]
    assert all(reads <= 8 * (place // 2 + 1) for place, (reads, _) in enumerate(seen))


def test_every_validation_of_a_seed_sees_the_same_pairs(album):
    first, again, other = (Validation.of_people(album, pairs=30, seed=seed) for seed in (1, 1, 2))
    assert first.fingerprint == again.fingerprint != other.fingerprint
    some = Validation.of_people(album, np.flatnonzero(album.labels < 6), pairs=30)
    assert set(some.people) == set(range(6))
    assert {path.split("/")[0] for path in some.faces.paths} == set("012345")


def test_a_network_that_says_the_same_of_everybody_is_no_better_than_chance(album):
    net = small_net()
    with torch.no_grad():
        net.fc1.weight.zero_()
        net.fc1.bias.fill_(1.0)
    found = validate(net, Validation.of_people(album, pairs=50))
    assert found.accuracy <= 0.5
    assert found.auc == pytest.approx(0.5)
    assert found.fisher is None or found.fisher >= 0


def test_numbers_are_ready_for_json(album):
    found = validate(small_net(), Validation.of_people(album, pairs=20)).as_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert list(found["tar"]) == ["0.1"]
    assert (found["same"], found["different"]) == (20, 20)


def test_a_face_that_breaks_during_the_run_is_named():
    album = Album([2] * 6)
    validation = Validation.of_people(album, pairs=6)
    broken = validation.faces.paths[3]
    album.bytes[album.paths.index(broken)] = b"no image"
    for workers in (0, 1):
        with pytest.raises(UnreadableImage, match=f"{broken}: .*restore it and resume"):
            embed(small_net(), validation, workers=workers)


def test_a_face_that_cannot_be_read_is_an_error_or_takes_its_pairs_along():
    album = Album([3] * 8)
    whole = Validation.of_people(album, pairs=20)
    album.bytes[4] = album.bytes[4][:500]
    with pytest.raises(UnreadableImage, match=r"1/4\.png: .*1 of the \d+ images .*missing=.skip"):
        Validation.of_people(album, pairs=20)

    def named(validation):
        left, right, same, fold = validation.pairs
        paths = validation.faces.paths
        return {(paths[a], paths[b], s, f) for a, b, s, f in zip(left, right, same, fold, strict=True)}

    rest = Validation.of_people(album, pairs=20, missing="skip")
    assert [image.path for image in rest.skipped] == ["1/4.png"]
    assert named(rest) == {pair for pair in named(whole) if "1/4.png" not in pair} != named(whole)
    assert len(embed(small_net(), rest)) == len(rest.people) == len(rest.faces.paths)
    with pytest.raises(ValueError, match="'fail' or 'skip'"):
        Validation.of_people(album, pairs=20, missing="ignore")


def test_the_hardest_pairs_are_those_that_score_most_wrongly(album):
    validation = Validation.of_people(album, pairs=30)
    found = validate(small_net(), validation)
    same, different = hardest(validation, found, count=2)
    assert same.shape == different.shape == (4, 112, 96, 3)
    place = np.flatnonzero(validation.pairs.same)[found.same_scores.argmin()]
    np.testing.assert_array_equal(same[0], validation.read([validation.pairs.left[place]])[0])
    np.testing.assert_array_equal(same[1], validation.read([validation.pairs.right[place]])[0])
    place = np.flatnonzero(~validation.pairs.same)[found.different_scores.argmax()]
    np.testing.assert_array_equal(different[1], validation.read([validation.pairs.right[place]])[0])


# From a list of pairs


@pytest.fixture
def listed(album, tmp_path):
    """Faces below a root as LFW names them, and its list: two folds of two same and two different pairs."""
    root = tmp_path / "aligned"
    for name, label in (("ann", 0), ("bob", 1), ("cy", 2), ("dee", 3)):
        (root / name).mkdir(parents=True)
        for number in range(2):
            (root / name / f"{name}_{number + 1:04d}.png").write_bytes(album.bytes[3 * label + number])
    (tmp_path / "pairs.txt").write_text(
        "2\t2\nann\t1\t2\nbob\t1\t2\nann\t1\tbob\t1\nann\t2\tbob\t2\n"
        "cy\t1\t2\ndee\t1\t2\ncy\t1\tdee\t1\ncy\t2\tdee\t2\n"
    )
    return tmp_path / "pairs.txt", root


def test_a_list_of_pairs_is_validated_in_its_own_folds_and_folders_are_people(listed, album):
    path, root = listed
    validation = Validation.of_pairs(read_pairs(path, suffix=".png"), root)
    net = small_net()
    found = validate(net, validation)
    assert found.rule == "authors"
    features = slow_features(net.eval(), [album.faces[row] for row in (0, 1, 3, 4, 6, 7, 9, 10)])
    left, right, same, fold = [0, 2, 0, 1, 4, 6, 4, 5], [1, 3, 2, 3, 5, 7, 6, 7], [1, 1, 0, 0] * 2, [0] * 4 + [1] * 4
    expected = verify_folds(features[left], features[right], np.array(same, bool), fold)
    assert found.accuracy == expected.accuracy
    assert validation.people.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert found.fisher is not None


def test_missing_images_of_a_list_are_counted_and_named_at_once(listed):
    path, root = listed
    pairs = read_pairs(path, suffix=".png")
    (root / "bob" / "bob_0002.png").unlink()
    (root / "cy" / "cy_0001.png").write_bytes(b"no image")
    with pytest.raises(UnreadableImage, match=r"bob/bob_0002\.png: .*2 of the 8 images .*cy/cy_0001\.png"):
        Validation.of_pairs(pairs, root)
    with pytest.raises(UnreadableImage, match=r"8 of the 8 images .*check that folder"):
        Validation.of_pairs(pairs, root / "elsewhere")


def test_photos_that_are_not_aligned_are_an_error_that_names_align(listed, album):
    path, root = listed
    (root / "bob" / "bob_0002.png").write_bytes(encode_png(np.zeros((250, 250, 3), np.uint8)))
    with pytest.raises(ContractMismatch, match="align"):
        Validation.of_pairs(read_pairs(path, suffix=".png"), root)


def test_a_list_without_folds_says_where_its_threshold_comes_from(listed):
    path, root = listed
    pairs = [Pair(pair.left, pair.right, pair.same) for pair in read_pairs(path, suffix=".png")]
    write_pairs(path.with_name("plain.txt"), pairs)
    validation = Validation.of_pairs(read_pairs(path.with_name("plain.txt")), root)
    found = validate(small_net(), validation)
    assert found.rule == "best"
    scores = [*found.same_scores, *found.different_scores]
    best = max(
        (sum(found.same_scores > t) + sum(found.different_scores < t)) / len(scores) for t in np.linspace(-1, 1, 20_001)
    )
    assert found.accuracy == pytest.approx(best)


def test_a_list_whose_folders_are_no_people_has_no_fisher_score(listed):
    path, root = listed
    pairs = [*read_pairs(path, suffix=".png"), Pair("ann/ann_0001.png", "bob/bob_0001.png", True, 1)]
    validation = Validation.of_pairs(pairs, root)
    assert validation.people is None
    assert validate(small_net(), validation).fisher is None


def test_a_list_of_one_kind_of_pairs_is_refused(listed):
    path, root = listed
    for some in (True, False):
        with pytest.raises(ValueError, match="wanted both kinds"):
            Validation.of_pairs([pair for pair in read_pairs(path, suffix=".png") if pair.same == some], root)
    with pytest.raises(ValueError, match="0 of 0 pairs"):
        Validation.of_pairs([], root)


def test_folds_whose_rest_is_of_one_kind_are_not_held_out(listed):
    path, root = listed
    pairs = [Pair(pair.left, pair.right, pair.same, int(pair.same)) for pair in read_pairs(path, suffix=".png")]
    validation = Validation.of_pairs(pairs, root)
    assert not validation.has_folds
    features = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    assert score(features, validation).rule == "best"
