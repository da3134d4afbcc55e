"""Figure 4: every number in it is computed again from the model, and no words overlap."""

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from torch import nn

from sphereface.contract import STAGES, Card
from sphereface.data.reading import read_face
from sphereface.data.synthetic.people import SyntheticPeople
from sphereface.embed.embedder import Embedder
from sphereface.errors import UserError
from sphereface.experiments.lfw_dev import Unseen
from sphereface.experiments.paper import fig_pipeline, plans
from sphereface.experiments.paper.fig_pipeline import TURN, ZOOM, Stage, gather, needed, photo_of, stages_of, test_faces
from sphereface.experiments.paper.runs import runs_of
from sphereface.experiments.paper.setting import Data
from sphereface.faces.warp import align, similarity, targets
from sphereface.models import create_model, load_model
from sphereface.models.inputs import to_input, to_tensor

test_faces.__test__ = False  # a function of the package, not a test


@pytest.fixture
def quick_plan(small_plan, monkeypatch):
    """The small plan without a search for rates."""
    plan = replace(small_plan, rates=(0.05,), weights={})
    monkeypatch.setitem(plans.PLANS, "tiny", plan)
    return plan


def words_of(figure):
    """The words of a figure with the boxes that they cover, in pixels."""
    renderer = figure.canvas.get_renderer()
    texts = [text for axes in figure.axes for text in axes.texts if text.get_text()]
    return [(text.get_text(), text.get_window_extent(renderer)) for text in texts]


def assert_legible(figure):
    """No words overlap others, none leaves the figure, and none crosses an edge of a box."""
    found = words_of(figure)
    assert found
    for words, box in found:
        assert box.x0 >= 0, words
        assert box.y0 >= 0, words
        assert box.x1 <= figure.bbox.x1, words
        assert box.y1 <= figure.bbox.y1, words
    for (one, a), (two, b) in combinations(found, 2):
        assert not a.overlaps(b), f"{one!r} overlaps {two!r}"
    for patch in figure.axes[0].patches:
        frame = patch.get_window_extent()
        for words, box in found:
            inside = frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1
            assert inside or not frame.overlaps(box), f"{words!r} crosses a frame"


def drawn_light(draw, says, **_):
    """The figure on a light page, drawn, so that its words have their places."""
    figure = draw("light")
    FigureCanvasAgg(figure).draw()
    return figure


@pytest.fixture
def drawing(monkeypatch):
    """Give the matplotlib figure itself in place of its PNG files."""
    monkeypatch.setattr(fig_pipeline, "picture", drawn_light)


def test_a_photo_aligned_by_its_landmarks_gives_the_face_back():
    face = SyntheticPeople(seed=5).face(0, 0)
    photo, landmarks = photo_of(face)
    inner = np.s_[12:-12, 12:-12]
    back = align(photo, landmarks)
    assert np.abs(back[inner].astype(float) - face[inner]).mean() < 6
    untouched = photo[:112, :96]
    assert np.abs(untouched[inner].astype(float) - face[inner]).mean() > 20
    there = similarity(targets(), landmarks)
    assert math.hypot(*there[:, 0]) == pytest.approx(ZOOM)
    assert math.atan2(there[1, 0], there[0, 0]) == pytest.approx(TURN)
    assert (landmarks > 0).all()
    assert (landmarks < photo.shape[1::-1]).all()


@pytest.mark.parametrize(("name", "norm"), [("sphereface20", None), ("sphereface10", "batch")])
def test_stages_are_the_network_up_to_fc1(name, norm):
    torch.manual_seed(1)
    net = create_model(name, width=0.125, features=16, norm=norm).eval()
    face = SyntheticPeople(seed=5).face(1, 0)
    found = stages_of(net, face)
    assert tuple(stage.units for stage in found) == STAGES[name]
    assert [stage.shape for stage in found] == [(8, 56, 48), (16, 28, 24), (32, 14, 12), (64, 7, 6)]
    last = net.stages(to_input(to_tensor(face[None])))[0]
    np.testing.assert_allclose(found[-1].mean, last.detach().mean(0).numpy(), atol=1e-6)


def test_the_figures_numbers_are_those_of_the_trained_model(quick_plan, setting):
    found = gather(setting)
    runs = runs_of(setting)
    [run] = needed(runs)["a_softmax"]
    model = runs.model(run)
    face = read_face(runs.known, 0, None)
    np.testing.assert_array_equal(found.training[0], face)
    feature = load_model(model)(to_input(to_tensor(face[None])))[0].detach()
    np.testing.assert_allclose(found.fc1, feature.numpy(), rtol=1e-4, atol=1e-5)
    one, probe = found.trained, found.tested
    assert one.length == pytest.approx(float(feature.norm()), rel=1e-4)
    k = math.floor(4 * one.theta / math.pi)
    assert one.psi == pytest.approx((-1) ** k * math.cos(4 * one.theta) - 2 * k)
    image, mirrored = (Embedder.load(model, feature_rule="image").embed(np.stack(some)).astype(float) for some in
                       (probe.faces, [each[:, ::-1] for each in probe.faces]))  # fmt: skip
    both = np.concatenate([image, mirrored], axis=1)
    cosines = [both[0] @ other / np.linalg.norm(both[0]) / np.linalg.norm(other) for other in both[1:]]
    assert probe.cosines == pytest.approx(cosines, abs=1e-4)


def test_a_faces_loss_is_the_cross_entropy_with_the_mixed_target(quick_plan, setting):
    found = gather(setting)
    runs = runs_of(setting)
    [run] = needed(runs)["a_softmax"]
    weight = fig_pipeline.loss_of(runs.model(run).parent, run.settings, lambda _: None).weight.detach()
    logits = nn.functional.normalize(weight) @ torch.from_numpy(found.fc1)
    one = found.trained
    assert math.cos(one.theta) == pytest.approx(float(logits[0]) / one.length, abs=1e-4)
    logits[0] = one.length * (one.lambda_ * math.cos(one.theta) + one.psi) / (1 + one.lambda_)
    assert one.loss == pytest.approx(float(-logits.log_softmax(0)[0]), rel=1e-3)


def test_the_shown_pairs_are_the_first_of_the_list_and_do_not_set_the_threshold():
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (8, 112, 96, 3), dtype=np.uint8)
    people = np.repeat(np.arange(4), 2)
    left, right = np.array([0, 2, 4, 1, 0, 2, 4]), np.array([1, 3, 5, 2, 6, 7, 7])
    same = people[left] == people[right]

    def network(inputs):
        return inputs.reshape(len(inputs), -1)[:, ::5_000].copy()

    test = Unseen(pixels, people, left, right, same, np.full(7, True))
    found = test_faces(Embedder(network, Card(feature_rule="image")), test)
    for shown, row in zip(found.faces, (0, 1, 2), strict=True):  # the first pair, and the first other person
        np.testing.assert_array_equal(shown, pixels[row])
    assert found.pairs == 6
    assert -1 <= found.threshold <= 1


def test_no_words_overlap_also_for_the_deepest_network_and_long_names(quick_plan, setting, drawing):
    found = gather(setting)
    assert_legible(fig_pipeline.draw_pipeline(found))
    shapes = (64, 56, 48), (128, 28, 24), (256, 14, 12), (512, 7, 6)
    deep = [Stage(units, shape, found.stages[place].mean)
            for place, (units, shape) in enumerate(zip(STAGES["sphereface64"], shapes, strict=True))]  # fmt: skip
    wide = replace(
        found, stages=deep, fc1=np.zeros(512, np.float32), labels=["Arnold_Schwarzenegger"] * 4,
        trained=replace(found.trained, people=10_572, label="Arnold_Schwarzenegger", length=123.4, theta=3.1),
        tested=replace(found.tested, features=np.ones((3, 1024), np.float32)),
    )  # fmt: skip
    assert_legible(fig_pipeline.draw_pipeline(wide))


def test_the_result_is_written_with_its_figure(quick_plan, setting):
    result = fig_pipeline.run(setting)
    folder = result.write(setting.out)
    assert (folder / "pipeline.pdf").stat().st_size > 10_000
    assert {row.stamp for row in result.tables[0].rows} == {"tiny"}
    assert "sphereface4" in result.findings[0]


def test_without_people_to_test_with_the_way_out_is_named(setting, tmp_path):
    with pytest.raises(UserError, match="LFW"):
        gather(replace(setting, data=Data(faces=(tmp_path,))))
