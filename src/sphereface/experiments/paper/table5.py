"""Table 5: all losses on MegaFace: identification at rank 1, and verification at the lowest FAR of the data."""

from sphereface.experiments.paper.comparison import Found, cell, measured, note, of_methods
from sphereface.experiments.paper.measures import PROBES, possible
from sphereface.experiments.paper.methods import METHODS, RIVALS
from sphereface.experiments.paper.published import MEGAFACE_SYSTEMS, TABLE_5, MegaFace
from sphereface.experiments.paper.result import Result, Row, Table
from sphereface.experiments.paper.runs import Run, Runs, runs_of
from sphereface.experiments.paper.setting import Setting

HEAD = ("loss", "protocol", "distractors", "rank 1, %", "FAR", "TAR, %", "source")
SOURCE = "paper, Table 5"


def needed(runs: Runs) -> dict[str, list[Run]]:
    """The runs of this table, by method."""
    return of_methods(runs, RIVALS) if possible(runs.setting, "megaface") else {}


def run(setting: Setting) -> Result:
    """Test every loss on MegaFace, with FaceScrub and with FGNet as probes, where their lists are there."""
    runs = runs_of(setting)
    found = measured(runs, needed(runs), "megaface")
    tables = [probe_table(probes, runs, found) for probes, _, _ in PROBES if found and probes in first(found)]
    if not tables:
        tables = [published_table()]
    return Result(
        "table5",
        "all losses on MegaFace",
        setting.scale,
        findings=[finding(found)],
        tables=[*tables, systems()],
        numbers={method: [each["megaface"] for each in of] for method, of in found.items()},
    )


def first(found: dict[str, Found]) -> dict[str, dict[str, object]]:
    """The results of one run by probe set."""
    of: Found = next(iter(found.values()))
    probe_sets = [name for name, _, _ in PROBES]
    return {name: each for name, each in of[0]["megaface"].items() if name in probe_sets}


def finding(found: dict[str, Found]) -> str:
    """What the first probe set says of A-Softmax."""
    if not found:
        return "Not measured: no folder of MegaFace is given (--megaface); its rows are the paper's."
    probes = next(iter(first(found)))
    ours, softmax = (of_probes(found[method], probes) for method in ("a_softmax", "softmax"))
    theirs = [f"{TABLE_5[method].rank_1:.3f}" for method in ("a_softmax", "softmax")]
    return (
        f"{probes} probes: rank 1 is {cell(ours, 'megaface', 'rank_1')} % with A-Softmax m = 4 and "
        f"{cell(softmax, 'megaface', 'rank_1')} % with softmax; the paper has {' and '.join(theirs)} (Table 5)."
    )


def of_probes(found: Found, probes: str) -> Found:
    """The results with one probe set, in the shape of any other measure."""
    return [{"megaface": each["megaface"][probes]} for each in found]


def probe_table(probes: str, runs: Runs, found: dict[str, Found]) -> Table:
    """All losses with one probe set; the paper's rows have FaceScrub's."""
    rows = []
    for method, of in found.items():
        each, label = of_probes(of, probes), METHODS[method].label
        one = each[0]["megaface"]
        rows.append(
            Row([label, one["protocol"], f"{one['distractors']:,}", cell(each, "megaface", "rank_1"),
                 f"{one['far']:.0e}", cell(each, "megaface", "tar"), "ours"], runs.setting.scale)
        )  # fmt: skip
        if probes == "FaceScrub":
            rows.append(paper_row(label, TABLE_5[method]))
    if probes == "FaceScrub":
        rows.append(paper_row("A-Softmax, m = 4, 3 patches", TABLE_5["ensemble"]))
    about = "The lowest FAR at which ten negatives would pass, or 1e-6. Protocol small: under 0.5 M training images. "
    return Table(f"megaface-{probes.lower()}", f"{probes} probes", HEAD, rows, about + note(runs))


def published_table() -> Table:
    """The paper's rows alone."""
    rows = [paper_row(METHODS[method].label if method in METHODS else "A-Softmax, m = 4, 3 patches", row)
            for method, row in TABLE_5.items()]  # fmt: skip
    return Table("megaface-facescrub", "FaceScrub probes", HEAD, rows)


def paper_row(label: str, row: MegaFace) -> Row:
    """A row of the paper's table."""
    cells = [label, row.protocol, "1,000,000", f"{row.rank_1:.3f}", "1e-06", f"{row.tar:.3f}", SOURCE]
    return Row(cells, "published")


def systems() -> Table:
    """The systems of others in the paper's table."""
    rows = [paper_row(name, row) for name, row in MEGAFACE_SYSTEMS.items()]
    return Table("systems", "Systems of others, as the paper's Table 5 prints them", ("system", *HEAD[1:]), rows)
