"""sphereface reproduce list|all|ID: every table and figure of the paper, and one report of all of them."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from sphereface import choices
from sphereface.cli.options import AsJson, flat
from sphereface.cli.output import say

KEPT = "Folder of training runs and drawn faces; the same command continues them."
RESULTS = "Folder of the results: one folder an ID, outcomes of training runs, and report.html."
FACES = (
    "People to train on: a folder or set, or one with train/ and more/labelled/; may be repeated. Default: synthetic."
)
DRY = "Check the data, print every training run and its cost, and start none."

if TYPE_CHECKING:
    from sphereface.experiments.paper.setting import Setting


@dataclass(frozen=True)
class Place:
    """Options of every experiment: scale, data, folders."""

    scale: Annotated[choices.Scale, typer.Option(help="tiny: seconds; small: hours; paper: the paper's sizes.")] = (
        "tiny"
    )
    faces: Annotated[list[Path] | None, typer.Option(metavar="DIR", help=FACES)] = None
    lfw: Annotated[
        Path | None, typer.Option(metavar="DIR", help="LFW: aligned or not, with pairs.txt or the lists of view 1.")
    ] = None
    ytf: Annotated[Path | None, typer.Option(metavar="DIR", help="YouTube Faces, aligned, with splits.txt.")] = None
    megaface: Annotated[
        Path | None, typer.Option(metavar="DIR", help="MegaFace: probes, distractors, templatelists.")
    ] = None
    mnist: Annotated[
        Path | None, typer.Option(metavar="DIR", help="MNIST's four files. Default: scikit-learn's digits.")
    ] = None
    runs: Annotated[Path, typer.Option(help=KEPT)] = Path("runs/reproduce")
    out: Annotated[Path, typer.Option(help=RESULTS)] = Path("runs/reproduce/results")
    jobs: Annotated[int, typer.Option(min=1, help="Number of runs at a time, which share the cores.")] = (
        os.cpu_count() or 1
    )


class Experiments(TyperGroup):
    """The verbs of `reproduce`, and one more for each experiment of the catalogue."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All verbs; the project's own experiments have options of their own."""
        from sphereface.experiments.paper.catalogue import CATALOGUE

        own = super().list_commands(ctx)
        return [*own, *(name for name in CATALOGUE if name not in own)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The verb of a name; that of an experiment is made here."""
        from sphereface.experiments.paper.catalogue import CATALOGUE

        found = super().get_command(ctx, cmd_name)
        if found is not None or cmd_name not in CATALOGUE:
            return found
        return command_of(cmd_name, CATALOGUE[cmd_name].caption)


def command_of(name: str, caption: str) -> Any:
    """The verb that runs one experiment."""

    def run(place: Place, dry_run: bool = typer.Option(False, help=DRY), as_json: AsJson = False) -> None:
        run_some([name], place, dry=dry_run, as_json=as_json)

    app = typer.Typer(add_completion=False)
    example = f"sphereface reproduce {name} --scale small --faces faces --lfw faces --out results/reproduction"
    app.command(name=name, help=f"{caption}.\n\nExample: {example}")(flat(run))
    return typer.main.get_command(app)


def list_experiments(as_json: AsJson = False) -> None:
    """All experiments: ID and content, a line each.

    Example: sphereface reproduce list
    """
    from sphereface.experiments.paper.catalogue import CATALOGUE

    if as_json:
        typer.echo(json.dumps({name: entry.caption for name, entry in CATALOGUE.items()}))
        return
    width = max(map(len, CATALOGUE))
    for name, entry in CATALOGUE.items():
        typer.echo(f"{name:{width}}  {entry.caption}")


@flat
def run_all(place: Place, dry_run: bool = typer.Option(False, help=DRY), as_json: AsJson = False) -> None:
    """Every experiment, and one report; the same command goes on where it was stopped.

    Example: sphereface reproduce all
    """
    from sphereface.experiments.paper.catalogue import CATALOGUE

    run_some(list(CATALOGUE), place, dry=dry_run, as_json=as_json)


def run_some(names: Sequence[str], place: Place, *, dry: bool, as_json: bool) -> None:
    """Run experiments and show what they found; exits with 1 if some failed."""
    from sphereface.experiments.paper.dry import planned
    from sphereface.experiments.paper.running import REPORT, run_experiments
    from sphereface.reports.figures import require_matplotlib

    setting = setting_of(place)
    if dry:
        plan = planned(names, setting)
        typer.echo(json.dumps(plan.as_json()) if as_json else plan.text())
        return
    require_matplotlib()
    failed = run_experiments(names, setting)
    show(names, place.out, failed=sorted(failed), as_json=as_json)
    say(f"report: {place.out / REPORT}")
    if failed:
        raise typer.Exit(1)


def show(names: Sequence[str], out: Path, *, failed: Sequence[str], as_json: bool) -> None:
    """Print the results of some experiments, as Markdown or as one JSON object."""
    from sphereface.experiments.paper.result import read_result

    done = [read_result(out / name) for name in names if name not in failed]
    if as_json:
        typer.echo(json.dumps({each.id: each.as_json() for each in done}))
    else:
        typer.echo("\n".join(each.markdown() for each in done))


def setting_of(place: Place) -> "Setting":
    """The setting of an experiment from the options of its verb."""
    from sphereface.experiments.paper.setting import Data, Setting

    data = Data(tuple(place.faces or ()), place.lfw, place.ytf, place.megaface, place.mnist)
    return Setting(place.scale, data, place.runs, place.out, place.jobs, say)
