"""sphereface reproduce: run a published experiment of this project again."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import typer

from sphereface import choices
from sphereface.cli import options, paper
from sphereface.cli.options import AsJson
from sphereface.cli.output import say, write_result

app = typer.Typer(
    cls=paper.Experiments, no_args_is_help=True, help="Run an experiment: tables and figures of the paper, and our own."
)
app.command("list")(paper.list_experiments)
app.command("all")(paper.run_all)
QUICK = "A tiny version, as a check that it runs."
ALIGNED = "Folder of the aligned photos of lfw-dev; default: align them."
PARTS = list(get_args(choices.Part))
DRAWERS = "Number of processes that draw faces."


@app.command()
def synthetic(
    out: Path = typer.Option(Path("runs/synthetic"), help="Folder for demo.md and demo.json."),
    quick: bool = typer.Option(False, help=QUICK),
    workers: int = typer.Option(os.cpu_count() or 1, min=1, help=DRAWERS),
    as_json: AsJson = False,
) -> None:
    """A-Softmax against softmax on synthetic faces: search for learning rates, three seeds, intervals; half an hour.

    Example: sphereface reproduce synthetic --out results
    """
    from sphereface.experiments.openset import FULL, TINY
    from sphereface.experiments.study import as_markdown, run_study

    study = run_study(TINY if quick else FULL, workers=workers, rounds=20 if quick else 500, say=say)
    _finish(out, "demo", study.as_json(), as_markdown(study), as_json=as_json)


@app.command()
def difficulty(
    workers: int = typer.Option(os.cpu_count() or 1, min=1, help=DRAWERS),
    as_json: AsJson = False,
) -> None:
    """Difficulty of the synthetic faces: accuracy of softmax.

    Example: sphereface reproduce difficulty
    """
    from sphereface.experiments.difficulty import run_difficulty
    from sphereface.experiments.openset import FULL

    found = run_difficulty(FULL, workers=workers, say=say)
    if as_json:
        typer.echo(json.dumps(found._asdict()))
    else:
        typer.echo(f"training accuracy {found.training_accuracy:.1%}, verification {found.verification_accuracy:.1%}")


@app.command()
def real_faces(
    faces: Path = typer.Argument(help="Folder with train/, lfw-dev/, pairsDevTrain.txt and pairsDevTest.txt."),
    out: Path = typer.Option(Path("runs/real-faces"), help="Folder for real-faces.md and real-faces.json."),
    runs: Path = typer.Option(Path("runs/real-faces"), help="Folder of the runs; the same command continues them."),
    aligned: Path | None = typer.Option(None, help=ALIGNED),
    full_width: bool = typer.Option(True, help="Also one pair of runs at full width; half of the time."),
    jobs: int = typer.Option(2, min=1, help="Number of runs at a time, which share the cores."),
    quick: bool = typer.Option(False, help=QUICK),
    as_json: AsJson = False,
) -> None:
    """A-Softmax against softmax on real faces, tested on view 1 of LFW; hours on a laptop; can be continued.

    Example: sphereface reproduce real-faces faces --out results
    """
    from sphereface.experiments.real_faces import FULL, QUICK, compare
    from sphereface.experiments.real_faces_page import as_markdown

    plan = QUICK if quick else FULL
    plan = plan if full_width else replace(plan, full_width=None)
    done = compare(faces, runs, plan, aligned=aligned, jobs=jobs, say=say)
    _finish(out, "real-faces", done.as_json(), as_markdown(done), as_json=as_json)


@app.command()
def mini(
    faces: Path = typer.Option(..., help="Folder with train/, more/, lfw-dev/ and the lists of pairs of view 1."),
    teacher: str = typer.Option("sface", help=options.MODEL, callback=options.fetched),
    part: list[str] = typer.Option(PARTS, help="Part: labels, students or model; may be repeated. Default: all."),
    out: Path = typer.Option(Path("runs/mini"), help="Folder for mini.md and mini.json, and outcomes of runs."),
    runs: Path = typer.Option(Path("runs/mini"), help="Folder of the runs; the same command continues them."),
    weights: Path = typer.Option(Path("runs/mini/mini.safetensors"), help="The model to write."),
    init: Path | None = typer.Option(None, help="Model to start from: an earlier version of mini."),
    steps: int | None = typer.Option(None, min=1, help="Steps of the model's run; default: the recipe's."),
    seed: int | None = typer.Option(None, min=0, help="Seed of the model's run: another one has other views."),
    aligned: Path | None = typer.Option(None, help=ALIGNED),
    jobs: int = typer.Option(2, min=1, help="Number of runs at a time, which share the cores."),
    quick: bool = typer.Option(False, help=QUICK),
    as_json: AsJson = False,
) -> None:
    """Make the model in the box: choose a student, teach, test and calibrate it, and compare labels alone; many hours.

    Example: sphereface reproduce mini --faces faces --out results
    """
    from sphereface.experiments.mini_page import as_markdown
    from sphereface.experiments.mini_parts import FULL, QUICK, Folders, run_parts

    folders, scale = Folders(faces, runs, out, weights, aligned), QUICK if quick else FULL
    model = scale.model if steps is None else scale.model.with_steps(steps)
    scale = replace(scale, model=model if seed is None else model.changed(seed=seed))
    found = run_parts(part, folders, scale, teacher=teacher, init=init, jobs=jobs, say=say)
    _finish(out, "mini", found, as_markdown(found), as_json=as_json)


@app.command()
def calibrations(
    faces: Path = typer.Argument(help="Folder with lfw-dev/ and the lists of pairs of view 1."),
    out: Path = typer.Option(Path("runs/calibrations.json"), help="File to write."),
    runs: Path = typer.Option(Path("runs/mini"), help="Folder for the aligned photos."),
    aligned: Path | None = typer.Option(None, help=ALIGNED),
    jobs: int = typer.Option(2, min=1, help="Number of processes that align photos."),
) -> None:
    """Calibrate installed models of other projects on the people of DevTrain; the file is read by `models card`.

    Example: sphereface reproduce calibrations faces --out src/sphereface/zoo/calibrations.json
    """
    from sphereface.experiments.mini_parts import calibrate_others

    found = calibrate_others(faces, runs, aligned, jobs=jobs, say=say)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=1) + "\n")
    typer.echo(f"{', '.join(found)}: {out}")


@app.command()
def open_set(
    faces: Path = typer.Option(..., help="Folder lfw-dev, or the one that holds it and the lists of pairs of view 1."),
    model: str = typer.Option("auto", help=options.MODEL, callback=options.fetched),
    out: Path = typer.Option(
        Path("runs/open-set"), help="Folder for open-set.md, .json and .png, of all models so far."
    ),
    runs: Path = typer.Option(Path("runs/mini"), help="Folder for the aligned photos."),
    aligned: Path | None = typer.Option(None, help=ALIGNED),
    jobs: int = typer.Option(os.cpu_count() or 1, min=1, help="Number of processes that align photos."),
    quick: bool = typer.Option(False, help=QUICK),
    as_json: AsJson = False,
) -> None:
    """Searches in galleries of new people: promised and measured rate of named strangers; groups; a few minutes.

    Needs no torch. Example: sphereface reproduce open-set --faces lfw-dev --model sface --out results
    """
    from sphereface.cli.model import load_embedder
    from sphereface.cli.progress import bars
    from sphereface.data.people import find_images
    from sphereface.experiments.lfw_dev import align_and_gather
    from sphereface.experiments.open_set import FULL, QUICK, find_faces, run_open_set
    from sphereface.experiments.open_set_page import as_markdown, draw_ratios
    from sphereface.reports.figures import require_matplotlib

    require_matplotlib()
    embedder, root = load_embedder(model), find_faces(faces)
    test = align_and_gather(root, runs, aligned, jobs=jobs, say=say)
    with bars() as begin:
        photos = len(find_images(root / "lfw-dev")[0])
        found = run_open_set(
            embedder, test, QUICK if quick else FULL, failed=photos - len(test.people), begin=begin
        )  # fmt: skip
    kept = out / "open-set.json"
    models = {**(json.loads(kept.read_bytes()) if kept.is_file() else {}), found.model: found.as_json()}
    _finish(out, "open-set", models, as_markdown(models), as_json=as_json)
    (out / "open-set.png").write_bytes(draw_ratios(models).light)


@app.command()
def planted_bias(
    out: Path = typer.Option(Path("runs/planted-bias"), help="Folder for planted-bias.md and planted-bias.json."),
    runs: Path = typer.Option(
        Path("runs/planted-bias"), help="Folder of faces and models; the same command continues."
    ),
    quick: bool = typer.Option(False, help=QUICK),
    workers: int = typer.Option(os.cpu_count() or 1, min=1, help=DRAWERS),
    as_json: AsJson = False,
) -> None:
    """Train with few people of one of two groups, and test that `--groups` finds it; a quarter of an hour.

    Example: sphereface reproduce planted-bias --out results
    """
    from sphereface.cli.progress import bars
    from sphereface.experiments.planted_bias import FULL, QUICK, run_planted
    from sphereface.experiments.planted_bias_page import as_markdown

    with bars() as begin:
        done = run_planted(QUICK if quick else FULL, runs, workers=workers, begin=begin)
    _finish(out, "planted-bias", done.as_json(), as_markdown(done), as_json=as_json)


def _finish(out: Path, name: str, result: dict[str, Any], page: str, *, as_json: bool) -> None:
    write_result(out, name, result, page)
    typer.echo(json.dumps(result) if as_json else page)
