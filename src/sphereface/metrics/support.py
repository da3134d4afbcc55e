"""Which error rates a number of people can show at all.

Doddington's rule of 30: once 30 errors were seen, the true rate lies within 30 % of the measured one nine times in ten,
if the trials are independent. More photos of the same two people hardly are, so that what is counted here is pairs of
people, and people who are searched for, however many photos they have.
"""

import math

EVENTS = 30  # errors that must be expected
SLACK = 1 + 1e-12  # a rate means what it says, whatever its last bit


def pairs_of_people(people: int) -> int:
    """How many pairs some people make."""
    return people * (people - 1) // 2


def supports_far(far: float, people: int) -> bool:
    """Whether so many people can show a false accept rate: 30 pairs of them must be expected to be accepted."""
    return far * pairs_of_people(people) * SLACK >= EVENTS


def lowest_far(people: int) -> float:
    """The lowest false accept rate that so many people can show."""
    return EVENTS / pairs_of_people(people)


def people_for_far(far: float) -> int:
    """The fewest people who can show a false accept rate."""
    people = math.floor((1 + math.sqrt(1 + 8 * EVENTS / far)) / 2) - 1
    while not supports_far(far, people):
        people += 1
    return people


def supports_searches(fpir: float, gallery_size: int, people: int) -> bool:
    """Whether galleries of so many people can be drawn, and strangers enough for the rate searched in them.

    Wanted are 30 expected errors beside twice the gallery: a bootstrap's draw has some 63 % of the people, and must
    leave strangers, too.
    """
    return fpir * (people - 2 * gallery_size) * SLACK >= EVENTS


def comparison_rate(fpir: float, gallery_size: int) -> float:
    """The false accept rate f of one comparison at which 1 - (1 - f)^G = FPIR: as if G comparisons were independent."""
    return -math.expm1(math.log1p(-fpir) / gallery_size)


def people_for_fpir(fpir: float, gallery_size: int) -> int:
    """The fewest people who can show an FPIR at a gallery's size, by drawn galleries or by independent comparisons."""
    drawn = 2 * gallery_size + math.ceil(EVENTS / fpir / SLACK)
    return min(drawn, people_for_far(comparison_rate(fpir, gallery_size)))
