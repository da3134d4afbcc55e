"""Appendix F: identification and verification by depth, on MegaFace where it is given, and on LFW."""

from sphereface.experiments.paper.comparison import cell, difference, measured, note, seeds_of
from sphereface.experiments.paper.measures import possible
from sphereface.experiments.paper.methods import METHODS
from sphereface.experiments.paper.published import DEPTHS, MEGAFACE_DEPTH, TABLE_5, MegaFace
from sphereface.experiments.paper.result import Result, Row, Table
from sphereface.experiments.paper.runs import Run, Runs, runs_of
from sphereface.experiments.paper.setting import Setting

PROBES = "FaceScrub"
SOURCE = "paper, appendix F"


def needed(runs: Runs) -> dict[str, list[Run]]:
    """A-Softmax at every depth, softmax at the lowest and the highest, and the deep network that is trained once."""
    depths = runs.plan.depths
    wanted = {f"softmax {layers}": seeds_of(runs, "softmax", layers=layers) for layers in (depths[0], depths[-1])}
    wanted |= {f"a_softmax {layers}": seeds_of(runs, "a_softmax", layers=layers) for layers in depths}
    if (deep := runs.plan.deep) is not None:
        wanted[f"a_softmax {deep.layers}"] = [runs.deep(deep)]
    return wanted


def run(setting: Setting) -> Result:
    """Train at every depth, and identify and verify."""
    runs = runs_of(setting)
    measures = possible(setting, "lfw", "megaface")
    wanted = needed(runs)
    found = measured(runs, wanted, *measures)
    rows = []
    for name, of in found.items():
        loss, layers = name.split()
        settings = wanted[name][0].settings
        cells = [cell(of, "lfw", each) for each in ("rank_1", "accuracy", "tar")]
        if "megaface" in measures:
            mega = [{"megaface": each["megaface"][PROBES]} for each in of]
            cells += [cell(mega, "megaface", "rank_1"), cell(mega, "megaface", "tar")]
        else:
            cells += ["-", "-"]
        rows.append(
            Row(
                [METHODS[loss].label, layers, f"{settings.width:g}", f"{settings.steps:,}", *cells, "ours"],
                setting.scale,
            )
        )
    rows += [paper_row("a_softmax", depth, MEGAFACE_DEPTH[depth]) for depth in DEPTHS]
    rows.append(paper_row("softmax", DEPTHS[-1], TABLE_5["softmax"]))
    lowest, highest = runs.plan.depths[0], runs.plan.depths[-1]
    ours, softmax_gain = (
        difference(found[f"{loss} {highest}"], found[f"{loss} {lowest}"], "tar") for loss in ("a_softmax", "softmax")
    )
    crossed = difference(found[f"a_softmax {lowest}"], found[f"softmax {highest}"], "tar")
    return Result(
        "app-depth",
        "identification and verification by depth",
        setting.scale,
        findings=[
            f"From {lowest} to {highest} layers, TAR on LFW changes by {ours.text()} points with A-Softmax m = 4 and "
            f"by {softmax_gain.text()} with softmax, which saturates in the paper.",
            f"A-Softmax with {lowest} layers minus softmax with {highest}: {crossed.text()} points; in the paper, 4 "
            "layers of A-Softmax are ahead of 64 of softmax (MegaFace, appendix F).",
        ],
        tables=[
            Table(
                "depth", "By number of layers",
                ("loss", "layers", "width", "steps", "LFW rank 1, %", "LFW, %", f"LFW TAR at FAR {runs.plan.far:g}, %",
                 "MegaFace rank 1, %", "MegaFace TAR, %", "source"), rows,
                "LFW rank 1: one photo of each person in the gallery, all other photos are probes. "
                + note(runs, "lfw", "megaface"),
            )
        ],
    )  # fmt: skip


def paper_row(loss: str, layers: int, row: MegaFace) -> Row:
    """A row of the paper's table."""
    cells = [METHODS[loss].label, str(layers), "1", "28,000", "-", "-", "-", f"{row.rank_1:.3f}", f"{row.tar:.3f}"]
    return Row([*cells, SOURCE], "published")
