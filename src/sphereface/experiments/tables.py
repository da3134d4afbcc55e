"""Runs and differences in JSON files and in the Markdown tables of result pages."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sphereface.metrics import Paired, PeopleBootstrap, paired_difference

Search = Mapping[str, Mapping[float, float]]  # loss -> learning rate -> TAR on held-out people


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    first, *others = (f"| {' | '.join(cells)} |" for cells in (head, *rows))
    return "\n".join([first, "|" + "---|" * len(head), *others])


def rate_table(search: Search, chosen: Mapping[str, float], rates: Sequence[float], names: Mapping[str, str]) -> str:
    """A Markdown table of a search for learning rates, with the chosen rate of each loss."""
    rows = [
        [names[loss], *(f"{found[rate]:.2%}" for rate in rates), f"{chosen[loss]:g}"] for loss, found in search.items()
    ]
    return table(["loss", *(f"{rate:g}" for rate in rates), "taken"], rows)


def search_json(search: Search) -> dict[str, dict[str, float]]:
    """A search for learning rates as a JSON object."""
    return {loss: {f"{rate:g}": tar for rate, tar in found.items()} for loss, found in search.items()}


def paired_differences(
    ours: Sequence[object], others: Sequence[object], statistics: Sequence[str], bootstrap: PeopleBootstrap
) -> dict[str, Paired]:
    """Paired differences of two lists of runs by statistic, which is the name of a method of each run."""
    return {
        name: paired_difference([getattr(run, name) for run in ours], [getattr(run, name) for run in others], bootstrap)
        for name in statistics
    }


def differences_json(differences: Mapping[str, Paired]) -> dict[str, Any]:
    """Paired differences as a JSON object."""
    return {name: {**paired._asdict(), "interval": list(paired.interval)} for name, paired in differences.items()}


def mean_and_each(values: Sequence[float], form: str = "{:.2%}") -> str:
    """The mean over runs, then each of them: `90.00% (89.00%, 91.00%)`."""
    each = ", ".join(form.format(value) for value in values)
    return f"{form.format(float(np.mean(values)))} ({each})"


def difference_text(paired: Paired, *, unit: float = 100, form: str = "{:+.2f}") -> str:
    """A difference in points, its 95 % interval, its standard errors: `+3.00 [+2.00, +4.00], +6.0 SE`."""
    low, high = (form.format(unit * end) for end in paired.interval)
    return f"{form.format(unit * paired.difference)} [{low}, {high}], {paired.in_standard_errors:+.1f} SE"
