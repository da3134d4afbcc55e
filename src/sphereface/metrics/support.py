"""The error rates that can be measured with a number of people.

Doddington's rule of 30: with 30 observed errors in independent trials, the true rate lies within 30 % of the measured
one nine times in ten. Further photos of the same two people are hardly independent, so the trials counted here are
pairs of people, and people searched for, whatever their numbers of photos.
"""

import math

EVENTS = 30  # expected errors required
SLACK = 1 + 1e-12  # for rounding: a rate of 0.3 includes 0.3


def pairs_of_people(people: int) -> int:
    """The number of pairs among `people` people."""
    return people * (people - 1) // 2


def supports_far(far: float, people: int) -> bool:
    """True if a false accept rate can be measured with `people`: at least 30 of their pairs are expected to pass."""
    return far * pairs_of_people(people) * SLACK >= EVENTS


def lowest_far(people: int) -> float:
    """The lowest false accept rate that can be measured with `people` people."""
    return EVENTS / pairs_of_people(people)


def people_for_far(far: float) -> int:
    """The fewest people with which a false accept rate can be measured."""
    people = math.floor((1 + math.sqrt(1 + 8 * EVENTS / far)) / 2) - 1
    while not supports_far(far, people):
        people += 1
    return people


def supports_searches(fpir: float, gallery_size: int, people: int) -> bool:
    """True if `people` are enough to draw galleries, and strangers to search in them for a false positive rate.

    That takes 30 expected errors among the people beyond twice the gallery: a bootstrap's draw holds about 63 % of the
    people, and must leave strangers too.
    """
    return fpir * (people - 2 * gallery_size) * SLACK >= EVENTS


def comparison_rate(fpir: float, gallery_size: int) -> float:
    """The false accept rate f of one comparison with 1 - (1 - f)^G = FPIR, for G independent comparisons."""
    return -math.expm1(math.log1p(-fpir) / gallery_size)


def people_for_fpir(fpir: float, gallery_size: int) -> int:
    """The fewest people with which an FPIR can be measured, by drawn galleries or by independent comparisons."""
    drawn = 2 * gallery_size + math.ceil(EVENTS / fpir / SLACK)
    return min(drawn, people_for_far(comparison_rate(fpir, gallery_size)))
