"""sphereface reproduce: run an experiment again, whole."""

import json
import os
from dataclasses import replace
from pathlib import Path

import typer

app = typer.Typer(no_args_is_help=True, help="Run an experiment again, whole.")


@app.callback()
def reproduce() -> None:
    """Run an experiment again, whole."""


@app.command()
def synthetic(
    out: Path = typer.Option(Path("runs/synthetic"), help="Folder for demo.md and demo.json."),
    quick: bool = typer.Option(False, help="A tiny version, to see that it runs."),
    workers: int = typer.Option(os.cpu_count() or 1, min=1, help="Processes that draw faces."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
) -> None:
    """A-Softmax against softmax on synthetic faces: rate search, three seeds, paired intervals; half an hour.

    Example: sphereface reproduce synthetic --out results
    """
    from sphereface.experiments.openset import FULL, Scale
    from sphereface.experiments.study import as_markdown, run_study

    tiny = Scale(
        people=8, photos=6, test_people=40, test_photos=4, held_out_people=10, distractors=20, pairs=200, steps=3
    )
    study = run_study(
        tiny if quick else FULL,
        workers=workers,
        rounds=20 if quick else 500,
        say=lambda line: typer.echo(line, err=True),
    )
    out.mkdir(parents=True, exist_ok=True)
    (out / "demo.md").write_text(as_markdown(study))
    (out / "demo.json").write_text(json.dumps(study.as_json(), indent=2) + "\n")
    typer.echo(json.dumps(study.as_json()) if as_json else as_markdown(study))


@app.command()
def difficulty(
    workers: int = typer.Option(os.cpu_count() or 1, min=1, help="Processes that draw faces."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
) -> None:
    """How hard the synthetic faces are for softmax alone.

    Example: sphereface reproduce difficulty
    """
    from sphereface.experiments.difficulty import run_difficulty
    from sphereface.experiments.openset import FULL

    found = run_difficulty(FULL, workers=workers, say=lambda line: typer.echo(line, err=True))
    if as_json:
        typer.echo(json.dumps(found._asdict()))
    else:
        typer.echo(f"training accuracy {found.training_accuracy:.1%}, verification {found.verification_accuracy:.1%}")


@app.command()
def real_faces(
    faces: Path = typer.Argument(help="Folder with train/, lfw-dev/, pairsDevTrain.txt and pairsDevTest.txt."),
    out: Path = typer.Option(Path("runs/real-faces"), help="Folder for real-faces.md and real-faces.json."),
    runs: Path = typer.Option(Path("runs/real-faces"), help="Folder of the runs; a second call goes on there."),
    aligned: Path | None = typer.Option(None, help="The photos of lfw-dev, already aligned; else this aligns them."),
    full_width: bool = typer.Option(True, help="Also one pair of runs at full width; half of the time."),
    jobs: int = typer.Option(2, min=1, help="Runs at a time; they share the cores."),
    quick: bool = typer.Option(False, help="A tiny version, to see that it runs."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
) -> None:
    """A-Softmax against softmax on real faces, tested on view 1 of LFW; hours on a laptop, and it can be resumed.

    Example: sphereface reproduce real-faces faces --out results
    """
    from sphereface.experiments.real_faces import FULL, QUICK, compare
    from sphereface.experiments.real_faces_page import as_markdown

    plan = QUICK if quick else FULL
    done = compare(
        faces,
        runs,
        plan if full_width else replace(plan, full_width=None),
        aligned=aligned,
        jobs=jobs,
        say=lambda line: typer.echo(line, err=True),
    )
    out.mkdir(parents=True, exist_ok=True)
    (out / "real-faces.md").write_text(as_markdown(done))
    (out / "real-faces.json").write_text(json.dumps(done.as_json(), indent=2) + "\n")
    typer.echo(json.dumps(done.as_json()) if as_json else as_markdown(done))


@app.command()
def planted_bias(
    out: Path = typer.Option(Path("runs/planted-bias"), help="Folder for planted-bias.md and planted-bias.json."),
    runs: Path = typer.Option(Path("runs/planted-bias"), help="Folder of faces and models; a second call goes on."),
    quick: bool = typer.Option(False, help="A tiny version, to see that it runs."),
    workers: int = typer.Option(os.cpu_count() or 1, min=1, help="Processes that draw faces."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
) -> None:
    """Starve one group of synthetic people in training, and see whether `--groups` finds it; a quarter of an hour.

    Example: sphereface reproduce planted-bias --out results
    """
    from sphereface.cli.progress import bars
    from sphereface.experiments.planted_bias import FULL, QUICK, run_planted
    from sphereface.experiments.planted_bias_page import as_markdown

    with bars() as begin:
        done = run_planted(QUICK if quick else FULL, runs, workers=workers, begin=begin)
    out.mkdir(parents=True, exist_ok=True)
    (out / "planted-bias.md").write_text(as_markdown(done))
    (out / "planted-bias.json").write_text(json.dumps(done.as_json(), indent=2) + "\n")
    typer.echo(json.dumps(done.as_json()) if as_json else as_markdown(done))
