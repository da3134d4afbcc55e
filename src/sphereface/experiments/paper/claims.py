"""The numbers of the paper's text against its own tables, and the paper against the authors' released code.

What a sentence says is typed from the paper. What it is held against is computed: from the tables in `published`, from
the formulas of section 3, from our networks and losses, or taken from what the makers of a data set publish (`SETS`).
"""

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from sphereface.contract import STAGES, Card, Preprocessing
from sphereface.evaluation import evaluate_ytf
from sphereface.evaluation.rules.pairs import Asked
from sphereface.experiments.paper import published as p
from sphereface.experiments.paper.material import IN_TEST_SETS
from sphereface.experiments.paper.properties import measured_sides
from sphereface.experiments.paper.result import Result, Row, Table
from sphereface.experiments.paper.setting import Setting
from sphereface.faces.mtcnn import PRESETS
from sphereface.faces.warp import CROPS
from sphereface.geometry import angular_margin, minimal_m_binary, minimal_m_uniform, psi, reward_angle
from sphereface.losses import LOSSES, Annealing, margins
from sphereface.training.recipes import paper, prototxt

# What the makers of the sets publish: Huang et al. 2007 and LFW's pairs.txt; Wolf et al. 2011; Yi et al. 2014;
# Kemelmacher-Shlizerman et al. 2016.
SETS = {
    "LFW images": 13_233, "LFW people": 5_749, "LFW pairs": 10 * (300 + 300), "YTF videos": 3_425, "YTF people": 1_595,
    "YTF pairs": 10 * 500, "CASIA images": 494_414, "CASIA people": 10_575, "MegaFace images": 1_027_060,
    "MegaFace people": 690_572,
}  # fmt: skip
BY_M = ("modified_softmax", "a_softmax_m2", "a_softmax_m3", "a_softmax")  # m = 1 to 4
YES, NO, NOWHERE = "yes", "no", "in no table"


class Claim(NamedTuple):
    """A sentence of the paper, and what its numbers are held against."""

    place: str  # section, appendix or caption
    says: str
    text: str  # the numbers of the sentence
    found: str
    where: str
    agrees: str


def number(place: str, says: str, text: str, found: float, where: str, *, slack: float = 0.0) -> Claim:
    """A number of the text, which agrees if it is `found` rounded to its digits.

    `slack` is what the rounding of the numbers behind `found` leaves open: 0.1 for a difference of two with one digit.
    """
    digits = len(text.partition(".")[2])
    agrees = abs(found - float(text.replace(",", ""))) <= 0.5 * 10**-digits + slack + 1e-9
    shown = f"{found:,.4f}".rstrip("0").rstrip(".")
    return Claim(place, says, text, shown, where, YES if agrees else NO)


def holds(place: str, says: str, truth: bool | np.bool_, found: str, where: str, *, text: str = "-") -> Claim:
    """A comparison of the text that is true or not of the numbers in `found`."""
    return Claim(place, says, text, found, where, YES if truth else NO)


def millions(system: str) -> float:
    """The training images of a system in Table 4."""
    data = next(each.data for each in p.SYSTEMS if each.name == system).removesuffix("*")
    return float(data[:-1]) / {"M": 1, "K": 1000}[data[-1]]


def both(pairs: p.Pairs) -> tuple[float, float]:
    """The accuracies on LFW and YTF."""
    assert pairs.lfw is not None, "no accuracy on LFW"
    assert pairs.ytf is not None, "no accuracy on YTF"
    return pairs.lfw, pairs.ytf


def rises(values: Sequence[float]) -> bool:
    """True if each number is above the one before."""
    return all(a < b for a, b in pairwise(values))


def listed(values: Iterable[float]) -> str:
    """Numbers as a list."""
    return ", ".join(f"{value:g}" for value in values)


def formulas() -> list[Claim]:
    """Sections 3.1 to 3.4 and appendix G: sentences about formulas, checked numerically."""
    first, half = np.linspace(0, math.pi / 4, 1_001), np.cos(np.linspace(0, math.pi, 2_001))
    posteriors = sum(10 * math.cos(math.radians(degrees)) for degrees in (20, 60))
    free = [measured_sides(math.pi / 2, m).between for m in (2, 3, 4)]
    cos = torch.linspace(-1, 1, 201, dtype=torch.float64)
    eased = margins.a_softmax(cos, torch.ones_like(cos), m=4, lambda_=1e9)  # the target logit at |x| = 1
    return [
        holds("3.1", "the posterior probabilities become p_1 = |x| cos theta_1 and p_2 = |x| cos theta_2",
              math.isclose(posteriors, 1), f"p_1 + p_2 = {posteriors:.1f} for |x| = 10, 20 and 60 degrees",
              "A sum of 1; logits are meant"),
        holds("3.2, footnote", "cos theta_1 > cos m theta_1 holds while theta_1 in [0, pi/m], m >= 2",
              (np.cos(first) > np.cos(4 * first)).all(),
              f"m = 4: equal at 0, true up to {math.degrees(reward_angle(4)):.0f} degrees, 2 pi / (m + 1)", "Cosines"),
        holds("3.2", "such decision boundaries produce an angular margin of (m-1)/(m+1) theta_12",
              np.allclose(free, [angular_margin(math.pi / 2, m) for m in (2, 3, 4)], atol=1e-9),
              f"{listed(round(math.degrees(each), 6) for each in free)} at 90 degrees, m = 2, 3, 4", "properties"),
        holds("3.2", "psi should be equal to cos theta in [0, pi/m]",
              np.allclose(psi(np.cos(first), 4), np.cos(first)),
              f"m = 4 at pi/4: psi {psi(math.cos(math.pi / 4), 4):.2f}, cos theta {math.cos(math.pi / 4):.2f}",
              "Equation 7; cos m theta is meant"),
        holds("3.2", "psi is a monotonically decreasing angle function", (np.diff(psi(half, 4)) < 0).all(),
              f"m = 4: from {psi(1.0, 4):.0f} to {psi(-1.0, 4):.0f}", "Equation 7"),
        holds("3.2", "when m = 1, it becomes the modified softmax loss", np.allclose(psi(half, 1), half),
              "psi = cos theta", "Equation 7"),
        holds("3.3", "the unit hypersphere is {v: sum v_j^2 = 1, v >= 0}", math.isclose(0.5**512, 1),
              f"v >= 0 is {0.5**512:.0e} of the sphere in 512-D", "Appendix A has features below 0"),
        number("3.4", "Property 2: m_min >= 2 + sqrt 3", f"{2 + math.sqrt(3):.4f}", minimal_m_binary(), "properties"),
        number("3.4", "Property 3: m_min >= 3", "3", minimal_m_uniform(3), "properties"),
        number("3.4", "based on this, we use m = 4", "4", math.ceil(minimal_m_binary()), "Next whole number"),
        number("G", "decaying lambda to 5 gives impressive results", "5", Annealing().minimum, "Released layer"),
        holds("G", "a very large lambda is equivalent to optimizing the original softmax",
              torch.allclose(eased, 2 * cos),
              f"at lambda = 1e9 the logit is |x| cos theta, to {float((eased - cos).abs().max()):.0e}; no |w|, no b",
              "Modified softmax is meant"),
    ]  # fmt: skip


def settings() -> list[Claim]:
    """Sections 2 and 4.1, and the caption of Table 2: data and networks."""
    convolutions = [len(STAGES[f"sphereface{depth}"]) + 2 * sum(STAGES[f"sphereface{depth}"]) for depth in p.DEPTHS]
    private = {each.name: each.data.endswith("*") for each in p.SYSTEMS}
    images, stages = SETS["CASIA images"] / 1e6, len(STAGES["sphereface64"])
    return [
        number("2", "FaceNet: training on nearly 200 million face images", "200", millions("FaceNet"), "Table 4"),
        holds("4.1", "CNNs with different depths (4, 10, 20, 36, 64)", convolutions == list(p.DEPTHS),
              listed(convolutions), "Table 2: 1 + 2 units a stage", text=listed(p.DEPTHS)),
        holds("Table 2", "Conv1.x, Conv2.x and Conv3.x denote convolution units", stages == 3,
              f"Conv1.x to Conv{stages}.x", "Table 2", text="3"),
        number("4.1", "CASIA-WebFace has 494,414 face images", "494,414", SETS["CASIA images"], "Yi et al."),
        number("4.1", "CASIA-WebFace has 10,575 different individuals", "10,575", SETS["CASIA people"], "Yi et al."),
        number("4.1", "the scale of our training data (0.49M) is relatively small", "0.49", images, "494,414 of 4.1"),
        holds("4.4", "a training set is small if it is less than 0.5M", images < 0.5, f"{images:.3f}M",
              "494,414 of 4.1", text="0.5"),
        number("4.1", "DeepFace (4M)", "4", millions("DeepFace"), "Table 4"),
        number("4.1", "VGGFace (2M)", "2", millions("Deep FR"), "Table 4, Deep FR"),
        number("4.1", "FaceNet (200M)", "200", millions("FaceNet"), "Table 4"),
        holds("4.1", "other private datasets used in DeepFace, VGGFace and FaceNet",
              all(private[name] for name in ("DeepFace", "Deep FR", "FaceNet")),
              "Deep FR has no star" if not private["Deep FR"] else "all have a star", "Table 4 marks private data"),
    ]  # fmt: skip


def depths() -> list[Claim]:
    """Section 4.2 and appendices E and F: effects of m and of the number of layers."""
    top, softmax = both(p.TABLE_3["a_softmax"]), both(p.TABLE_3["softmax"])
    ours, theirs = (
        {layers: both(each) for layers, each in table.items()} for table in (p.DEPTH_A_SOFTMAX, p.DEPTH_SOFTMAX)
    )
    gain = {(layers, at): ours[layers][at] - theirs[layers][at] for layers in ours for at in (0, 1)}
    deeper = [ours[64][at] - ours[4][at] for at in (0, 1)]
    deeper_softmax = [theirs[64][at] - theirs[4][at] for at in (0, 1)]
    by_m = [[both(p.TABLE_3[f"{name}"])[at] for name in BY_M] for at in (0, 1)]
    accuracy, fisher = zip(*p.ABLATION.values(), strict=True)
    rows = {row: f"{p.ABLATION[row][0]:.2f}" for row in "ABC"}
    rank, tar = zip(*((each.rank_1, each.tar) for each in p.MEGAFACE_DEPTH.values()), strict=True)
    return [
        holds("4.2", "while m becomes larger, the accuracy also becomes better", all(map(rises, by_m)),
              f"LFW {listed(by_m[0])}; YTF {listed(by_m[1])}", "Table 3"),
        holds("4.2", "A-Softmax consistently outperforms CNNs with softmax", min(gain.values()) > 0,
              f"4 layers: +{gain[4, 0]:.2f}, +{gain[4, 1]:.1f}; 64: +{gain[64, 0]:.2f}, +{gain[64, 1]:.1f}", "4.2"),
        number("4.2", "gains of 1.54 to 1.91: lower end", "1.54", top[0] - softmax[0], "Table 3: LFW"),
        number("4.2", "gains of 1.54 to 1.91: 64 layers on LFW", "1.54", gain[64, 0], "Section 4.2, 99.42 - 97.75"),
        number("4.2", "gains of 1.54 to 1.91: upper end", "1.91", top[1] - softmax[1], "Table 3: YTF", slack=0.1),
        holds("4.2", "gains of 1.54 to 1.91: 4 layers on LFW", 1.535 <= gain[4, 0] <= 1.915, f"{gain[4, 0]:.2f}",
              "Section 4.2, 98.20 - 96.60", text="1.54 to 1.91"),
        holds("4.2", "gains of 1.54 to 1.91: 4 layers on YTF", 1.44 <= gain[4, 1] <= 2.01, f"{gain[4, 1]:.1f}",
              "Section 4.2, 93.4 - 91.1, give or take 0.1", text="1.54 to 1.91"),
        number("4.2", "A-Softmax on LFW: from 98.20 (4 layers)", "98.20", p.ABLATION["G"][0], "Appendix E, row G"),
        number("4.2", "A-Softmax on LFW: to 99.42 (64 layers)", "99.42", top[0], "Tables 3 and 4"),
        Claim("4.2", "A-Softmax on YTF: from 93.4 (4 layers)", "93.4", "-", "Figure 6: no numbers", NOWHERE),
        number("4.2", "A-Softmax on YTF: to 95.0 (64 layers)", "95.0", top[1], "Tables 3 and 4"),
        holds("4.2", "softmax on LFW: from 96.60 (4 layers)", f"{theirs[4][0]:.2f}" in rows.values(),
              ", ".join(f"{name} {value}" for name, value in rows.items()),
              "Appendix E: softmax with the last ReLU, without it, without biases", text="96.60"),
        number("4.2", "softmax on LFW: to 97.75 (64 layers)", "97.75", softmax[0], "Tables 3 and 4"),
        Claim("4.2", "softmax on YTF: from 91.1 (4 layers)", "91.1", "-", "Figure 6: no numbers", NOWHERE),
        number("4.2", "softmax on YTF: to 93.1 (64 layers)", "93.1", softmax[1], "Tables 3 and 4"),
        holds("4.2", "the improvement of deeper standard CNNs is unsatisfactory: LFW", deeper_softmax[0] < deeper[0],
              f"softmax +{deeper_softmax[0]:.2f}, A-Softmax +{deeper[0]:.2f}", "Section 4.2, 4 to 64 layers"),
        holds("4.2", "the improvement of deeper standard CNNs is unsatisfactory: LFW, Table 3",
              softmax[0] - theirs[4][0] < deeper[0],
              f"softmax +{softmax[0] - theirs[4][0]:.2f}, A-Softmax +{deeper[0]:.2f}", "Section 4.2 and Table 3"),
        holds("4.2", "the improvement of deeper standard CNNs is unsatisfactory: YTF", deeper_softmax[1] < deeper[1],
              f"softmax +{deeper_softmax[1]:.1f}, A-Softmax +{deeper[1]:.1f}", "Section 4.2, 4 to 64 layers"),
        holds("E", "all our modifications improve the accuracy", rises(accuracy), listed(accuracy), "Table 6"),
        holds("E", "all our modifications lower the Fisher score", rises(fisher[::-1]), listed(fisher), "Table 6"),
        holds("F", "with more convolutional layers, A-Softmax performs better", rises(rank) and rises(tar),
              f"rank 1 {listed(rank)}; TAR {listed(tar)}", "Table 7"),
        holds("F", "4 layers perform better than softmax with 64",
              rank[0] > p.TABLE_5["softmax"].rank_1 and tar[0] > p.TABLE_5["softmax"].tar,
              f"{rank[0]} and {tar[0]}, softmax {p.TABLE_5['softmax'].rank_1} and {p.TABLE_5['softmax'].tar}",
              "Tables 5 and 7"),
        holds("F", "64 layers: the single model of Table 5", p.MEGAFACE_DEPTH[64] == p.TABLE_5["a_softmax"],
              f"{rank[-1]}, {tar[-1]}", "Tables 5 and 7"),
    ]  # fmt: skip


def verification() -> list[Claim]:
    """Section 4.3: LFW and YTF."""
    lfw, ytf = both(p.TABLE_4["a_softmax"])
    same_data = [each for each in p.SYSTEMS if each.data == "WebFace"]
    rivals = [pairs for name, pairs in p.TABLE_4.items() if name != "a_softmax"]
    others = [[x for each in (*(s.pairs for s in same_data), *rivals) if (x := each[at]) is not None] for at in (0, 1)]
    known = [[(each, x) for each in p.SYSTEMS if (x := each.pairs[at]) is not None] for at in (0, 1)]
    beaten = [sum(ours > x for _, x in column) for ours, column in zip((lfw, ytf), known, strict=True)]
    above = [
        [each.name for each, x in column if each.models == 1 and x > ours]
        for ours, column in zip((lfw, ytf), known, strict=True)
    ]
    return [
        number("4.3", "LFW includes 13,233 face images", "13,233", SETS["LFW images"], "Huang et al."),
        number("4.3", "LFW includes 5749 different identities", "5749", SETS["LFW people"], "Huang et al."),
        number("4.3", "YTF includes 3,424 videos", "3,424", SETS["YTF videos"], "Wolf et al."),
        number("4.3", "YTF includes 1,595 different individuals", "1,595", SETS["YTF people"], "Wolf et al."),
        number("4.3", "6,000 face pairs from LFW", "6,000", SETS["LFW pairs"], "LFW: ten folds of 300 + 300"),
        number("4.3", "5,000 video pairs from YTF", "5,000", SETS["YTF pairs"], "YTF: ten splits of 500"),
        number("4.3", "SphereFace achieves 99.42 on LFW", "99.42", lfw, "Table 4"),
        number("4.3", "SphereFace achieves 95.0 on YTF", "95.0", ytf, "Table 4"),
        holds("4.3", "the current best performance trained on WebFace", lfw > max(others[0]) and ytf > max(others[1]),
              f"next {max(others[0])} and {max(others[1])}", "Table 4"),
        holds("4.3", "outperforming most of the existing results in Table 4",
              all(2 * count > len(column) for count, column in zip(beaten, known, strict=True)),
              f"LFW {beaten[0]} of {len(known[0])}, YTF {beaten[1]} of {len(known[1])} systems", "Table 4"),
        holds("4.3", "our single model is only worse than Google FaceNet: LFW", above[0] == ["FaceNet"],
              ", ".join(above[0]), "Table 4, single models above 99.42"),
        holds("4.3", "our single model is only worse than Google FaceNet: YTF", above[1] == ["FaceNet"],
              ", ".join(above[1]), "Table 4, single models above 95.0"),
        holds("4.3", "FaceNet is trained with more than 200 million data", millions("FaceNet") > 200,
              f"{millions('FaceNet'):g}M", 'Table 4; section 2 has "nearly 200 million"', text="> 200"),
        holds("4.3", "SphereFace consistently outperforms all compared losses",
              all(lfw > a and ytf > b for a, b in map(both, rivals)),
              f"best of them {max(both(each)[0] for each in rivals)} and {max(both(each)[1] for each in rivals)}",
              "Table 4"),
        holds("4.3", "softmax and A-Softmax are the same runs as in Table 3",
              all(p.TABLE_3[name] == p.TABLE_4[name] for name in ("softmax", "a_softmax")),
              f"{listed(both(p.TABLE_4['softmax']))}; {lfw}, {ytf}", "Tables 3 and 4"),
    ]  # fmt: skip


def megaface() -> list[Claim]:
    """Section 4.4."""
    small, large = (
        [each for each in p.MEGAFACE_SYSTEMS.values() if each.protocol == size] for size in ("small", "large")
    )
    single, ensemble = p.TABLE_5["a_softmax"], p.TABLE_5["ensemble"]
    rivals = [each for name, each in p.TABLE_5.items() if name not in ("a_softmax", "ensemble")]
    ranks, tars = zip(*((each.rank_1, each.tar) for each in p.MEGAFACE_SYSTEMS.values()), strict=True)
    beaten = sum(single.rank_1 > each for each in ranks), sum(single.tar > each for each in tars)
    named = {name: p.MEGAFACE_SYSTEMS[name] for name in ("Google - FaceNet v8", "NTechLAB - facenx large")}
    gains = {name: (ensemble.rank_1 - each.rank_1, ensemble.tar - each.tar) for name, each in named.items()}
    best_rank = max(p.MEGAFACE_SYSTEMS, key=lambda name: p.MEGAFACE_SYSTEMS[name].rank_1)
    best_tar = max(p.MEGAFACE_SYSTEMS, key=lambda name: p.MEGAFACE_SYSTEMS[name].tar)
    return [
        holds("4.4", "the gallery set contains more than 1 million images", SETS["MegaFace images"] > 1e6,
              f"{SETS['MegaFace images']:,}", "Kemelmacher-Shlizerman et al.", text="> 1M"),
        holds("4.4", "the gallery set is from 690K different individuals", SETS["MegaFace people"] // 1000 == 690,
              f"{SETS['MegaFace people']:,}", "Kemelmacher-Shlizerman et al.", text="690K"),
        number("4.4", "beats the second best result of the small protocol by 4.8 in identification", "4.8",
               ensemble.rank_1 - max(each.rank_1 for each in small), "Table 5: ensemble, Deepsense - Small"),
        number("4.4", "beats the second best result of the small protocol by 6.3 in verification", "6.3",
               ensemble.tar - max(each.tar for each in small), "Table 5: ensemble, Deepsense - Small"),
        number("4.4", "better than models of the large protocol by 0.64 in identification", "0.64",
               ensemble.rank_1 - max(each.rank_1 for each in large), f"Table 5: ensemble, {best_rank}"),
        number("4.4", "better than models of the large protocol by 1.4 in verification", "1.4",
               ensemble.tar - max(each.tar for each in large), f"Table 5: ensemble, {best_tar}"),
        holds("4.4", "better than Google and NTechLAB by 0.64 in identification and 1.4 in verification",
              all((round(a, 2), round(b, 1)) == (0.64, 1.4) for a, b in gains.values()),
              "; ".join(f"{name} {a:.2f}, {b:.2f}" for name, (a, b) in gains.items()), "Table 5", text="0.64, 1.4"),
        Claim("4.4", "500 million for Google", "500", "-", f"Table 4: FaceNet {millions('FaceNet'):g}M", NOWHERE),
        Claim("4.4", "18 million for NTechLAB", "18", "-", "Table 5: no training data", NOWHERE),
        number("4.4", "single model: identification still 72.73", "72.73", single.rank_1, "Table 5"),
        number("4.4", "single model: verification still 85.56", "85.56", single.tar, "Table 5"),
        holds("4.4", "the single model already outperforms most state-of-the-art methods",
              2 * beaten[0] > len(ranks) and 2 * beaten[1] > len(tars),
              f"{beaten[0]} and {beaten[1]} of {len(ranks)} systems", "Table 5"),
        holds("4.4", "significant and consistent improvements over the other losses",
              all(single.rank_1 > each.rank_1 and single.tar > each.tar for each in rivals),
              f"best of them {max(each.rank_1 for each in rivals)} and {max(each.tar for each in rivals)}", "Table 5"),
    ]  # fmt: skip


def all_claims() -> list[Claim]:
    """All sentences, by section."""
    return [*formulas(), *settings(), *depths(), *verification(), *megaface()]


# The paper against the released code.


def default(function: Callable[..., Any], name: str) -> Any:
    """The default value of a parameter."""
    return inspect.signature(function).parameters[name].default


def differences() -> list[list[str]]:
    """Topic, paper, released code, our default as recipes and signatures have it, and how to choose the other."""
    ours, theirs, schedule = paper(), prototxt(), Annealing()
    last = next(step for step in range(1, 10_000) if float(schedule(step)) == schedule.minimum)
    passes = ours.batch * ours.steps / SETS["CASIA images"]
    gradient = f"gradient = {default(LOSSES['a_softmax'], 'gradient')!r}"
    caffe = f"--recipe prototxt, or loss option gradient = {theirs.loss_options['gradient']!r}"
    mtcnn = PRESETS["paper"]
    crops = [name for name in CROPS if name != "112x112"]
    return [
        ["psi on [0, pi/m]", "cos theta", "cos m theta", "cos m theta", "none: a misprint"],
        ["gradient of features", "of the loss", "psi's part a w + b x divided by sqrt(a^2 + b^2)", gradient, caffe],
        ["gradient of weights", "of the loss", "top^T x: no margin, no normalisation", gradient, caffe],
        ["unit weights", "normalised in each iteration", "rows set to length 1 in each forward pass",
         "w / |w| in the loss, rows set to length 1 after each step", caffe],
        ["lambda", "from very large to 5",
         f"{float(schedule(1)):.3f} first, {schedule.minimum:g} from step {last:,}", f"{schedule}",
         "table [annealing] of a recipe; loss option annealing = None: psi alone"],
        ["batch", "128 on four GPUs", "256 on each GPU",
         f"recipe paper: {ours.batch} in all, {passes:.1f} passes over CASIA-WebFace",
         f"--recipe prototxt: {theirs.batch} in all; --batch"],
        ["rate and steps", "0.1, a tenth of it at 16K and 24K, end at 28K", "the same",
         f"{ours.lr:g}, {listed(ours.milestones)}, {ours.steps}", "--lr, --steps, or a recipe file"],
        ["momentum, decay", "not stated", "0.9, 5e-4", f"{ours.momentum:g}, {ours.weight_decay:g}", "a recipe file"],
        ["rate in the momentum", "not stated", "v = mu v + lr g", f"caffe_momentum = {ours.caffe_momentum}",
         f"--recipe prototxt: caffe_momentum = {theirs.caffe_momentum}"],
        ["units of 64 layers", "3, 8, 16, 3: 64 convolutions", "3, 7, 16, 3: 62 convolutions",
         f"sphereface64: {listed(STAGES['sphereface64'])}",
         f"sphereface64_caffe: {listed(STAGES['sphereface64_caffe'])}"],
        ["activation", "not stated", "PReLU before the addition, 0.25 at start", "the released code's", "none"],
        ["initial values", "not stated", "Xavier by fan-in; in units Gaussian, 0.01", "the released code's", "none"],
        ["pixels", "(p - 127.5) / 128", "the same", f"(p - {Preprocessing().mean:g}) / {Preprocessing().scale:g}",
         "mean and scale on the card"],
        ["colour order", "RGB", "BGR", Preprocessing().colour,
         "networks trained on BGR: preprocessing.colour = 'BGR' on their card; training takes RGB"],
        ["template", "not printed", "five points that count from 1", f"{Preprocessing().template!r}: from 0",
         "data align --template matlab"],
        ["detector", "MTCNN", "20 px, factor 0.85, thresholds 0.6, 0.7, 0.9",
         f"{mtcnn.min_face:g} px, factor {mtcnn.factor:g}, thresholds {listed(mtcnn.thresholds)}",
         "data align --preset fast"],
        ["photos without a face", "not stated", "left out in silence", "left out and listed",
         "data align --misses centre, or fail"],
        ["people to train on", f"{SETS['CASIA people']:,} less those of the test sets",
         "10,572: without 0166921, 1056413, 1193098",
         f"reproduce: {SETS['CASIA people'] - len(IN_TEST_SETS):,}, without {', '.join(IN_TEST_SETS)}",
         "train --exclude FILE"],
        ["feature of a test", "image and mirror image, concatenated", "the same", Card().feature_rule,
         "feature_rule on the card: sum, image"],
        ["score on LFW", "cosine", "cosine after subtracting the mean of the other nine folds",
         f"rule = {Asked().rule!r}", "evaluate lfw --rule insightface, or best"],
        ["frames of a video", "not stated", "not released",
         f"{default(evaluate_ytf, 'policy')} of up to {default(evaluate_ytf, 'frames')}",
         "evaluate ytf --frames, --policy"],
        ["patches", "three, shown in a figure; features concatenated", "not released",
         f"{', '.join(crops)}; features at length 1, concatenated", "data align --crop"],
        ["weights of center and contrastive loss", "by cross-validation on the training set", "not released",
         f"{default(LOSSES['center'], 'weight'):g} and {default(LOSSES['contrastive'], 'weight'):g}; searched",
         "loss option weight"],
    ]  # fmt: skip


def run(setting: Setting) -> Result:
    """Compare the numbers of the text with the tables, and the paper with the released code."""
    claims, code = all_claims(), differences()
    head = ["where", "sentence", "text", "held against", "source", "agrees"]
    note = "A number agrees if it is the other one, rounded to the digits that the text prints."
    rows = [Row(claim, "derived" if claim.place[0] in "3G" else "published") for claim in claims]
    text = Table("claims", "Numbers and comparisons of the paper's text", head, rows, note)
    columns = ["topic", "paper", "released code", "ours", "the other"]
    rows = [Row(each, "published") for each in code]
    released = Table("code", "The paper, the authors' released code, and our default", columns, rows)
    counts = {answer: sum(claim.agrees == answer for claim in claims) for answer in (YES, NO, NOWHERE)}
    wrong = [claim for claim in claims if claim.agrees == NO]
    findings = [
        f"Of {len(claims)} numbers and comparisons of the text, {counts[YES]} agree with what they are held against, "
        f"{counts[NO]} do not, which follow, and {counts[NOWHERE]} are in no table.",
        *(f"{_place(claim.place)}: {claim.says}. {claim.where}: {claim.found}." for claim in wrong),
        f"In {len(code)} points the released code differs from the paper or fills in what it leaves open; the second "
        "table has our default for each, and how to choose the other.",
    ]
    numbers = {"counts": counts, "disagree": [f"{each.place}: {each.says}" for each in wrong]}
    title = "Numbers of the text against the tables, and the paper against its code"
    return Result("claims", title, setting.scale, findings, [text, released], numbers=numbers)


def _place(place: str) -> str:
    return f"Section {place}" if place[0].isdigit() else f"Appendix {place}" if len(place) == 1 else place
