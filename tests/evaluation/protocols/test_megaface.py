"""MegaFace against the whole matrix of scores, which only a test can afford."""

import json
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import pytest

from sphereface.arrays import unit_rows
from sphereface.data.lists.megaface import MegaFaceImage, write_megaface
from sphereface.errors import DataFormatError
from sphereface.evaluation.protocols.megaface import evaluate_megaface, protocol_of, usual_sizes
from sphereface.evaluation.protocols.megaface_files import load_megaface
from sphereface.evaluation.streaming.highest_pairs import HighestPairs
from sphereface.evaluation.streaming.scores import StreamedScores, dots, map_features
from sphereface.metrics import mate_ranks, roc, tar_at_far, threshold_at_far
from sphereface.metrics.upper_tail import UpperTail


def unit32(rows):
    return unit_rows(rows, dtype=np.float32)


def score_matrix(probes, others):
    """Every cosine, a row at a time."""
    a, b = unit32(probes), unit32(others)
    return np.array([dots(np.broadcast_to(row, b.shape), b) for row in a])


@dataclass
class Problem:
    """Features and all their scores; `mates` are those of every ordered pair, a row of the matrix each."""

    probes: np.ndarray
    people: np.ndarray
    distractors: np.ndarray

    def __post_init__(self):
        pairs = [
            (a, b) for a, left in enumerate(self.people) for b, right in enumerate(self.people)
            if a != b and left == right
        ]  # fmt: skip
        self.rows = np.array([a for a, _ in pairs])
        self.negatives = score_matrix(self.probes, self.distractors)
        self.positives = score_matrix(self.probes, self.probes)[tuple(np.array(pairs).T)]

    def ranks(self, columns=slice(None)):
        pieces = np.array_split(np.arange(len(self.rows)), -(-len(self.rows) // 256))
        found = [mate_ranks(self.positives[some], self.negatives[self.rows[some]][:, columns]) for some in pieces]
        return np.concatenate(found)

    @cached_property
    def curve(self):
        return roc(*self.answers())

    def at_far(self, far):
        """TAR and threshold, as `sphereface.metrics` read them off the whole curve, which is sorted only once here."""
        place = np.searchsorted(self.curve.far, far * (1 + 1e-12), side="right") - 1
        return self.curve.tar[place], self.curve.thresholds[place]

    def answers(self, columns=slice(None)):
        """Truth and score of each pair of the verification, as `sphereface.metrics` takes them."""
        negatives = self.negatives[:, columns].ravel()
        same = np.repeat([True, False], [len(self.positives), len(negatives)])
        return same, np.concatenate([self.positives, negatives])


def smooth(rng, probes, people, distractors, features):
    """Faces of people, strangers, and copies: of strangers, of probes and of the same two photos under one name."""
    who = np.arange(probes) % people
    seen = rng.normal(size=(people, features))[who] + rng.normal(size=(probes, features)) * 1.2
    strangers = rng.normal(size=(distractors, features))
    strangers[rng.permutation(distractors)[: distractors // 10]] = strangers[: distractors // 10]
    copied = rng.permutation(distractors)[: 2 * probes]
    strangers[copied] = np.concatenate([seen, seen])
    seen[people] = seen[0]
    return seen.astype(np.float32), who, strangers.astype(np.float32)


def coarse(rng, probes, people, distractors, features):
    """Features of signs alone, of any length: a few dozen scores in all, so that nearly everything ties."""
    who = np.arange(probes) % people
    signs = np.sign(rng.normal(size=(people, features)))[who] * np.where(rng.random((probes, features)) < 0.3, -1, 1)
    strangers = np.sign(rng.normal(size=(distractors, features)))
    return (signs * 4).astype(np.float32), who, (strangers / 2).astype(np.float32)


@pytest.fixture(scope="module", params=[smooth, coarse], ids=["smooth", "coarse"])
def large(request):
    return Problem(*request.param(np.random.default_rng(6), 200, 20, 20_000, 16))


@pytest.fixture(scope="module")
def small():
    return Problem(*smooth(np.random.default_rng(1), 30, 6, 700, 8))


def test_every_rank_and_every_far_are_those_of_the_whole_matrix(large):
    total = large.negatives.size
    (found,) = evaluate_megaface(
        large.probes, large.people, large.distractors, sizes=[20_000], ranks=20_001, far=1.0
    ).raw
    assert (found.size, found.distractors, found.pairs) == (20_000, 20_000, 200 * 9)
    at_rank = np.bincount(large.ranks(), minlength=20_002)
    assert np.array_equal(found.cmc, np.cumsum(at_rank[1:]) / found.pairs)
    curve, expected = found.verification.roc(), large.curve
    place = (
        np.searchsorted(expected.far, np.append(np.arange(5000), np.arange(0, total, 997)) / total, side="right") - 1
    )
    asked = expected.far[place]
    assert np.array_equal(curve.tar[np.searchsorted(curve.far, asked, side="right") - 1], expected.tar[place])
    assert set(curve.thresholds) == {np.inf, *large.positives}
    for far in (0, 1e-6, 1e-5, 3e-4, 0.02, 0.7, 1.0):
        found_there = found.verification.tar_at_far(far), found.verification.threshold_at_far(far)
        assert found_there == large.at_far(far)


def cosines(rows, others):
    """Every cosine (N, M) in float64, and nothing of ours; equal rows have equal cosines to the last bit."""
    a, b = (m / np.sqrt((m * m).sum(1, keepdims=True)) for m in (rows.astype(float), others.astype(float)))
    return (a[:, None] * b[None]).sum(2)


def with_copies_of_mates(rng, who):
    """Faces and strangers of 96 numbers, some copies of probes; no cosine is nearly, but not quite, that of a pair."""
    seen = rng.normal(size=(8, 96))[who] + rng.normal(size=(40, 96))
    strangers = rng.normal(size=(3000, 96)) + 0.15 * seen[rng.integers(40, size=3000)]
    strangers[::100] = seen[np.arange(30) % 15]
    seen, strangers = seen.astype(np.float32), strangers.astype(np.float32)
    pairs = np.sort(cosines(seen, seen)[(who[:, None] == who) & ~np.eye(40, dtype=bool)])
    scores = cosines(seen, strangers)
    place = np.searchsorted(pairs, scores).clip(1, len(pairs) - 1)
    off = np.minimum(np.abs(scores - pairs[place - 1]), np.abs(scores - pairs[place]))
    decided = ((off == 0) | (off > 1e-6)).all(0)  # float32 is exact to some 1e-7
    return seen, strangers[decided][:2000]


def of_signs(rng, who):
    """64 signs each: lengths and cosines are exact in any arithmetic, and there are 33 cosines in all."""
    seen = np.sign(rng.normal(size=(8, 64)))[who] * np.where(rng.random((40, 64)) < 0.18, -1, 1)
    return seen.astype(np.float32), np.sign(rng.normal(size=(2000, 64))).astype(np.float32)


@pytest.mark.parametrize("problem", [with_copies_of_mates, of_signs])
def test_every_rank_and_every_number_of_accepted_strangers_are_those_of_plain_float64(problem):
    who = np.arange(40) % 8
    seen, strangers = problem(np.random.default_rng(8), who)
    assert strangers.shape == (2000, seen.shape[1])
    (found,) = evaluate_megaface(seen, who, strangers, sizes=[2000], ranks=2001, far=1.0).raw
    negatives = cosines(seen, strangers)
    rows, mates = np.nonzero((who[:, None] == who) & ~np.eye(40, dtype=bool))
    positives = cosines(seen, seen)[rows, mates]
    assert np.isin(positives, negatives).sum() > 20  # ties that count against the mate
    ranks = 1 + (negatives[rows] >= positives[:, None]).sum(1)
    assert np.array_equal(found.cmc, [np.mean(ranks <= rank) for rank in range(1, 2002)])
    assert 0.05 < found.rank1 < 0.95

    best = np.zeros(negatives.size + 1)  # TAR of the best threshold that accepts so many strangers, then: or fewer
    flat = np.sort(negatives, axis=None)
    for threshold in np.unique(positives):
        accepted = len(flat) - np.searchsorted(flat, threshold)
        best[accepted] = max(best[accepted], np.mean(positives >= threshold))
    best = np.maximum.accumulate(best)
    rates = np.arange(negatives.size + 1) / negatives.size
    assert np.array_equal([found.verification.tar_at_far(rate) for rate in rates], best)


def test_with_little_kept_low_rates_and_ranks_are_still_those_of_a_sort(large):
    (found,) = evaluate_megaface(
        large.probes, large.people, large.distractors, sizes=[20_000], ranks=50, far=1e-4, block=3000
    ).raw
    assert len(found.verification.negatives) == 401
    assert np.array_equal(found.verification.negatives, -np.sort(-large.negatives, axis=None)[:401])
    ranks = large.ranks()
    assert np.array_equal(found.cmc, [np.mean(ranks <= rank) for rank in range(1, 51)])
    for far in (0, 1e-6, 2e-6, 1e-5, 1e-4):
        assert found.verification.tar_at_far(far) == large.at_far(far)[0]
    with pytest.raises(ValueError, match="401 highest kept"):
        found.verification.tar_at_far(2e-4)


@pytest.mark.parametrize("ties", [False, True], ids=["different", "many alike"])
def test_the_highest_pairs_of_a_stream_are_those_of_a_sort_however_often_some_are_dropped(ties):
    rng = np.random.default_rng(9)
    probes, others = np.sign(rng.normal(size=(2, 60, 40, 7))) if ties else rng.normal(size=(2, 60, 40, 7))
    probes, others = probes.reshape(-1, 7)[:50], others.reshape(-1, 7)
    scores = StreamedScores(probes, others, block=100)
    found = HighestPairs(120, error=scores.error, exact=scores.exact, room=256)
    for first, piece in scores.blocks([len(others)]):
        rows, columns = np.nonzero(piece >= found.cut)
        found.add(piece[rows, columns], rows, columns + first)
    assert found.cut > 0.5  # much was dropped
    assert np.array_equal(found.highest(120), -np.sort(-score_matrix(probes, others), axis=None)[:120])


def numbers(at_size):
    curve = at_size.verification.roc()
    return (at_size.size, at_size.distractors, at_size.pairs, at_size.cmc.tolist(), *(part.tolist() for part in curve))


def test_the_block_changes_no_bit(small):
    def run(block):
        result = evaluate_megaface(small.probes, small.people, small.distractors, ranks=40, far=0.01, block=block)
        return [numbers(at_size) for at_size in result.raw]

    expected = run(None)
    assert all(run(block) == expected for block in (7, 333, 5000))


def test_how_much_is_looked_at_at_once_changes_no_bit(small):
    whole = StreamedScores(small.probes, small.distractors, block=333)
    parts = StreamedScores(small.probes, small.distractors, block=333, view=30 * 17, products=8 * 5)
    stops = [10, 500, 700]
    pieces = [(first, piece.copy()) for first, piece in parts.blocks(stops)]
    assert max(piece.shape[1] for _, piece in pieces) == 17
    assert [first for first, _ in pieces] == np.cumsum([0, *(piece.shape[1] for _, piece in pieces)])[:-1].tolist()
    expected = np.concatenate([piece.copy() for _, piece in whole.blocks(stops)], axis=1)
    assert np.array_equal(np.concatenate([piece for _, piece in pieces], axis=1), expected)
    rows, columns = np.divmod(np.random.default_rng(0).permutation(30 * 700)[:2000], 700)
    assert np.array_equal(parts.exact(rows, columns), small.negatives[rows, columns])
    assert np.array_equal(parts.exact(rows, columns), whole.exact(rows, columns))


def test_sizes_are_the_first_distractors_or_the_rows_of_lists(small):
    grown = evaluate_megaface(small.probes, small.people, small.distractors, far=1.0)
    assert [at_size.size for at_size in grown.raw] == [10, 100, 700]
    rng = np.random.default_rng(2)
    lists = {size: rng.permutation(700)[:size] for size in (7, 300, 500)}
    listed = evaluate_megaface(small.probes, small.people, small.distractors, sizes=lists, far=1.0, block=100)
    cases = [(at_size, slice(at_size.size)) for at_size in grown.raw]
    cases += [(at_size, lists[at_size.size]) for at_size in listed.raw]
    assert len(cases) == 6
    for at_size, columns in cases:
        same, scores = small.answers(columns)
        assert at_size.rank1 == np.mean(small.ranks(columns) == 1)
        assert at_size.verification.total == (~same).sum()
        assert at_size.verification.tar_at_far(0.05) == tar_at_far(same, scores, far=0.05)
        assert at_size.verification.threshold_at_far(0.05) == threshold_at_far(same, scores, far=0.05)


def test_no_distractor_is_ever_passed_over_unless_sizes_are_asked_for():
    for total in (1, 9, 10, 11, 40, 100, 999_999, 1_000_000, 1_000_001, 30_000_000):
        sizes = usual_sizes(total)
        powers = [10**k for k in range(1, 7) if 10**k <= total]
        assert sizes == sorted({*powers, total})
    found = evaluate_megaface(np.eye(3)[[0, 0]], [0, 0], np.eye(3)[[1, 2] * 5 + [0]])
    assert [at_size.rank1 for at_size in found.raw] == [1, 0]  # the eleventh is the mate's double


def test_without_noise_is_as_if_it_had_never_been_listed(small):
    rng = np.random.default_rng(3)
    noisy_probes, noisy_distractors = rng.random(30) < 0.3, rng.random(700) < 0.1
    result = evaluate_megaface(
        small.probes, small.people, small.distractors, sizes=[200, 700], far=0.1, block=64,
        noisy_probes=noisy_probes, noisy_distractors=noisy_distractors,
    )  # fmt: skip
    plain = evaluate_megaface(small.probes, small.people, small.distractors, sizes=[200, 700], far=0.1)
    assert [numbers(at_size) for at_size in result.raw] == [numbers(at_size) for at_size in plain.raw]
    assert plain.cleaned is None
    kept = ~noisy_distractors
    for size, cleaned in zip((200, 700), result.cleaned, strict=True):
        left = small.distractors[:size][kept[:size]]
        (alone,) = evaluate_megaface(
            small.probes[~noisy_probes], small.people[~noisy_probes], left, sizes=[len(left)], far=0.1
        ).raw
        assert numbers(cleaned)[1:] == numbers(alone)[1:]
    assert (result.noisy_probes, result.noisy_distractors) == (noisy_probes.sum(), noisy_distractors.sum())


def test_a_copy_of_the_mate_among_the_distractors_comes_before_it():
    rng = np.random.default_rng(4)
    probes = rng.normal(size=(2, 512)).astype(np.float32)
    probes[1] += 3 * probes[0]
    distractors = rng.normal(size=(3000, 512)).astype(np.float32)
    (alone,) = evaluate_megaface(probes, [0, 0], distractors, sizes=[3000], ranks=5).raw
    distractors[[17, 1203, 2999]] = probes[1]
    (found,) = evaluate_megaface(probes, [0, 0], distractors, sizes=[3000], ranks=5, block=500).raw
    assert alone.cmc.tolist() == [1, 1, 1, 1, 1]
    assert found.cmc.tolist() == [0, 0, 0, 1, 1]  # for one probe its mate was copied; for the other, the probe itself


def test_a_model_that_gives_one_feature_to_everybody_finds_nobody():
    """Of 100,000 equal scores most are dropped."""
    (found,) = evaluate_megaface(
        np.ones((10, 5)), [0] * 10, np.ones((10_000, 5)), sizes=[10_000], ranks=999, far=0.01
    ).raw
    assert not found.cmc.any()
    assert found.verification.tar_at_far(0.01) == 0
    assert found.verification.threshold_at_far(0.01) == np.inf
    assert len(found.verification.negatives) == 1001


def test_a_matrix_product_stays_within_the_error_that_is_allowed_for():
    rng = np.random.default_rng(5)
    for features in (1, 3, 1024):
        aligned = np.abs(rng.normal(size=(20, features)))  # all products of one sign: as large a sum as there is
        scores = StreamedScores(aligned, np.abs(rng.normal(size=(150, features))), block=50)
        off = 0.0
        for first, piece in scores.blocks([150]):
            rows, columns = np.divmod(np.arange(piece.size), piece.shape[1])
            off = max(off, np.abs(piece.ravel() - scores.exact(rows, columns + first)).max())
        assert off <= scores.error


def test_scores_depend_on_two_rows_alone():
    rng = np.random.default_rng(7)
    for features in (1, 7, 130, 1024):
        rows = rng.normal(size=(50, features)).astype(np.float32)
        whole = dots(unit32(rows), unit32(rows[::-1]))
        assert np.array_equal(whole, dots(unit32(rows[::-1]), unit32(rows)))
        for place in range(50):
            alone = unit32(rows[place : place + 1]), unit32(rows[49 - place : 50 - place])
            assert dots(*alone)[0] == whole[place]


def test_a_tail_judges_what_it_can_and_says_what_it_cannot():
    found = UpperTail(np.array([0.9, 0.5, 0.5, 0.2]), np.array([0.6, 0.5, 0.3]), 100)
    assert found.roc().far.tolist() == [0, 0, 0.02]
    assert found.roc().tar.tolist() == [0, 0.25, 0.75]
    assert [found.tar_at_far(far) for far in (0, 0.01, 0.02)] == [0.25, 0.25, 0.75]
    assert [found.threshold_at_far(far) for far in (0, 0.01, 0.02)] == [0.9, 0.6, 0.5]
    with pytest.raises(ValueError, match=r"FAR 0\.03 of 100 negatives; the 3 highest kept end before it"):
        found.tar_at_far(0.03)
    with pytest.raises(ValueError, match="wanted a share"):
        found.tar_at_far(1.5)


def test_the_summary_is_json_and_names_its_rules(small):
    result = evaluate_megaface(small.probes, small.people, small.distractors, protocol="large", probe_set="FGNet")
    payload = json.loads(json.dumps(result.summary()))
    assert payload["protocol"] == "MegaFace, FGNet, large"
    assert "before the mate" in payload["tie_rule"]
    assert payload["raw"][0]["tar_at_far"] == {}  # 300 negatives cannot support 1e-3
    assert list(payload["raw"][1]["tar_at_far"]) == ["0.001"]
    assert list(payload["raw"][0]["cmc"]) == ["1", "2", "5", "10"]
    assert payload["raw"][2]["cmc"] == {
        str(rank): np.mean(small.ranks() <= rank) for rank in (1, 2, 5, 10, 20, 50, 100, 200, 500)
    }
    assert protocol_of(494_414) == "small"
    assert protocol_of(5_800_000) == "large"


BAD = {
    "a NaN": ({"distractors": np.full((1, 8), np.nan)}, "of distractor 700 has a number that is not finite"),
    "a zero": ({"distractors": np.zeros((1, 8))}, "the feature of distractor 700 has length zero"),
    "other features": ({"distractors": np.ones((1, 9))}, r"\(30, 8\) and \(1, 9\)"),
    "too few people": ({"people": [1, 2]}, "wanted one for each of 30 probes"),
    "no two photos": ({"people": np.arange(30)}, "30 probes of 30 people"),
    "a large size": ({"sizes": [10, 701]}, "size 701 of 700 distractors"),
    "no size": ({"sizes": []}, "no sizes"),
    "a wrong list": ({"sizes": {3: [1, 1, 2]}}, "wanted 3 different ones below 700"),
    "ranks": ({"ranks": 0}, "ranks is 0"),
    "a rate": ({"far": 2.0}, "far is 2.0"),
    "a block": ({"block": 0}, "block is 0"),
    "a protocol": ({"protocol": "medium"}, "unknown protocol 'medium'"),
    "noise of another length": ({"noisy_probes": np.zeros(3, dtype=bool)}, r"wanted a bool for each probe, \(30,\)"),
    "all noise": ({"noisy_distractors": np.ones(700, dtype=bool)}, "distractors are noise"),
    "all probes noise": ({"noisy_probes": np.ones(30, dtype=bool)}, "no person has two photos"),
}  # fmt: skip


@pytest.mark.parametrize(("changed", "said"), BAD.values(), ids=BAD)
def test_what_cannot_be_judged_is_said(small, changed, said):
    given = {"probes": small.probes, "people": small.people, "distractors": small.distractors, "sizes": None} | changed
    if "distractors" in changed and changed["distractors"].shape[1] == 8:
        given["distractors"] = np.concatenate([small.distractors, changed["distractors"]])
        given["sizes"] = [701]
    with pytest.raises(ValueError, match=said):
        evaluate_megaface(**given)


def test_more_negatives_than_fit_are_refused_before_any_is_scored():
    probes, people = np.ones((16_385, 1)), np.maximum(np.arange(16_385), 1)
    with pytest.raises(ValueError, match="268,451,840 of 268,451,840 negatives to keep; wanted at most 268,435,456"):
        evaluate_megaface(probes, people, np.ones((16_384, 1)), far=1.0)


@pytest.fixture
def folder(tmp_path, small):
    names = [f"p{person}/p{person} {number}.png" for number, person in enumerate(small.people)]
    people = [str(person) for person in small.people]
    write_megaface(tmp_path / "probes.json", map(MegaFaceImage, names, people))
    write_megaface(tmp_path / "distractors.json", [MegaFaceImage(f"1/2/{n}.jpg", None) for n in range(700)])
    write_megaface(tmp_path / "distractors.json_50_1", [MegaFaceImage(f"1/2/{n}.jpg", None) for n in range(0, 700, 14)])
    np.save(tmp_path / "probes.npy", small.probes)
    np.save(tmp_path / "distractors.npy", small.distractors)
    (tmp_path / "probe_noise.txt").write_text("# of faces\np3_3.png\np1_1.png\n")
    (tmp_path / "distractor_noise.txt").write_text("9\t1/2/7.jpg\n1/2/699.jpg\nelsewhere.jpg\n")
    return tmp_path


def load(folder, **changed):
    given = {
        "probe_list": folder / "probes.json", "distractor_list": folder / "distractors.json",
        "probe_features": folder / "probes.npy", "distractor_features": folder / "distractors.npy",
        "probe_noise": folder / "probe_noise.txt", "distractor_noise": folder / "distractor_noise.txt",
    }  # fmt: skip
    return load_megaface(**given | changed)


def test_lists_and_files_give_the_result_of_their_arrays(folder, small):
    found = load(folder).evaluate(sizes=[700], far=0.1)
    noisy_probes, noisy_distractors = np.isin(np.arange(30), [1, 3]), np.isin(np.arange(700), [7, 699])
    expected = evaluate_megaface(
        small.probes, small.people, small.distractors, sizes=[700], far=0.1,
        noisy_probes=noisy_probes, noisy_distractors=noisy_distractors,
    )  # fmt: skip
    payload = found.summary()
    assert payload.pop("unmatched_noise") == [
        {"file": "distractor_noise.txt", "of": "distractor", "names": 3, "unmatched": 1, "example": "elsewhere.jpg"}
    ]
    assert payload | {"unmatched_noise": []} == expected.summary()
    assert found.cleaned[0].distractors == 698
    listed = load(folder, size_lists={50: folder / "distractors.json_50_1"}).evaluate(far=0.1)
    assert listed.raw[0].rank1 == np.mean(small.ranks(np.arange(0, 700, 14)) == 1)


def test_a_list_of_noise_about_other_images_is_refused_with_a_name_and_a_path(folder):
    (folder / "probe_noise.txt").write_text("# of faces\n7\n9\n")
    with pytest.raises(
        DataFormatError,
        match=r"probe_noise.txt: none of its 2 names, such as '7', is of a probe of .*s.json, such as 'p0/p0 0.png'",
    ):
        load(folder)
    (folder / "empty.txt").write_text("# none\n")
    with pytest.raises(DataFormatError, match=r"empty.txt: no name in it; wanted the noise among the distractors"):
        load(folder, probe_noise=None, distractor_noise=folder / "empty.txt")


def note(heard, done, total):
    heard.append((done, total))


def test_progress_ends_where_it_was_said_to(folder):
    listed = load(folder, size_lists={50: folder / "distractors.json_50_1"})
    for found, sizes, last in ((load(folder), (), 700), (load(folder), (30, 20), 30), (listed, (), 687)):
        heard = []
        found.evaluate(**{"sizes": sizes} if sizes else {}, far=0.1, progress=partial(note, heard))
        assert heard[-1] == (last, last)


def test_features_are_mapped_and_never_read_at_once(folder):
    found = load(folder)
    assert isinstance(found.distractors, np.memmap)
    assert isinstance(map_features(folder / "probes.npy"), np.memmap)


def test_files_that_are_not_what_they_should_be_are_named(folder):
    whole = (folder / "distractors.npy").read_bytes()
    (folder / "cut.npy").write_bytes(whole[:-1])
    with pytest.raises(DataFormatError, match=r"cut.npy: no whole .npy file"):
        load(folder, distractor_features=folder / "cut.npy")
    (folder / "empty.npy").write_bytes(b"")
    with pytest.raises(DataFormatError, match=r"empty.npy: no whole .npy file"):
        load(folder, distractor_features=folder / "empty.npy")
    with pytest.raises(DataFormatError, match=r"none.npy: cannot be read"):
        load(folder, distractor_features=folder / "none.npy")
    with pytest.raises(DataFormatError, match=r"probes.npy: 30 features; wanted 700, one for each image of .*json"):
        load(folder, distractor_features=folder / "probes.npy")
    np.save(folder / "whole.npy", np.ones((700, 8), dtype=int))
    with pytest.raises(DataFormatError, match=r"int64 \(700, 8\); wanted features"):
        load(folder, distractor_features=folder / "whole.npy")
    with pytest.raises(DataFormatError, match="unknown person"):
        load(folder, probe_list=folder / "distractors.json")
    with pytest.raises(ValueError, match=r"'p0/p0 0.png' is not among the 700 images"):
        load(folder, size_lists={30: folder / "probes.json"})
