"""Figure 4: from a photo to a face, from faces and labels to a network, and from faces to a cosine; all of it real.

The network is that of the experiments with A-Softmax, m = 4. What it computes is drawn: the mean over the channels of
each stage's output, the numbers of FC1, angle and psi of a training face, features of image and mirror image, cosines.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import cv2
import numpy as np
import torch
from torch import nn

import sphereface
from sphereface.arrays import Float32, Float64, Image, unit_rows
from sphereface.data.reading import read_face
from sphereface.embed.embedder import Embedder
from sphereface.errors import UserError
from sphereface.experiments.lfw_dev import Unseen
from sphereface.experiments.paper import material
from sphereface.experiments.paper.measures import possible
from sphereface.experiments.paper.result import Figure, Result, Row, Table
from sphereface.experiments.paper.runs import Run, Runs, runs_of
from sphereface.experiments.paper.setting import Setting
from sphereface.experiments.paper.sheet import Sheet
from sphereface.experiments.paper.splits import rank_in_person
from sphereface.faces.warp import as_crop, similarity, targets
from sphereface.geometry import psi
from sphereface.loading.subset import Subset
from sphereface.losses import create_loss
from sphereface.losses.classifier import ASoftmax
from sphereface.metrics import best_threshold
from sphereface.models import load_model
from sphereface.models.inputs import to_input, to_tensor
from sphereface.models.spherefacenet import Residual, SphereFaceNet
from sphereface.progress import Say
from sphereface.reports.figures import COLOURS, DIFFERENT, INK, SAME, Picture, Theme, picture
from sphereface.training.checkpoints.reading import newest_checkpoint
from sphereface.training.config import TrainConfig
from sphereface.training.setting import CHECKPOINTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

CROP = "112x96"
PHOTO = 180, 250  # height and width of the photo that a face is put into
TURN, ZOOM, CENTRE = math.radians(-17), 1.25, (140.0, 95.0)  # of the face in it
SHOWN = 4  # training faces
PAIRS = 200  # of either kind, for the threshold


# What is drawn.


def photo_of(face: Image) -> tuple[Image, Float64]:
    """A photo with a face (112, 96, 3) turned and enlarged in it, and the face's five landmarks (5, 2) there.

    The surroundings are the colours of the face's edge, out of focus.
    """
    turn = ZOOM * np.array([[math.cos(TURN), -math.sin(TURN)], [math.sin(TURN), math.cos(TURN)]])
    centre = (np.array([face.shape[1], face.shape[0]]) - 1) / 2
    matrix = np.column_stack([turn, np.array(CENTRE) - turn @ centre])
    size = PHOTO[1], PHOTO[0]
    sharp = cv2.warpAffine(face, matrix, size, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    blurred = cv2.GaussianBlur(sharp, (0, 0), 14)
    inside = np.full(face.shape[:2], 255, np.uint8)
    inside[:4], inside[-1:], inside[:, :4], inside[:, -4:] = 0, 0, 0, 0
    share = cv2.GaussianBlur(cv2.warpAffine(inside, matrix, size), (0, 0), 2)[..., None] / 255
    photo = np.rint(share * sharp + (1 - share) * blurred).astype(np.uint8)
    return photo, targets(crop=CROP) @ turn.T + matrix[:, 2]


class Stage(NamedTuple):
    """The output of one stage for one face."""

    units: int
    shape: tuple[int, ...]  # (C, H, W)
    mean: Float32  # over the channels, (H, W)


@torch.no_grad()
def stages_of(net: SphereFaceNet, face: Image) -> list[Stage]:
    """The outputs of a network's stages for one face, read while it passes through."""
    x = to_input(to_tensor(face[None]))
    found: list[Stage] = []
    for layer in net.stages:
        x = layer(x)
        if isinstance(layer, nn.Conv2d):  # a stage begins with one; the others are inside of units
            found.append(Stage(0, (), np.zeros(0, np.float32)))
        units = found[-1].units + (isinstance(layer, Residual))
        found[-1] = Stage(units, tuple(x.shape[1:]), x[0].mean(0).numpy())
    return found


@dataclass(frozen=True)
class Trained:
    """One training face at the loss."""

    people: int
    label: str
    length: float  # of its feature
    theta: float  # to the weight of its class, in radians
    m: int
    lambda_: float
    loss: float

    @property
    def psi(self) -> float:
        """psi(theta)."""
        return float(psi(math.cos(self.theta), self.m))


@dataclass(frozen=True)
class Tested:
    """A probe with two others, of the same and of another person: (image, mirror image) features and cosines."""

    faces: Sequence[Image]  # probe, same, different
    features: Float32  # (3, 2 D)
    threshold: float
    pairs: int  # pairs that the threshold is from

    @property
    def cosines(self) -> tuple[float, float]:
        """Those of the probe with the two others."""
        unit = unit_rows(self.features)
        same, different = unit[1:] @ unit[0]
        return float(same), float(different)


@dataclass(frozen=True)
class Pipeline:
    """All that the figure shows."""

    photo: Image
    landmarks: Float64
    aligned: Image
    training: Sequence[Image]
    labels: Sequence[str]
    stages: Sequence[Stage]
    fc1: Float32  # (D,)
    trained: Trained
    tested: Tested
    network: str


def needed(runs: Runs) -> dict[str, list[Run]]:
    """The run whose network is drawn."""
    return {"a_softmax": [runs.of("a_softmax", runs.setting.seeds[0])]}


def gather(setting: Setting) -> Pipeline:
    """Train the network, if it is not there, and compute everything that is drawn."""
    if not possible(setting, "lfw"):
        raise UserError("no faces to test with; give the folder of LFW beside the faces to train on")
    runs = runs_of(setting)
    [run] = needed(runs)["a_softmax"]
    model = runs.model(run)
    net, test = load_model(model), material.lfw_test(setting)
    tested = test_faces(Embedder.load(model), test)
    training, labels = first_faces(runs.known)
    loss = loss_of(model.parent, run.settings, setting.say)
    photo, landmarks = photo_of(tested.faces[0])
    with torch.no_grad():
        feature = net(to_input(to_tensor(np.stack(training[:1]))))
        length, weight = float(feature.norm()), nn.functional.normalize(loss.weight[0], dim=0)
        theta = math.acos(float(feature[0] @ weight) / length)
        value = float(loss(feature, torch.zeros(1, dtype=torch.int64)))
        trained = Trained(loss.classes, labels[0], length, theta, loss.m, float(loss.lambda_), value)
    settings = run.settings
    wide = "" if settings.width == 1 else f", {settings.width:g} of the paper's channels"
    return Pipeline(
        photo, landmarks, sphereface.align(photo, landmarks), training, labels, stages_of(net, training[0]),
        feature[0].numpy(), trained, tested, f"{settings.model}{wide}, {settings.steps:,} steps",
    )  # fmt: skip


def loss_of(folder: Path, config: TrainConfig, say: Say) -> ASoftmax:
    """The loss at the end of a run, with its class weights."""
    checkpoint = newest_checkpoint(folder / CHECKPOINTS, say=say, verify=False)
    assert checkpoint is not None, "a finished run has a checkpoint"
    weight = checkpoint.rows(0, checkpoint.manifest.classes)["loss.weight"]
    loss = create_loss(config.loss, config.features, len(weight), **config.options())
    assert isinstance(loss, ASoftmax)
    loss.load_state_dict({"weight": weight, **checkpoint.group("loss")})
    return loss.eval()


def first_faces(known: Subset) -> tuple[list[Image], list[str]]:
    """The first photo of each of the first people, and their names."""
    rows = np.flatnonzero((rank_in_person(known) == 0) & (known.labels < SHOWN))
    rows = rows[np.argsort(known.labels[rows])]
    return [read_face(known, int(row), CROP) for row in rows], [known.people[known.labels[row]] for row in rows]


def test_faces(embedder: Embedder, test: Unseen) -> Tested:
    """The first same pair of the list with the first face of another person, and the threshold from other pairs."""
    first = int(np.flatnonzero(test.same)[0])
    probe, mate = int(test.left[first]), int(test.right[first])
    other = next(int(row) for row in test.left[~test.same] if test.people[row] != test.people[probe])
    rest = [np.setdiff1d(np.flatnonzero(test.same == kind), [first])[:PAIRS] for kind in (True, False)]
    pairs = np.concatenate(rest)
    rows, places = np.unique(np.concatenate([[probe, mate, other], test.left[pairs], test.right[pairs]]),
                             return_inverse=True)  # fmt: skip
    faces = [as_crop(test.pixels[row], CROP) for row in rows]
    features = embedder.embed(faces)
    unit = unit_rows(features)[places]
    scores = (unit[3 : 3 + len(pairs)] * unit[3 + len(pairs) :]).sum(1)
    shown = places[:3]
    threshold = best_threshold(test.same[pairs], scores)
    return Tested([faces[place] for place in shown], features[shown], threshold, len(pairs))


def run(setting: Setting) -> Result:
    """The figure, and the numbers in it as a table."""
    found = gather(setting)
    one, tested = found.trained, found.tested
    same, different = tested.cosines
    right = (same > tested.threshold) + (different <= tested.threshold)
    turned = similarity(found.landmarks, targets(crop=CROP))
    degrees, scale = math.degrees(math.atan2(turned[1, 0], turned[0, 0])), math.hypot(turned[0, 0], turned[1, 0])
    numbers = {
        "length of the feature": one.length, "angle to its class, degrees": math.degrees(one.theta),
        "psi of the angle": one.psi, "loss": one.loss, "lambda": one.lambda_, "cosine of one person": same,
        "cosine of two people": different, "threshold": tested.threshold,
    }  # fmt: skip
    shapes = ", ".join("x".join(map(str, stage.shape)) for stage in found.stages)
    return Result(
        "fig-pipeline",
        "Training and extraction of features, made from the real objects",
        setting.scale,
        findings=[
            f"The network is {found.network}, trained with A-Softmax, m = {one.m}. A face of 3x112x96 leaves its "
            f"stages as {shapes}, and FC1 as {len(found.fc1)} numbers.",
            f"In training, the first face of {one.label} lies {math.degrees(one.theta):.1f} degrees from the weight of "
            f"its class: psi is {one.psi:.2f} where the cosine is {math.cos(one.theta):.2f}.",
            f"In testing, image and mirror image make {tested.features.shape[1]} numbers. Two photos of one person who "
            f"was never trained on have a cosine of {same:.2f}, photos of two people {different:.2f}; with the "
            f"threshold {tested.threshold:.2f} from {tested.pairs} other pairs, {right} of 2 decisions are right.",
            f"The photo is a face turned by {math.degrees(TURN):.0f} degrees and enlarged {ZOOM} times; the similarity "
            f"transform from its five landmarks turns it by {degrees:.0f} degrees at a scale of {scale:.2f}.",
        ],
        tables=[
            Table("numbers", "The numbers in the figure", ["number", "value"],
                  [Row([name, f"{value:.3f}"], setting.scale) for name, value in numbers.items()])
        ],
        figures=[
            Figure("pipeline", draw_pipeline(found), "Top: a photo becomes a face. Middle: training, with the mean "
                   "over channels of what each stage makes of the first face. Bottom: testing with people who were "
                   f"not trained on. Network: {found.network}.", wide=True)
        ],
        numbers={**numbers, "network": found.network, "stages": [list(stage.shape) for stage in found.stages]},
    )  # fmt: skip


# How it is drawn.

ROWS = {"Preprocessing": 7.05, "Training": 4.85, "Testing": 2.3}


def draw_pipeline(found: Pipeline) -> Picture:
    """The three rows of the figure."""

    def draw(theme: Theme) -> "Drawing":
        sheet = Sheet(10.6, 7.2, theme)
        for words, y in ROWS.items():
            sheet.text(0.2, y, words, size=11, ha="left", weight="bold")
        _preprocessing(sheet, found)
        _training(sheet, found)
        _testing(sheet, found.tested)
        return sheet.figure

    return picture(draw, "From a photo to a face; a network in training; faces to cosines in testing", pdf=True)


def _preprocessing(sheet: Sheet, found: Pipeline) -> None:
    low, high, middle = 5.3, 1.5, 6.05
    width, face = high * PHOTO[1] / PHOTO[0], high * 96 / 112
    sheet.image(found.photo, 0.2, low, width, high)
    sheet.image(found.aligned, 4.55, low, face, high)
    for x, points, size in ((0.2, found.landmarks, PHOTO[::-1]), (4.55, targets(crop=CROP), (96, 112))):
        at = points / size * (width if x < 1 else face, -high) + (x, low + high)
        sheet.axes.scatter(
            at[:, 0], at[:, 1], s=16, color=COLOURS[3], edgecolors=INK["light"], linewidths=0.5, zorder=5
        )
    sheet.arrow((2.4, middle), (4.45, middle))
    sheet.text(3.42, middle + 0.25, "five landmarks,\nsimilarity transform")
    sheet.arrow((5.95, middle), (7.75, middle))
    sheet.text(6.85, middle + 0.15, "(pixel - 127.5) / 128")
    values = (found.aligned.astype(np.float32) - 127.5) / 128
    for place in range(3):
        sheet.image(values[..., place], 7.85 + 0.2 * place, low + 0.3 - 0.15 * place, 0.8 * face, 0.8 * high,
                    cmap="gray")  # fmt: skip
    sheet.text(9.4, middle, f"R, G, B\n3 x 112 x 96\n{values.min():.2f} to {values.max():.2f}", ha="left")


def _training(sheet: Sheet, found: Pipeline) -> None:
    middle, below, one = 3.78, 2.82, found.trained
    for place, (face, label) in enumerate(zip(found.training, found.labels, strict=True)):
        x, y = 0.2 + 0.85 * (place % 2), 3.85 - 0.95 * (place // 2)
        sheet.image(face, x, y, 0.6, 0.7)
        sheet.text(x + 0.3, y - 0.11, label[:10], size=7)
    centres = 2.75, 4.15, 5.3, 6.3
    sheet.arrow((1.75, middle), (2.13, middle))
    for number, (stage, x, tall) in enumerate(zip(found.stages, centres, (1.4, 1.1, 0.8, 0.5), strict=True), start=1):
        wide = tall * stage.shape[2] / stage.shape[1]
        sheet.image(stage.mean, x - wide / 2, middle - tall / 2, wide, tall, cmap="viridis")
        units = f", {stage.units} unit{'s' * (stage.units > 1)}" * (stage.units > 0)
        sheet.text(x, below, f"Conv{number}.x{units}\n{' x '.join(map(str, stage.shape))}", size=7.5)
        after = centres[number] - 0.52 * (1.1, 0.8, 0.5)[number - 1] if number < len(centres) else 6.95
        sheet.arrow((x + wide / 2 + 0.05, middle), (after, middle))
    sheet.image(found.fc1[:, None], 7.0, middle - 0.7, 0.16, 1.4, cmap="coolwarm")
    sheet.text(7.08, below, f"FC1\n{len(found.fc1)}", size=7.5)
    sheet.arrow((7.21, middle), (7.65, middle))
    words = (
        f"A-Softmax, m = {one.m}\n{one.people:,} unit weights, no bias\n"
        f"{one.label[:10]}: $\\|x\\|$ = {one.length:.1f}, $\\theta$ = {math.degrees(one.theta):.0f}\u00b0\n"
        f"$\\cos\\theta$ = {math.cos(one.theta):.2f}, $\\psi(\\theta)$ = {one.psi:.2f}\n"
        f"loss {one.loss:.2f} at $\\lambda$ = {one.lambda_:.3g}"
    )
    sheet.box(7.7, 3.05, 2.7, 1.46, words, edge=COLOURS[4], size=9)
    sheet.arrow((1.35, 4.58), (1.35, 4.72), (9.05, 4.72), (9.05, 4.54))
    sheet.text(5.2, 4.84, "labels")


def _testing(sheet: Sheet, found: Tested) -> None:
    height, cosines = 0.62, found.cosines
    centres = 1.17, 1.9, 0.44  # probe in the middle, its mate above, another person below
    for name, face, feature, y in zip(("probe", "same person", "another"), found.faces, found.features, centres,
                                      strict=True):  # fmt: skip
        for x, pixels in ((1.0, face), (1.65, face[:, ::-1])):
            sheet.image(pixels, x, y - height / 2, 0.53, height)
        sheet.text(0.9, y, name, ha="right", size=7.5)
        sheet.arrow((2.25, y), (2.6, y))
        sheet.arrow((4.0, y), (4.35, y))
        halves = feature.reshape(2, -1)
        for place in range(2):
            sheet.image(halves[place][None], 4.4 + 1.3 * place, y - 0.14, 1.3, 0.28, cmap="coolwarm")
    sheet.text(1.26, 2.32, "image", size=7.5)
    sheet.text(1.92, 2.32, "mirror", size=7.5)
    sheet.box(2.65, 0.13, 1.3, 2.08, "the same\nnetwork,\nup to FC1")
    size = found.features.shape[1] // 2
    sheet.text(5.7, 2.32, f"features, concatenated: 2 x {size} numbers", size=7.5)
    ends = (SAME, centres[1], cosines[0]), (DIFFERENT, centres[2], cosines[1])
    for colour, y, cosine in ends:
        accepted = cosine > found.threshold
        words = f"cosine {cosine:.2f} {'>' if accepted else chr(0x2264)} {found.threshold:.2f}:\n"
        words += f"{'one person' if accepted else 'two people'}, {'right' if accepted == (colour == SAME) else 'wrong'}"
        towards = 0.1 if y > centres[0] else -0.1
        sheet.arrow((7.05, centres[0] + towards), (7.7, y - towards))
        sheet.arrow((7.05, y + towards / 2), (7.7, y + towards / 2))
        sheet.box(7.75, y - 0.26, 2.65, 0.52, words, edge=colour)
    nearest = "the same person" if cosines[0] > cosines[1] else "another person"
    sheet.text(9.07, centres[0], f"nearest to the probe: {nearest}")
