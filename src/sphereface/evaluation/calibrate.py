"""Thresholds for stated error rates, measured on people of one's own, and what they are worth.

1:1: the false accept rate (FAR) is the share of pairs of different people that score at least the threshold, over all
pairs of the photos. 1:N: the false positive identification rate (FPIR) at a gallery's size is the share of searches,
for people who are not in it, whose best score reaches the threshold; everybody in the gallery has one photo there.

Rates are measured where the people suffice, and refused where they do not: `metrics/support.py` has the rule.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sphereface.contract import METADATA_KEY, Card, FeatureRule, ImpostorTail, Threshold
from sphereface.data.writing import whole_file
from sphereface.embed import store
from sphereface.errors import ContractMismatch
from sphereface.evaluation.streams import Features, Floats, Places, Scores, Units, unit_rows
from sphereface.evaluation.tail import HighestPairs
from sphereface.graphs import with_metadata
from sphereface.metrics.bootstrap import PeopleBootstrap
from sphereface.metrics.rates import ROUNDS
from sphereface.metrics.support import (
    EVENTS,
    comparison_rate,
    lowest_far,
    people_for_far,
    people_for_fpir,
    supports_far,
    supports_searches,
)
from sphereface.metrics.weighted_tail import Weigh, WeightedTail, thresholds_at
from sphereface.zoo import card_of

FARS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
FPIRS = (1e-1, 1e-2)
POINTS = 64  # of the tail that a card carries
KEPT = 1 << 22  # pairs that a bootstrap can weigh again and again
GALLERIES = 100  # drawn for one threshold
SEARCH_ROUNDS, SEARCHED = 200, 4  # draws of people for a search's interval, and galleries in each
CELLS = 1 << 22  # scores of searches held at a time


@dataclass(frozen=True)
class Calibration:
    """Thresholds with their intervals, and how often different people score how high."""

    thresholds: tuple[Threshold, ...]
    tail: ImpostorTail
    photos: int
    made_with: Card | None = field(default=None, repr=False)  # the card of the model that made the features
    model: str = ""  # SHA-256 of its file, where features name it

    def at_far(self, far: float) -> Threshold:
        """The threshold for comparing two faces at a false accept rate."""
        return self._find(lambda each: each.fpir is None and np.isclose(each.far, far), f"FAR {far:g}")

    def at_fpir(self, fpir: float, gallery_size: int) -> Threshold:
        """The threshold for searching a gallery at a rate of strangers who find somebody."""
        return self._find(
            lambda each: each.gallery_size == gallery_size and each.fpir is not None and np.isclose(each.fpir, fpir),
            f"FPIR {fpir:g} with {gallery_size:,} people",
        )

    def card(self, card: Card) -> Card:
        """A model's card with this calibration, in the place of an older one."""
        if card.feature_rule != self.tail.feature_rule:
            raise ContractMismatch(
                f"the calibration is of features under the rule {self.tail.feature_rule}, the card's rule is "
                f"{card.feature_rule}; calibrate features made under that rule"
            )
        made = self.made_with
        for what in ("name", "architecture", "preprocessing", "members") if made is not None else ():
            if getattr(made, what) != getattr(card, what):
                raise ContractMismatch(
                    f"the calibration is of features of another model: their card has {what} {getattr(made, what)!r}, "
                    f"this one {getattr(card, what)!r}; calibrate features of this model"
                )
        return card.model_copy(update={"thresholds": self.thresholds, "impostor_tail": self.tail})

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "thresholds": [each.model_dump(mode="json") for each in self.thresholds],
            "impostor_tail": self.tail.model_dump(mode="json"),
            "photos": self.photos,
            "lowest_far": lowest_far(self.tail.people),
        }

    def table(self) -> str:
        """The thresholds as plain text."""
        says = "every two people" if self.tail.weigh == "people" else "every two photos"
        lines = [
            f"{self.tail.measured_on}: {self.tail.people:,} people, {self.photos:,} photos, {self.tail.pairs:,} pairs "
            f"of different people; {says} have the same say",
            f"{'rate':<34}{'score':>8}   95 %",
            *map(str, self.thresholds),
        ]
        return "\n".join(lines)

    def _find(self, matches: Callable[[Threshold], bool | np.bool_], what: str) -> Threshold:
        for each in self.thresholds:
            if matches(each):
                return each
        raise ValueError(f"no threshold for {what} was asked for; name it when calibrating")


def calibrate(
    features: Features | store.Rows,
    people: ArrayLike,
    *,
    fars: Sequence[float] | None = None,
    fpirs: Sequence[float] = FPIRS,
    gallery_sizes: Sequence[int] = (),
    weigh: Weigh = "people",
    feature_rule: FeatureRule = "concatenate",
    measured_on: str = "",
    rounds: int = ROUNDS,
    seed: int = 0,
    block: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Calibration:
    """Thresholds for false accept rates, and for each FPIR at each gallery size, from photos of people.

    features (N, D) at any length show people (N,). A rate that so many people cannot show is an error that says how
    many could; where no `fars` are named, they are those of 1e-2 ... 1e-6 that can be shown. An FPIR is measured on
    drawn galleries where there are people enough; else it is approximate: 1 - (1 - FAR)^G, as if the G comparisons
    were independent. Intervals (95 %) come from a bootstrap over people. `block` changes the memory and no result.

    >>> print(calibrate(features.rows, features.labels, fars=[1e-4], fpirs=[0.01], gallery_sizes=[1000]).table())
    """
    names, who = np.unique(np.asarray(people), return_inverse=True)
    if who.ndim != 1 or features.ndim != 2 or len(who) != len(features):
        raise ValueError(f"features {features.shape} show people {np.shape(people)}; wanted (N, D) and (N,)")
    if weigh not in ("people", "pairs"):
        raise ValueError(f"weigh is {weigh!r}; choose 'people' or 'pairs'")
    photos = np.bincount(who)
    wanted, searches = _plan(photos, fars, fpirs, gallery_sizes)
    approximate = [each.far for each in searches if not each.is_drawn]
    every = np.array(sorted({*wanted, *approximate}, reverse=True))
    top = max([*every.tolist(), lowest_far(len(names))])
    tail = _tail(features, who, photos, top, weigh=weigh, block=block, progress=progress)
    on = measured_on or f"{len(names):,} people"
    drawn = np.array([tail.thresholds(every, each) for each in PeopleBootstrap(len(names), rounds=rounds, seed=seed)])
    found = {
        far: _Scored.of(score, draws, f"FAR {far:g}")
        for far, score, draws in zip(every.tolist(), tail.thresholds(every), drawn.T, strict=True)
    }
    thresholds = [
        Threshold(score=found[far].score, far=far, measured_on=on, interval=found[far].interval) for far in wanted
    ]
    drawing = _Drawing(features, who, photos, rounds=min(rounds, SEARCH_ROUNDS), seed=seed)
    for search in searches:
        scored = drawing.search(search) if search.is_drawn else found[search.far]
        thresholds.append(
            Threshold(
                score=scored.score, far=search.far, measured_on=on, interval=scored.interval, fpir=search.fpir,
                gallery_size=search.gallery_size, approximate=not search.is_drawn,
            )
        )  # fmt: skip
    scores, rates = _table(tail, top, lowest_far(len(names)))
    return Calibration(
        tuple(thresholds),
        ImpostorTail(
            scores=scores, fars=rates, people=len(names), pairs=tail.pairs, weigh=weigh, feature_rule=feature_rule,
            measured_on=on,
        ),
        len(who),
    )  # fmt: skip


def calibrate_features(features: store.Features, *, measured_on: str = "", **options: Any) -> Calibration:
    """Calibrate the model that made the features of a set, as `open_features` or `join_features` gives them.

    The options are those of `calibrate`.
    """
    found = calibrate(
        features.rows,
        features.labels,
        feature_rule=features.card.feature_rule,
        measured_on=measured_on or Path(features.manifests[0].source).name,
        **options,
    )
    made = "" if features.card.members else features.manifests[0].model  # an ensemble has no file
    return Calibration(found.thresholds, found.tail, found.photos, made_with=features.card, model=made)


def require_support(
    people: ArrayLike,
    *,
    fars: Sequence[float] | None = None,
    fpirs: Sequence[float] = FPIRS,
    gallery_sizes: Sequence[int] = (),
) -> None:
    """Raise, as `calibrate` would, where the people (N,) of some photos cannot show a rate; no feature is needed."""
    _plan(np.unique(np.asarray(people), return_counts=True)[1], fars, fpirs, gallery_sizes)


def write_calibration(path: str | Path, calibration: Calibration, *, out: str | Path | None = None) -> Card:
    """Put a calibration into the card of a model file, `.safetensors` or `.onnx`; the network stays as it is.

    The file, or a copy of it at `out`, changes as a whole or not at all. Its SHA-256 becomes another one.
    """
    path = Path(path)
    target = calibrated_path(path, out)
    calibrated = calibration.card(card_of(path))
    require_maker(path, calibration.made_with, calibration.model)
    rewritten = _with_card(path, calibrated)
    with whole_file(target) as file:
        file.write(rewritten)
    return calibrated


def calibrated_path(path: Path, out: str | Path | None) -> Path:
    """Where a calibrated model goes: into the file itself, or where that is a link into what it leads to, or to `out`.

    A place that cannot hold such a file is an error.
    """
    target = Path(path if out is None else out)
    if target.suffix != path.suffix:
        raise ValueError(f"{target}: wanted a name that ends in {path.suffix}, as that of {path} does")
    if not target.resolve().parent.is_dir():
        raise ValueError(f"{target}: there is no folder {target.parent}; make it, or choose another")
    return target.resolve()


def require_maker(path: str | Path, card: Card | None, model: str) -> None:
    """Raise unless features with a card, made by a file of the SHA-256 `model`, are of the model at a path.

    A file that was calibrated since has another hash; with the features' card put back, it has that one again.
    """
    path = Path(path)
    if not model or card is None:
        return
    earlier = [path.read_bytes(), _with_card(path, card)]
    if path.suffix == ".onnx":  # whose card lay beside it, or came from us
        earlier.append(_with_card(path, None))
    if model not in [hashlib.sha256(content).hexdigest() for content in earlier]:
        raise ContractMismatch(
            f"the features were made by another file than {path} (SHA-256 {model[:12]}...); embed the faces with this "
            "model, or calibrate the one that made them"
        )


@dataclass(frozen=True)
class _Scored:
    """A threshold with the interval that draws of people gave it."""

    score: float
    interval: tuple[float, float]

    @classmethod
    def of(cls, score: float, draws: Floats, what: str) -> "_Scored":
        if np.isinf(score):
            raise ValueError(
                f"{what}: the most alike of different people all score the same, more of them than may pass; "
                "the set has one person, or one photo, under several names: look with sphereface data audit"
            )
        known = np.sort(draws[~np.isnan(draws)])
        low, high = known[int(0.025 * (len(known) - 1))], known[-1 - int(0.025 * (len(known) - 1))]
        score, low, high = (float(np.clip(value, -1, 1)) for value in (score, min(low, score), max(high, score)))
        return cls(score, (low, high))


@dataclass(frozen=True)
class _Search:
    """What is asked of a gallery."""

    fpir: float
    gallery_size: int
    is_drawn: bool  # else from the rate of one comparison

    @property
    def far(self) -> float:
        return comparison_rate(self.fpir, self.gallery_size)

    @classmethod
    def plan(cls, fpir: float, gallery_size: int, people: int) -> "_Search":
        if not 0 < fpir < 1 or gallery_size < 1:
            raise ValueError(f"FPIR {fpir} with {gallery_size} people; wanted a share between 0 and 1, and at least 1")
        is_drawn = supports_searches(fpir, gallery_size, people)
        if not is_drawn and not supports_far(comparison_rate(fpir, gallery_size), people):
            raise ValueError(
                f"FPIR {fpir:g} with a gallery of {gallery_size:,}: {people:,} people cannot show it, it takes "
                f"{people_for_fpir(fpir, gallery_size):,} (by the rule of {EVENTS} expected errors); ask for a higher "
                "rate or a smaller gallery, or bring more people"
            )
        return cls(fpir, gallery_size, is_drawn)


def _plan(
    photos: Places, fars: Sequence[float] | None, fpirs: Sequence[float], gallery_sizes: Sequence[int]
) -> tuple[list[float], list[_Search]]:
    """What can be asked of people with so many photos each (P,); what cannot is an error."""
    if fars is not None and not len(fars) and not (len(fpirs) and len(gallery_sizes)):
        raise ValueError("no rate is asked for; name `fars`, or `fpirs` and `gallery_sizes`")
    wanted = _supported(fars, len(photos), _pairs_of(photos))
    return wanted, [_Search.plan(fpir, size, len(photos)) for size in gallery_sizes for fpir in fpirs]


def _supported(fars: Sequence[float] | None, people: int, pairs: int) -> list[float]:
    """The rates asked for, or the usual ones that so many people can show; never none in silence."""
    if fars is None:
        found = [far for far in FARS if supports_far(far, people) and far * pairs <= KEPT / 5]
        if not found:
            raise ValueError(
                f"{people:,} people in {pairs:,} pairs of photos show none of the usual rates ({FARS[0]:g} takes "
                f"{people_for_far(FARS[0]):,} people); name `fars` that suit them, or bring more people"
            )
        return found
    for far in fars:
        if not 0 < far < 1:
            raise ValueError(f"FAR {far}; wanted a share between 0 and 1")
        if not supports_far(far, people):
            least = f"{lowest_far(people):.3g}" if people > 1 and lowest_far(people) < 1 else "none"
            raise ValueError(
                f"FAR {far:g}: {people:,} people cannot show it, it takes {people_for_far(far):,} (by the rule of "
                f"{EVENTS} expected errors); the lowest that these can show is {least}: ask for a higher rate, or "
                "bring more people"
            )
    return list(dict.fromkeys(fars))


def _pairs_of(photos: Places) -> int:
    return int((photos.sum() ** 2 - (photos**2).sum()) // 2)


class _Highest(HighestPairs):
    """The highest pairs, with whose they are."""

    def pairs(self) -> tuple[Floats, Places, Places]:
        """Exact scores, rows and columns, at most as many as are kept."""
        _, (_, rows, columns) = self._near_the_top(self.keep)
        exact = self._exact(rows, columns)
        best = np.argsort(-exact, kind="stable")[: self.keep]
        return exact[best], rows[best], columns[best]


def _tail(
    features: Features | store.Rows,
    who: Places,
    photos: Places,
    top: float,
    *,
    weigh: Weigh,
    block: int | None,
    progress: Callable[[int], None],
) -> WeightedTail:
    """The highest scores of different people, as many as a rate and its interval need."""
    total = _pairs_of(photos)
    rows = np.asarray(features[:], dtype=np.float32)
    scores = Scores(rows, rows, block=block)
    keep = min(total, int(4 * top * total) + 1000)
    while keep <= KEPT:
        highest = _Highest(keep, error=scores.error, exact=scores.among_probes)
        for first, piece in scores.blocks([len(who)]):
            done = first + piece.shape[1]
            row, column = np.nonzero(piece[:done] >= highest.cut)
            strangers = (row < column + first) & (who[row] != who[column + first])  # each pair once
            row, column = row[strangers], column[strangers]
            highest.add(piece[row, column], row, column + first)
            progress(done)
        exact, left, right = highest.pairs()
        tail = WeightedTail(exact, who[left], who[right], photos=photos, weigh=weigh)
        if tail.covers(top):
            return tail
        keep = min(total, 4 * keep)  # people with many photos hold the highest scores, and weigh little each
    raise ValueError(
        f"FAR {top:g} of {total:,} pairs: more than {KEPT:,} of them matter, too many to draw again and again; ask for "
        "lower rates only, or take fewer photos of each person"
    )


def _table(tail: WeightedTail, top: float, limit: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Rising scores and falling rates, evenly in the rate's logarithm, down to the lowest rate that can be shown."""
    found = tail.thresholds(np.geomspace(top, min(limit, top), POINTS))
    scores = np.unique(found[np.isfinite(found)])
    if not len(scores):  # ties at the very top: their own rate is all there is to say
        scores = tail.scores[:1]
    return tuple(scores.tolist()), tuple(tail.rates(scores).tolist())


class _Drawing:
    """Galleries drawn from people, and the strangers who are searched for in them."""

    def __init__(self, features: Features | store.Rows, who: Places, photos: Places, *, rounds: int, seed: int) -> None:
        self._features, self._photos, self._rounds, self._seed = features, photos, rounds, seed
        self._order = np.argsort(who, kind="stable")
        self._begins = np.cumsum(photos) - photos
        self._rows: Units | None = None

    def search(self, search: _Search) -> _Scored:
        """The threshold of an FPIR over many galleries, with its interval from draws of people."""
        if self._rows is None:
            self._rows = unit_rows(np.asarray(self._features[:], dtype=np.float32), what="photo")
        rng = np.random.default_rng(self._seed)
        people = len(self._photos)
        score = self._threshold(search, np.ones(people), GALLERIES, rng)
        rounds = PeopleBootstrap(people, rounds=self._rounds, seed=self._seed)
        draws = np.array([self._threshold(search, drawn, SEARCHED, rng) for drawn in rounds])
        return _Scored.of(score, draws, f"FPIR {search.fpir:g}")

    def _threshold(self, search: _Search, drawn: Floats, galleries: int, rng: np.random.Generator) -> float:
        """The lowest best score at which at most the rate of searches find somebody; nan where nobody is a stranger."""
        here = np.flatnonzero(drawn)
        size = search.gallery_size
        if len(here) <= size:
            return float("nan")
        best, weights = [], []
        for _ in range(galleries):
            # In a shuffled draw, who was drawn d times comes first at the least of d random numbers: 1 - u^(1/d).
            turn = here[np.argsort(1 - rng.random(len(here)) ** (1 / drawn[here]), kind="stable")]
            photo = self._order[self._begins[turn] + rng.integers(self._photos[turn])]
            best.append(self._best(photo[size:], photo[:size]))
            weights.append(drawn[turn[size:]])
        scores, weight = np.concatenate(best), np.concatenate(weights)
        falling = np.argsort(-scores, kind="stable")
        total = float(weight.sum())
        return float(thresholds_at(scores[falling], weight[falling], [search.fpir], total=total, is_whole=True)[0])

    def _best(self, probes: Places, gallery: Places) -> Floats:
        """The best score of each probe in a gallery."""
        assert self._rows is not None
        against = self._rows[gallery].T
        step = max(1, CELLS // len(gallery))
        parts = [
            (self._rows[probes[start : start + step]] @ against).max(axis=1) for start in range(0, len(probes), step)
        ]
        return np.concatenate(parts).astype(np.float64)


def _with_card(path: Path, card: Card | None) -> bytes:
    """The bytes of a model file with another card; an `.onnx` may have none."""
    content = path.read_bytes()
    if path.suffix == ".onnx":
        return with_metadata(content, METADATA_KEY, card.model_dump_json() if card else None)
    assert card is not None
    # A .safetensors: the header's length (8 bytes), the header, JSON, then the tensors as they were.
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["__metadata__"] = {**header.get("__metadata__", {}), METADATA_KEY: card.model_dump_json()}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8
    return len(text).to_bytes(8, "little") + text + content[8 + length :]
