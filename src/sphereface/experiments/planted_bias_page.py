"""The page results/planted-bias.md."""

from sphereface.data.synthetic.people import VERSION
from sphereface.evaluation.groups.compare import WHICH
from sphereface.experiments.accusations import named_at
from sphereface.experiments.openset import NET
from sphereface.experiments.planted_bias import COMMAND, LEVELS, LOSS, POWER, Planted, Run
from sphereface.metrics.group_rates import ERROR


def as_markdown(planted: Planted) -> str:
    """What was planted, what was found, and every number behind it."""
    plan = planted.plan
    found, starved = planted.tally(starved=True)
    silent, balanced = planted.tally(starved=False)
    most = plan.people - plan.starved
    return "\n".join(
        [
            "# A bias that was planted, and whether it is found",
            "",
            f"Command: `{COMMAND}`. Synthetic faces version {VERSION}; network sphereface4, width {NET['width']}, "
            f"batch norm, 128 features; {LOSS.name}, rate {LOSS.lr:g}, {plan.steps:,} steps, "
            f"{planted.threads} threads.",
            "",
            f"**The starved look was found in {found} of {starved} networks; nothing was reported of {silent} of "
            f"{balanced} that learned from as many of both.**",
            "",
            "There are two looks: red people, as they are drawn, and blue ones, whose red and blue are exchanged. "
            "Neither is harder: the exchange turns one look into the other, and a network's first weights are as "
            "likely as those with the two colours exchanged. What differs comes from training.",
            "",
            f"For each seed {plan.people} people x {plan.photos} photos are drawn, and three networks learn from them, "
            f"from the same start and in the same order: {plan.people // 2} people are blue and as many red "
            f"(balanced), or {plan.starved} are blue and {most} red (blue starved), or {plan.starved} red and {most} "
            f"blue (red starved). All three are tested on the same {plan.test_people} new people, half of them blue, "
            f"{plan.test_photos} photos each, at the one threshold where {plan.far:g} of all pairs of different people "
            "pass. Other seeds have other people, in training and in the test.",
            "",
            "| seed | training | FMR of red | FMR of blue | FNMR of red | FNMR of blue | as planted |",
            "|---|---|---|---|---|---|---|",
            *(_row(run) for run in planted.runs),
            "",
            "Rates in percent with their 95 % intervals, a bootstrap over people. As planted: a higher FMR of the "
            "starved look is found; of a balanced network, nothing at all.",
            "",
            "## What was found",
            "",
            *(line for run in planted.runs for line in _found(run)),
            "",
            f"Chance of any finding where no look differs: {ERROR:.0%} at most for each network. A starved look drives "
            "the threshold up for everybody, so that a higher FNMR of the other look may be found with it.",
            "",
            "## How often a balanced network is named",
            "",
            *_accused(planted),
            "",
            "## What would have been found",
            "",
            _power(planted),
            "",
        ]
    )


def _row(run: Run) -> str:
    red, blue = (next(g for g in run.report.attributes[0].groups if g.name == look) for look in ("red", "blue"))
    cells = [
        str(run.seed),
        run.training,
        *(rate.percent() for rate in (red.fmr, blue.fmr, red.fnmr, blue.fnmr)),
        "yes" if run.as_planted else "**no**",
    ]
    return "| " + " | ".join(cells) + " |"


def _found(run: Run) -> list[str]:
    whose = f"- seed {run.seed}, {run.training}: "
    return [whose + found.sentence for found in run.findings] or [whose + "nothing"]


def _accused(planted: Planted) -> list[str]:
    plan = planted.plan
    counts = [(level, *named_at(level, planted.accusations)) for level in LEVELS]
    told = " and ".join(f"in {named} of {tests} at {level:.0%}" for level, named, tests in counts)
    return [
        f"Each balanced network was tested on {plan.crowds} more crowds of {plan.test_people} new people, each as it "
        f"is dressed and with all its colours exchanged. **A look was named {told}**; the first is the level of all "
        "reports.",
        "",
        "| seed | rate | blue over red, by the network | by who is in the test |",
        "|---|---|---|---|",
        *(
            f"| {each.seed} | {which} | {own:.2f} [{low:.2f}, {high:.2f}] | x or / {each.people(which):.2f} |"
            for each in planted.accusations
            for which in WHICH
            for own, low, high in [each.network(which)]
        ),
        "",
        "Exchanging all colours turns round what comes from who is in the test; what comes from the network stays. "
        "By the network: the geometric mean over crowds, with two standard errors. By who is in the test: one standard "
        "deviation of the logarithm.",
    ]


def _power(planted: Planted) -> str:
    ratios = [run.detectable for run in planted.runs if run.starved is None]
    known = [ratio for ratio in ratios if ratio is not None]
    if len(known) < len(ratios) or not known:
        return "This test is too small to say how large a difference it would find."
    each = ", ".join(f"{ratio:.1f}" for ratio in known)
    return (
        f"Of a balanced network an FMR would be found in {POWER:.0%} of such tests if it were about so many times the "
        f"other look's: {each} (by seed; from the spread of the ratio in the bootstrap). Smaller differences, which "
        "any one network has by the chance of its training, mostly stay below."
    )
