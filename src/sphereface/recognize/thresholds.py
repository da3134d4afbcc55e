"""Thresholds for stated rates, from the calibration on a model's card.

Two photos: the false accept rate (FAR), the share of pairs of different people that reach the threshold. A search: the
false positive identification rate (FPIR), the share of strangers who are named. With G people whose templates have the
false accept rates f_1 ... f_G,

    FPIR = 1 - product of (1 - f_i),

as if the comparisons of a search were independent, which is slightly conservative. The rate of a template grows with
its number of photos, so each takes the impostor tail of its size; one of more photos than were measured takes the
largest measured tail, and the answer says so. Rates that a card cannot support are refused.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sphereface.contract import Card, ImpostorTail, TemplateTail
from sphereface.errors import ContractMismatch, UserError
from sphereface.metrics.support import people_for_fpir

NO_LIVENESS = "no liveness check: a picture of a face is recognised as the face"
FAR = 1e-3  # of two photos, by default
FPIRS = (0.01, 0.1)  # of a search, by default: the first that the card supports
STEPS = 60  # of bisection: below any distance of two scores
WAY_OUT = "sphereface models calibrate MODEL FACES measures them on your own people"


class PairThreshold(NamedTuple):
    """The lowest score at which two photos show one person."""

    score: float
    far: float


class SearchThreshold(NamedTuple):
    """The lowest score at which a probe is named."""

    score: float
    fpir: float  # promised
    people: int  # in the gallery
    notes: tuple[str, ...] = ()  # where the promise rests on less than it should

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "threshold": self.score, "fpir": self.fpir, "people": self.people, "notes": [*self.notes, NO_LIVENESS],
        }  # fmt: skip

    def text(self) -> str:
        """For people."""
        return self.of(f"strangers would be named ({self.people:,} people in the gallery)")

    def of(self, what: str) -> str:
        """For people, with what the promised rate is of."""
        line = f"threshold {self.score:.3f}: {100 * self.fpir:.2g} % of {what}; {NO_LIVENESS}"
        return "\n".join([line, *(f"note: {note}" for note in self.notes)])


def pair_threshold(card: Card, far: float | None = None) -> PairThreshold:
    """The threshold of two photos at a false accept rate; a measured one, or between two points of the tail.

    Without `far`, it is 1e-3, or the lowest rate that the card supports if that is higher.
    """
    tail = _pair_tail(card)
    far = max(FAR, tail.fars[-1]) if far is None else far
    for each in card.thresholds:
        if each.fpir is None and math.isclose(each.far, far):
            return PairThreshold(each.score, far)
    if not tail.fars[-1] <= far <= tail.fars[0]:
        raise UserError(
            f"FAR {far:g}: the card of {card.called} supports {tail.fars[-1]:.2g} to {tail.fars[0]:.2g}; ask for a "
            f"rate in between, or measure it: {WAY_OUT}"
        )
    return PairThreshold(_lowest(tail.scores[0], tail.scores[-1], lambda score: tail.far_of(score).far <= far), far)


def search_threshold(card: Card, sizes: Mapping[int, int], fpir: float | None = None) -> SearchThreshold:
    """The threshold of a search among people; `sizes` is the number of people by their number of photos.

    Without `fpir`, the first of `FPIRS` that the card supports is promised.
    """
    if fpir is not None and not 0 < fpir < 1:
        raise UserError(f"FPIR {fpir}; wanted a share between 0 and 1")
    tails, people = _search_tails(card), sum(sizes.values())
    # With a rate of its own choice, the rule may fall back to the tails of smaller templates, and says so.
    for measured in range(len(tails), 0, -1) if fpir is None else (len(tails),):
        for rate in FPIRS if fpir is None else (fpir,):
            found = _solve(tails[:measured], sizes, rate)
            if found is not None:
                return SearchThreshold(found, rate, people, _notes(tails, measured, sizes))
    rate = FPIRS[-1] if fpir is None else fpir
    raise UserError(
        f"FPIR {rate:g} among {people:,} people: the calibration of {card.called} on {tails[0].people:,} people does "
        f"not support it, it takes {people_for_fpir(rate, max(people, 1)):,}; ask for a higher rate, or calibrate on "
        f"more people: {WAY_OUT}"
    )


def match_threshold(card: Card, photos: int, far: float) -> float:
    """The score from which a photo looks like a person with a number of photos; at the lowest rate if `far` is lower.

    `far` is the share of strangers' photos that look like the person, too.
    """
    tail = _tail_of(_search_tails(card), photos)
    return _lowest(tail.scores[0], tail.scores[-1], lambda score: tail.far_of(score).far <= max(far, tail.fars[-1]))


def _solve(tails: Sequence[TemplateTail], sizes: Mapping[int, int], fpir: float) -> float | None:
    """The lowest score at which the gallery keeps the promise; None if the tails do not reach it."""
    of = {photos: _tail_of(tails, photos) for photos in sizes} or {1: tails[0]}

    def kept(score: float) -> bool:
        missed = sum(sizes.get(photos, 0) * math.log1p(-tail.far_of(score).far) for photos, tail in of.items())
        return -math.expm1(missed) <= fpir

    low, high = max(tail.scores[0] for tail in of.values()), max(tail.scores[-1] for tail in of.values())
    return _lowest(low, high, kept) if kept(high) else None


def _lowest(low: float, high: float, holds: Callable[[float], bool]) -> float:
    """The lowest score from `low` to `high` for which a condition holds that holds at `high` and above some score."""
    if holds(low):
        return low
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _tail_of(tails: Sequence[TemplateTail], photos: int) -> TemplateTail:
    """The tail of the largest measured template that is no larger than one of so many photos."""
    return max((tail for tail in tails if tail.photos <= photos), key=lambda tail: tail.photos, default=tails[0])


def _notes(tails: Sequence[TemplateTail], measured: int, sizes: Mapping[int, int]) -> tuple[str, ...]:
    """Where templates take the tail of smaller ones: more were not measured, or not at such low rates."""
    largest = tails[measured - 1].photos
    larger = sum(people for photos, people in sizes.items() if photos > largest)
    if not larger:
        return ()
    note = f"{larger:,} people have more than {largest} photos: rates are those measured with {largest}"
    return (note if measured == len(tails) else f"{note}, and more strangers than promised may be named",)


def _pair_tail(card: Card) -> ImpostorTail:
    if card.impostor_tail is None:
        raise ContractMismatch(f"the card of {card.called} has no thresholds; {WAY_OUT}")
    return card.impostor_tail


def _search_tails(card: Card) -> Sequence[TemplateTail]:
    """The tails of templates; a card of an earlier calibration has that of single photos alone."""
    if card.template_tails:
        return card.template_tails
    pairs = _pair_tail(card)
    return (TemplateTail(**pairs.model_dump(), photos=1, templates=pairs.people),)
