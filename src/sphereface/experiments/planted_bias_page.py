"""The page results/planted-bias.md."""

from sphereface.data.synthetic.people import VERSION
from sphereface.evaluation.groups.compare import WHICH
from sphereface.experiments.accusations import named_at
from sphereface.experiments.openset import NET
from sphereface.experiments.planted_bias import COMMAND, LEVELS, LOSS, POWER, Planted, Run
from sphereface.experiments.tables import table
from sphereface.metrics.group_rates import ERROR


def as_markdown(planted: Planted) -> str:
    """The planted bias, the findings, and all error rates."""
    plan = planted.plan
    found, starved = planted.tally(starved=True)
    silent, balanced = planted.tally(starved=False)
    most = plan.people - plan.starved
    paragraphs = [
        "# Is a planted bias found?",
        f"Command: `{COMMAND}`. Synthetic faces version {VERSION}; network sphereface4, width {NET['width']}, "
        f"batch norm, 128 features; {LOSS.name}, rate {LOSS.lr:g}, {plan.steps:,} steps, "
        f"{planted.threads} threads.",
        f"**The starved look was found in {found} of {starved} networks; nothing was reported of {silent} of "
        f"{balanced} that learned from as many of both.**",
        "There are two looks: red people, as drawn, and blue people, with red and blue exchanged. Neither is "
        "harder: the exchange turns one look into the other, and a network's initial weights are as probable as "
        "those with the two colours exchanged. So a difference is caused by training.",
        f"For each seed {plan.people} people x {plan.photos} photos are drawn, and three networks train on them, "
        f"from the same initial weights and in the same order: {plan.people // 2} people are blue and as many red "
        f"(balanced), or {plan.starved} are blue and {most} red (blue starved), or {plan.starved} red and {most} "
        f"blue (red starved). All three are tested on the same {plan.test_people} new people, half of them blue, "
        f"{plan.test_photos} photos each, at the one threshold where {plan.far:g} of all pairs of different people "
        "pass. Other seeds have other people, in training and in the test.",
        table(
            ["seed", "training", "FMR of red", "FMR of blue", "FNMR of red", "FNMR of blue", "as planted"],
            [_row(run) for run in planted.runs],
        ),
        "Rates in percent with 95 % intervals from a bootstrap over people. As planted: a higher FMR of the "
        "starved look is found; for a balanced network, no finding.",
        "## Findings",
        "\n".join(line for run in planted.runs for line in _found(run)),
        f"Probability of a finding where the looks do not differ: at most {ERROR:.0%} for each network. A starved "
        "look raises the common threshold, so that a higher FNMR of the other look may also be found.",
        "## False findings in balanced networks",
        *_accused(planted),
        "## Smallest difference that is found",
        _power(planted),
    ]
    return "\n\n".join(paragraphs) + "\n"


def _row(run: Run) -> list[str]:
    red, blue = (next(g for g in run.report.attributes[0].groups if g.name == look) for look in ("red", "blue"))
    rates = [rate.percent() for rate in (red.fmr, blue.fmr, red.fnmr, blue.fnmr)]
    return [str(run.seed), run.training, *rates, "yes" if run.as_planted else "**no**"]


def _found(run: Run) -> list[str]:
    network = f"- seed {run.seed}, {run.training}: "
    return [network + found.sentence for found in run.findings] or [network + "nothing"]


def _accused(planted: Planted) -> list[str]:
    plan = planted.plan
    counts = [(level, *named_at(level, planted.accusations)) for level in LEVELS]
    named = " and ".join(f"in {found} of {tests} at {level:.0%}" for level, found, tests in counts)
    return [
        f"Each balanced network was tested on {plan.crowds} more crowds of {plan.test_people} new people, each with "
        f"its looks and with all looks exchanged. **A look was named {named}**; the first is the level of all reports.",
        table(
            ["seed", "rate", "blue over red, by the network", "by the people in the test"],
            [
                [str(each.seed), which, f"{own:.2f} [{low:.2f}, {high:.2f}]", f"x or / {each.people(which):.2f}"]
                for each in planted.accusations
                for which in WHICH
                for own, low, high in [each.network(which)]
            ],
        ),
        "Exchanging all looks inverts the effect of the people in the test, and keeps that of the network. By the "
        "network: the geometric mean over crowds, with two standard errors. By the people in the test: one standard "
        "deviation of the logarithm.",
    ]


def _power(planted: Planted) -> str:
    ratios = [run.detectable for run in planted.runs if run.starved is None]
    known = [ratio for ratio in ratios if ratio is not None]
    if len(known) < len(ratios) or not known:
        return "This test is too small to estimate the smallest difference that it finds."
    each = ", ".join(f"{ratio:.1f}" for ratio in known)
    return (
        f"In a balanced network, a higher FMR of one look is found in {POWER:.0%} of such tests from about this ratio "
        f"to the other look's FMR: {each} (by seed; from the spread of the ratio in the bootstrap). Most differences "
        "by chance of training are smaller."
    )
