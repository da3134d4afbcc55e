"""A student that learns a teacher's features: targets, loss, resumption, settings that do not fit."""

import json

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from sphereface import Embedder, create_model
from sphereface.contract import Card, read_card
from sphereface.data.formats.sets import open_set
from sphereface.data.synthetic.people import SyntheticPeople
from sphereface.errors import ContractMismatch, UserError
from sphereface.loading import prepare
from sphereface.loading.augment import Augmentation, Views
from sphereface.losses import create_loss
from sphereface.models import save_model
from sphereface.training.config import TeachingConfig
from sphereface.training.learner import build_learner
from sphereface.training.run import train
from sphereface.training.setting import Place
from sphereface.training.stopping import Stop
from sphereface.training.teaching import Targets, similarity_loss, taught_loss
from tests.training.conftest import TINY, run, same, weights

AUGMENTATION = Augmentation(
    shift=2, scale=0.05, rotation=5, colour=0.2, grey=0.2, blur=0.3, low_resolution=0.3, jpeg=0.3
)
TAUGHT = TINY.changed(teaching={"views": 2}, augmentation=AUGMENTATION, ema=0.9)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    path = tmp_path_factory.mktemp("teacher") / "teacher.safetensors"
    torch.manual_seed(3)
    save_model(create_model("sphereface4", features=16, width=0.1).eval(), path, Card(name="teacher"))
    return path


@pytest.fixture(scope="module")
def unlabelled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unlabelled") / "unlabelled"
    SyntheticPeople(seed=2).write(folder, 10, 2)
    return folder


@pytest.fixture(scope="module")
def taught(faces, teacher, unlabelled, tmp_path_factory):
    out = tmp_path_factory.mktemp("taught") / "run"
    assert run(faces, out, TAUGHT, teacher=teacher, unlabelled=(unlabelled,)).outcome == "finished"
    return out


def test_a_target_is_the_normalised_sum_of_the_features_of_a_view_and_its_mirror_image(faces, teacher, tmp_path):
    ready, views = prepare(open_set(faces)), Views(AUGMENTATION, seed=5, count=3)
    targets = Targets(tmp_path, teacher, ready, views).of(np.array([7, 7, 3]), np.array([0, 2, 1]))
    embedder, face = Embedder.load(teacher, feature_rule="image"), np.empty((112, 96, 3), np.uint8)
    for target, row, view in zip(targets, (7, 7, 3), (0, 2, 1), strict=True):
        ready.read_into(row, face)
        seen = views.view(face, row, view)
        wanted = embedder.embed(np.stack([seen, seen[:, ::-1]])).sum(0)
        assert_close(target, torch.from_numpy(wanted / np.linalg.norm(wanted)), atol=2e-3, rtol=0)
    assert not torch.allclose(targets[0], targets[1], atol=1e-3)


def test_an_interrupted_fill_embeds_the_missing_rows_only(faces, teacher, tmp_path):
    ready, views = prepare(open_set(faces)), Views(AUGMENTATION, seed=5, count=3)
    first = Targets(tmp_path, teacher, ready, views)
    whole = np.array(first.of_view(1))
    path = first.path(1)
    stored = np.lib.format.open_memmap(path, mode="r+")
    stored[4:], stored[:4] = np.nan, 1.0  # the first rows are done: they must not be computed again
    stored.flush()
    again = np.array(Targets(tmp_path, teacher, ready, views).of_view(1))
    assert (again[:4] == 1).all()
    assert np.array_equal(again[4:], whole[4:])


def test_targets_of_another_teacher_other_faces_or_other_views_are_never_mixed(faces, unlabelled, teacher, tmp_path):
    other = tmp_path / "other.safetensors"
    save_model(create_model("sphereface4", features=16, width=0.1).eval(), other, Card(name="other"))
    ready, views = prepare(open_set(faces)), Views(AUGMENTATION, seed=5, count=3)
    files = {
        each.path(1)
        for each in (
            Targets(tmp_path, teacher, ready, views),
            Targets(tmp_path, other, ready, views),
            Targets(tmp_path, teacher, prepare(open_set(unlabelled)), views),
            Targets(tmp_path, teacher, ready, Views(AUGMENTATION, seed=6, count=3)),
            Targets(tmp_path, teacher, ready, Views(Augmentation(shift=1), seed=5, count=3)),
        )
    }
    assert len(files) == 5


def test_runs_that_differ_in_what_the_teacher_never_sees_share_its_targets(faces, teacher, tmp_path):
    ready = prepare(open_set(faces))
    mine = Targets(tmp_path, teacher, ready, Views(Augmentation(shift=1), seed=5, count=3))
    more = Targets(tmp_path, teacher, ready, Views(Augmentation(shift=1, jpeg=0.5), seed=5, count=8))
    assert mine.path(1) == more.path(1)
    assert mine.path(0) == Targets(tmp_path, teacher, ready, Views(AUGMENTATION, seed=6, count=3)).path(0)


def test_runs_that_leave_out_other_people_share_targets_and_embed_what_is_missing(faces, teacher, tmp_path):
    whole, views = open_set(faces), Views(AUGMENTATION, seed=5, count=3)
    some, everybody = prepare(whole, exclude={whole.people[0], whole.people[5]}), prepare(whole)
    assert 0 < len(some) < len(everybody)
    first, second = (Targets(tmp_path, teacher, ready, views) for ready in (some, everybody))
    assert first.path(1) == second.path(1)
    early = first.of(np.arange(len(some)), np.ones(len(some), np.int64))
    assert np.isnan(np.load(first.path(1))[:, 0]).sum() == len(everybody) - len(some)
    late = second.of(np.arange(len(everybody)), np.ones(len(everybody), np.int64))
    by_path = dict(zip(everybody.images.paths, late, strict=True))
    assert all(torch.equal(target, by_path[path]) for path, target in zip(some.images.paths, early, strict=True))
    fresh = Targets(tmp_path / "fresh", teacher, everybody, views).of(np.arange(3), np.ones(3, np.int64))
    assert_close(late[:3], fresh, atol=2e-3, rtol=0)  # faces that the first run had left out are among them


def test_the_similarity_loss_is_the_mean_over_pairs_of_the_squared_difference_of_cosines():
    unit, target = (torch.nn.functional.normalize(torch.randn(5, 4)) for _ in range(2))
    pairs = [(i, j) for i in range(5) for j in range(5) if i != j]
    wanted = sum((float(unit[i] @ unit[j]) - float(target[i] @ target[j])) ** 2 for i, j in pairs) / len(pairs)
    assert float(similarity_loss(unit, target)) == pytest.approx(wanted, rel=1e-5)


def test_faces_without_a_label_add_nothing_to_the_classification_loss():
    loss = create_loss("softmax", 4, 3)
    features, labels = torch.randn(6, 4), torch.tensor([0, 3, 1, 3, 2, 3])  # 3: no label
    targets = torch.nn.functional.normalize(torch.randn(6, 4))
    rule = TeachingConfig(similarity=0.0, labels=0.5)
    value, agreement = taught_loss(loss, features, labels, targets, rule)
    cosine = torch.nn.functional.cosine_similarity(features, targets).mean()
    wanted = 1 - cosine + 0.5 * loss(features[[0, 2, 4]], torch.tensor([0, 1, 2]))
    assert_close(value, wanted)
    assert_close(agreement, cosine)
    nameless, _ = taught_loss(loss, features, torch.full((6,), 3), targets, rule)
    assert_close(nameless, 1 - cosine)


def test_a_student_comes_closer_to_its_teacher(faces, teacher, tmp_path):
    config = TINY.changed(teaching={"views": 1, "labels": 0.0}, lr=0.1, steps=60, milestones=(), norm="batch")
    run(faces, tmp_path / "run", config, teacher=teacher)
    entries = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    agreement = [entry["agreement"] for entry in entries if "agreement" in entry]
    assert agreement[-1] > max(0.5, agreement[0] + 0.1)


def test_a_taught_model_takes_the_image_alone_and_the_report_shows_the_agreement(taught):
    assert read_card(taught / "model.safetensors").feature_rule == "image"
    assert "<th>agreement</th>" in (taught / "report.html").read_text()


def test_a_taught_run_that_was_stopped_resumes_bit_for_bit(taught, faces, teacher, unlabelled, tmp_path):
    place = Place(faces, tmp_path / "run", workers=0, device="cpu", teacher=teacher, unlabelled=(unlabelled,))
    assert train(TAUGHT, place, say=lambda _: None, stop=Stop(asked=True)).outcome == "interrupted"
    run(faces, tmp_path / "run", TAUGHT, teacher=teacher, unlabelled=(unlabelled,), resume=True)
    assert same(weights(tmp_path / "run"), weights(taught))


def test_fixed_class_weights_stay_the_teachers_class_means(faces, teacher, tmp_path):
    config = TAUGHT.changed(teaching={"views": 1, "class_weights": "teacher"})
    ready = prepare(open_set(faces))
    means = Targets(tmp_path, teacher, ready, Views(config.augmentation, config.seed, 1)).class_means(8)
    features = Embedder.load(teacher, feature_rule="sum")
    third = np.stack([np.empty((112, 96, 3), np.uint8) for _ in np.flatnonzero(ready.labels == 3)])
    for row, face in zip(np.flatnonzero(ready.labels == 3), third, strict=True):
        ready.read_into(int(row), face)
    units = features.embed(third)
    mean = (units / np.linalg.norm(units, axis=1, keepdims=True)).sum(0)
    assert_close(means[3], torch.from_numpy(mean / np.linalg.norm(mean)), atol=2e-3, rtol=0)
    learner = build_learner(config, 8, torch.device("cpu"), class_means=means)
    assert torch.equal(learner.loss.weight, means)
    assert not learner.loss.weight.requires_grad
    done = run(faces, tmp_path / "run", config, teacher=teacher)
    assert done.outcome == "finished"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"unlabelled": True}, "no teacher"),
        ({"teaching": True}, "no teacher"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(options, error, faces, unlabelled, tmp_path):
    config = TAUGHT if options.get("teaching") else TINY
    with pytest.raises(UserError, match=error):
        run(faces, tmp_path / "run", config, unlabelled=(unlabelled,) if options.get("unlabelled") else ())
    assert not (tmp_path / "run").exists()


def test_a_teacher_of_other_faces_is_refused(faces, teacher, tmp_path):
    with pytest.raises(ContractMismatch, match="112x112"):
        run(faces, tmp_path / "run", TAUGHT.changed(crop="wide"), teacher=teacher)
    with pytest.raises(UserError, match="whole batches"):
        TAUGHT.changed(accumulate=2)
