"""A page for every protocol: it has the numbers of the result, and its figures show what a second count gives."""

import base64
import re
import sys
from dataclasses import replace

import cv2
import numpy as np
import pytest

from sphereface.contract import Card
from sphereface.data.lists.attributes import read_attributes
from sphereface.data.lists.pairs import read_pairs
from sphereface.data.synthetic.people import SyntheticPeople
from sphereface.data.synthetic.shapes import write_shape
from sphereface.evaluation import RULES, evaluate_lfw
from sphereface.evaluation.groups.compare import groups_of_set
from sphereface.evaluation.pages import write_report
from sphereface.evaluation.protocols.folder import evaluate_folder
from sphereface.evaluation.protocols.ijb import TIES, evaluate_ijb
from sphereface.evaluation.protocols.megaface import evaluate_megaface
from sphereface.evaluation.protocols.ytf import evaluate_ytf
from sphereface.evaluation.sources import WholeSet
from sphereface.metrics import mate_ranks, tar_at_far
from sphereface.reports import figures
from tests.evaluation.networks import tiles
from tests.reports.browser import complaints, needs_chromium

QUICK = {"rounds": 20}
NAMES = {"title": "A <test>", "command": "sphereface evaluate lfw --data 'a & b'"}


class Page:
    """A written report: its text, and each figure as it was drawn, by the beginning of its words.

    Only a `rendered` one has them as pixels, which take most of the time.
    """

    def __init__(self, result, folder, *, rendered=False, **options):
        self.drawn = {}
        render = figures.picture if rendered else lambda draw, says, **_: figures.Picture(b"", b"", says)

        def keep(draw, says, **how):
            self.drawn.setdefault(says.split(" ")[0].strip(":;"), []).append(draw("light"))
            return render(draw, says, **how)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(figures, "picture", keep)
            self.path = write_report(result, folder, **NAMES, **options)
        self.html = self.path.read_text()

    def lines(self, name, place=0):
        """The lines of a figure, by their names in the legend."""
        axes = self.drawn[name][place].axes[0]
        return {line.get_label(): line.get_xydata() for line in axes.lines}

    @property
    def figures(self):
        """How many pictures of each kind are on the page."""
        words = re.findall(r'<img src="data:image/png;base64,[^"]*" alt="([^"]+)"', self.html)
        kinds = [text.split(" ")[0].strip(":;") for text in words]
        return {kind: kinds.count(kind) for kind in kinds}

    def says(self, *texts):
        """Which of some texts the page lacks; a page escapes what it shows."""
        return [text for text in texts if text.replace("&", "&amp;").replace("'", "&#x27;") not in self.html]


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    return tiles(tmp_path_factory.mktemp("model") / "tiles.onnx")


def faces_of(root, paths):
    return np.stack([cv2.cvtColor(cv2.imread(str(root / path)), cv2.COLOR_BGR2RGB) for path in paths])


def unit(features):
    features = np.asarray(features, dtype=float)
    return features / np.linalg.norm(features, axis=1, keepdims=True)


# Pairs


@pytest.fixture(scope="module")
def lfw(tmp_path_factory, embedder):
    root = tmp_path_factory.mktemp("lfw") / "faces"
    write_shape(SyntheticPeople(seed=1), root, 20, 4, shape="lfw")
    result = evaluate_lfw(embedder, root, all_rules=True, **QUICK)
    pairs = read_pairs(root / "pairs.txt")
    names = sorted({name for pair in pairs for name in (pair.left, pair.right)})
    files = {path.with_suffix("").name: path for path in root.rglob("*.png")}
    found = [files[name.rpartition("/")[2].rpartition(".")[0]].relative_to(root) for name in names]
    units = dict(zip(names, unit(embedder.embed(faces_of(root, found))), strict=True))
    cosines = np.array([units[pair.left] @ units[pair.right] for pair in pairs])
    same = np.array([pair.same for pair in pairs])
    return result, Page(result, root.parent / "page"), cosines, same, root


def test_a_page_of_pairs_has_every_rule_number_and_fold(lfw):
    result, page, *_ = lfw
    for rule, report in result.reports.items():
        rates = [report.accuracy, report.auc, report.eer, *(rate for rate in report.tar.values() if rate)]
        assert page.says(*(rate.percent() for rate in rates)) == []
        assert page.says(f"Rule {rule}: {RULES[rule].sentence}. Features: {result.features[rule]}.") == []
        assert page.says(*(f"<td>{threshold:.4f}</td>" for threshold in report.thresholds)) == []
        assert page.says(*(f"<td>{100 * accuracy:.2f}</td>" for accuracy in report.accuracies)) == []
    assert len(re.findall(r"<tr><td>\d+</td>", page.html)) == 10  # folds
    assert page.figures == {"ROC": 1, "DET": 1, "Angles": 1}


def test_the_curves_of_pairs_are_those_of_cosines_counted_anew(lfw):
    _, page, cosines, same, _ = lfw
    roc, det = page.lines("ROC"), page.lines("DET")
    assert list(roc) == list(RULES)
    assert roc["best"][0, 0] == pytest.approx(1 / (~same).sum())
    assert roc["best"][-1].tolist() == [1, 1]
    for far, tar in roc["best"]:
        assert tar == pytest.approx(tar_at_far(same, cosines, far=far))
    for far, refused in det["best"][:-1]:
        assert refused == pytest.approx(1 - tar_at_far(same, cosines, far=far))


def test_the_histograms_of_angles_count_every_pair_of_the_rule(lfw, tmp_path):
    result, _, cosines, same, _ = lfw
    page = Page(replace(result, rule="best"), tmp_path)
    axes = page.drawn["Angles"][0].axes[0]
    bars = np.array([[bar.get_x(), bar.get_height() * bar.get_width()] for bar in axes.patches]).reshape(2, 90, 2)
    degrees = np.degrees(np.arccos(cosines))
    for drawn, some in zip(bars, (degrees[same], degrees[~same]), strict=True):
        counted = [((some >= start) & (some < start + 2)).sum() for start in range(0, 180, 2)]
        np.testing.assert_allclose(drawn[:, 1] * len(some), counted, atol=1e-6)
    threshold = np.degrees(np.arccos(result.reports["best"].thresholds[0]))
    assert axes.lines[0].get_xdata()[0] == pytest.approx(threshold)


def test_a_page_is_one_file_that_fetches_nothing_and_says_how_to_repeat_it(lfw):
    _, page, *_ = lfw
    assert [path.name for path in page.path.parent.iterdir()] == ["report.html"]
    assert "<script" not in page.html
    assert not re.search(r'(?:src|srcset|href)="(?!data:image/png;base64,)', page.html)
    assert page.says(NAMES["command"]) == []
    assert "<h1>A &lt;test&gt;</h1>" in page.html


def test_one_fold_has_no_table_of_folds(lfw, embedder, tmp_path):
    *_, root = lfw
    result = evaluate_lfw(embedder, root, rule="best", **QUICK)
    report = replace(result.report, accuracies=(0.75,), thresholds=(np.inf,), standard_error=None)
    page = Page(replace(result, reports={"best": report}), tmp_path)
    assert "Fold by fold" not in page.html
    assert page.drawn["Angles"][0].axes[0].lines[:] == []  # no angle is small enough to pass


def test_what_was_left_out_stands_before_the_numbers(lfw, tmp_path):
    result, *_ = lfw
    page = Page(replace(result, missing={"p1/1.png": "torn"}, notes=("made up",), scored=7), tmp_path)
    assert page.html.index("p1/1.png</td><td>torn") < page.html.index("What came out")
    assert page.says("1 images could not be used.", "Note: made up.", "7 of ") == []


# Videos


def test_a_page_of_videos_says_which_frames_counted(tmp_path, embedder):
    write_shape(SyntheticPeople(seed=2), tmp_path / "frames", 20, 1, shape="ytf")
    result = evaluate_ytf(embedder, tmp_path / "frames", policy="mean-score", frames=2, **QUICK)
    page = Page(result, tmp_path / "page")
    assert page.says(f"Frames: {result.frame_policy}.", result.sentence_of("authors")) == []
    assert page.says(result.report.accuracy.percent(), f"{result.embedded:,} frames.") == []
    assert page.figures == {"ROC": 1, "DET": 1, "Angles": 1}


# MegaFace


@pytest.fixture(scope="module")
def megaface(tmp_path_factory):
    rng = np.random.default_rng(3)
    who = np.arange(60) % 20
    probes = rng.normal(size=(20, 8))[who] + 0.8 * rng.normal(size=(60, 8))
    distractors = rng.normal(size=(500, 8))
    noise = {"noisy_probes": who == 0, "noisy_distractors": np.arange(500) % 10 == 1}
    result = evaluate_megaface(probes, who, distractors, sizes=(20, 500), ranks=40, far=0.02, **noise)
    a, b = np.nonzero((who[:, None] == who) & ~np.eye(60, dtype=bool))
    mates = (unit(probes) @ unit(probes).T)[a, b]
    negatives = unit(probes) @ unit(distractors).T
    return result, Page(result, tmp_path_factory.mktemp("megaface")), who, a, mates, negatives


def kinds(who, a, negatives):
    """All images, and those without noise: which pairs, probes and distractors."""
    clean = np.arange(negatives.shape[1]) % 10 != 1
    return (np.ones(len(a), bool), np.ones(len(who), bool), np.ones_like(clean)), (who[a] != 0, who != 0, clean)


def test_a_page_of_megaface_has_every_size_with_and_without_noise(megaface):
    result, page, *_ = megaface
    for at in (*result.raw, *result.cleaned):
        found = at.summary()
        rates = [found["rank1"], found["rank10"], *found["tar_at_far"].values()]
        assert page.says(*(f"<td>{100 * rate:.2f}</td>" for rate in rates)) == []
        assert page.says(*(f"<td>{threshold:.4f}</td>" for threshold in found["threshold_at_far"].values())) == []
        assert page.says(f"<td>{at.distractors:,}</td><td>{at.pairs:,}</td>") == []
    assert page.says(result.summary()["tie_rule"], "exact up to rank 40") == []
    assert page.figures == {"Rank": 1, "CMC": 2, "ROC": 2, "DET": 2, "Angles": 2}


def test_the_curves_of_megaface_are_those_of_the_whole_matrix(megaface):
    _, page, who, a, mates, negatives = megaface
    for place, (pairs, rows, columns) in enumerate(kinds(who, a, negatives)):
        for size in (20, 500):
            kept = columns & (np.arange(500) < size)
            name = f"{size:,} distractors"  # as listed
            ranks = mate_ranks(mates[pairs], negatives[a[pairs]][:, kept])
            cmc = page.lines("CMC", place)[name]
            assert cmc[:, 0].tolist() == list(range(1, len(cmc) + 1))
            np.testing.assert_allclose(cmc[:, 1], [(ranks <= rank).mean() for rank in cmc[:, 0]])
            label = ("all images", "without noise")[place]
            assert [size, cmc[0, 1]] in page.lines("Rank")[label].tolist()
            scores = negatives[rows][:, kept].ravel()
            same = np.repeat([True, False], [pairs.sum(), len(scores)])
            for far, tar in page.lines("ROC", place)[name]:
                assert tar == pytest.approx(tar_at_far(same, np.append(mates[pairs], scores), far=far))
            assert page.lines("ROC", place)[name][-1, 0] == pytest.approx(int(0.02 * len(scores)) / len(scores))


def test_angles_of_distractors_are_drawn_as_far_as_they_were_kept(megaface):
    _, page, _, _, _, negatives = megaface
    axes = page.drawn["Angles"][0].axes[0]
    drawn = axes.patches[1].get_data()
    degrees = np.degrees(np.arccos(np.clip(negatives.ravel(), -1, 1)))
    end = int(np.sort(degrees)[int(0.02 * degrees.size)])
    assert drawn.edges[-1] == end > 5
    counted = [((degrees >= start) & (degrees < start + 1)).mean() for start in range(end)]
    np.testing.assert_allclose(drawn.values, counted)


@pytest.fixture(scope="module")
def rendered(megaface, tmp_path_factory):
    return Page(replace(megaface[0], cleaned=None), tmp_path_factory.mktemp("rendered"), rendered=True)


def test_figures_are_pictures_for_light_and_for_dark_pages(rendered):
    assert rendered.figures == {"Rank": 1, "CMC": 1, "ROC": 1, "DET": 1, "Angles": 1}
    pairs = re.findall(
        r'srcset="data:image/png;base64,([^"]+)"><img src="data:image/png;base64,([^"]+)"', rendered.html
    )
    assert len(pairs) == 5
    for dark, light in pairs:
        assert dark != light
        assert min(decoded(dark).shape[:2]) > 300


@needs_chromium
def test_chromium_opens_a_page_of_megaface_on_a_phone_in_the_dark(rendered):
    assert complaints(rendered.path, scheme="dark", width=390) == []


# IJB


@pytest.fixture(scope="module")
def ijb(tmp_path_factory, embedder):
    root = tmp_path_factory.mktemp("ijb")
    write_shape(SyntheticPeople(seed=5), root / "IJBC", 12, 6, shape="ijb")
    result = evaluate_ijb(embedder, root / "IJBC", faces=root / "IJBC", **QUICK)
    return result, Page(result, root / "page")


def test_a_page_of_ijb_has_pairs_galleries_and_their_mean(ijb):
    result, page = ijb
    rates = [*result.verification.tar.values()]
    for gallery in (*result.galleries, result.mean):
        rates += [*gallery.rank.values(), *gallery.tpir.values()]
        assert page.says(gallery.name) == []
    assert page.says(*(rate.percent() for rate in rates if rate), TIES, result.pooling) == []
    assert page.figures == {"ROC": 1, "DET": 1, "Angles": 1, "CMC": 1, "Open": 1}


def test_the_curves_of_galleries_are_counted_from_every_probe(ijb):
    result, page = ijb
    for gallery in result.galleries:
        search = gallery.search
        cmc = page.lines("CMC")[gallery.name]
        assert cmc[:, 0].tolist() == list(range(1, gallery.templates + 1))
        for rank, share in cmc:
            assert share == pytest.approx(sum(own <= rank for own in search.ranks) / gallery.mated)
        assert {rank: cmc[rank - 1, 1] for rank in (1, 5)} == {
            rank: pytest.approx(gallery.rank[rank].value) for rank in (1, 5)
        }
        for fpir, tpir in page.lines("Open")[gallery.name]:
            cuts = [cut for cut in (*search.highest, np.inf) if (search.highest > cut).mean() <= fpir + 1e-12]
            passed = search.scores > min(cuts) if fpir < 1 else np.ones(gallery.mated, bool)
            assert tpir == pytest.approx(((search.ranks == 1) & passed).mean())


def test_what_ijb_has_no_list_for_is_not_on_the_page(ijb, tmp_path):
    result, _ = ijb
    only_pairs = Page(replace(result, galleries=(), mean=None), tmp_path / "a")
    only_galleries = Page(replace(result, verification=None), tmp_path / "b")
    assert only_pairs.figures == {"ROC": 1, "DET": 1, "Angles": 1}
    assert only_galleries.figures == {"CMC": 1, "Open": 1}
    assert "1:N" not in only_pairs.html
    assert "1:1" not in only_galleries.html


# Your own people, and groups


@pytest.fixture(scope="module")
def people(tmp_path_factory, embedder):
    root = tmp_path_factory.mktemp("own") / "people"
    SyntheticPeople(seed=1).write(root, 16, 3)
    options = {"pairs": 30, "splits": 2, "fpirs": (0.1, 1e-3), "hardest": 3}
    result = evaluate_folder(embedder, root, **options, **QUICK)
    return result, Page(result, root.parent / "page"), root


def test_a_page_of_your_people_has_pairs_ranks_and_the_hardest_as_pictures(people):
    result, page, root = people
    found = result.identification
    assert page.says(result.verification.report.accuracy.percent(), found.rank1.percent()) == []
    assert page.says(found.open_set[0.1].dir.percent(), found.reasons[1e-3]) == []
    assert page.lines("CMC")["16 people"][:, 1].tolist() == list(found.cmc)
    assert page.figures == {"ROC": 1, "DET": 1, "Angles": 1, "CMC": 1, "3": 2}
    sheets = re.findall(r'<img src="data:image/png;base64,([^"]+)" alt="3 pairs of faces', page.html)
    for sheet, pairs in zip(sheets, (result.hardest[:3], result.hardest[3:]), strict=True):
        picture = cv2.cvtColor(decoded(sheet), cv2.COLOR_BGR2RGB)
        for place, pair in enumerate(pairs):
            start = place * picture.shape[1] // 4 + 2
            both = np.hstack(list(faces_of(root, [pair.left, pair.right])))
            np.testing.assert_array_equal(picture[2:114, start : start + 192], both)
            assert page.says(f"{pair.score:+.4f}") == []


def decoded(text):
    return cv2.imdecode(np.frombuffer(base64.b64decode(text), np.uint8), cv2.IMREAD_COLOR)


def test_without_faces_the_hardest_pairs_are_a_table(people, tmp_path):
    result, *_ = people
    html = Page(replace(result, faces=None), tmp_path).html
    assert "pairs of faces" not in html
    assert f"<td>{result.hardest[0].left}</td><td>{result.hardest[0].right}</td><td>same</td>" in html


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    """Two groups of 24 people: those of b look alike."""
    rng = np.random.default_rng(0)
    names = [f"p{number:02d}" for number in range(48)]
    points = rng.normal(size=(48, 16)) + np.where(np.arange(48) < 24, 0, 0.7)[:, None] * rng.normal(size=16)
    labels = np.repeat(np.arange(48), 4)
    features = (points[labels] + 0.7 * rng.normal(size=(192, 16))).astype(np.float32)
    paths = [f"{names[label]}/{place}.png" for place, label in enumerate(labels)]
    whole = WholeSet("made up", features, labels, names, paths, Card(name="none"), {})
    table = tmp_path_factory.mktemp("groups") / "groups.csv"
    table.write_text("person,group\n" + "".join(f"{name},{'ab'[k // 24]}\n" for k, name in enumerate(names)))
    return groups_of_set(whole, read_attributes(table), far=1e-2, rounds=100)


def test_groups_come_with_rates_a_heat_map_and_what_was_found(people, groups, tmp_path):
    result, *_ = people
    page = Page(result, tmp_path, groups=groups)
    (attribute,) = groups.attributes
    assert [finding.group for finding in groups.findings if finding.which == "FMR"] == ["b"]
    assert page.says(*(f"Found: {finding.sentence}." for finding in groups.findings)) == []
    for line in attribute.groups:
        assert page.says(f"<td>{line.name}</td><td>24</td><td>96</td><td>{line.fmr.value:.3g} [") == []
        assert page.says(f"<td>{line.fnmr.value:.3g} [") == []
    ratio = attribute.max_over_min["FMR"]
    assert page.says(f"<td>FMR max / min</td><td>{ratio.value:.2f} [", "<td>b over a</td>") == []
    shown = page.drawn["False"][0].axes[0].images[0].get_array()
    np.testing.assert_array_equal(shown, [[rate.value for rate in row] for row in attribute.matrix])
    assert page.says("of b with b") == []  # the highest, in words
    assert page.figures["False"] == 1


def test_groups_of_the_result_itself_are_shown_and_nothing_found_is_said(people, groups, tmp_path):
    result, *_ = people
    html = Page(replace(result, groups=replace(groups, findings=())), tmp_path).html
    assert "Found: nothing" in html
    assert "Groups: group" in html


# What is not there


def test_without_matplotlib_nothing_is_written_and_the_error_names_it(lfw, tmp_path, monkeypatch):
    result, *_ = lfw
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="needs matplotlib") as caught:
        write_report(result, tmp_path / "page", **NAMES)
    assert caught.value.name == "matplotlib"
    assert not (tmp_path / "page").exists()
