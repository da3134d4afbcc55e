"""sphereface train: train a model on faces by a recipe."""

import json
import os
import shlex
import sys
from pathlib import Path

import typer

from sphereface.choices import Missing
from sphereface.cli import options
from sphereface.cli.options import AsJson


def list_recipes(wanted: bool) -> None:
    """Print the recipes with their descriptions, and exit."""
    if wanted:
        from sphereface.training.recipes import RECIPES

        for name, recipe in RECIPES.items():
            function = getattr(recipe, "func", recipe)
            typer.echo(f"{name:<24} {(function.__doc__ or '').splitlines()[0]}")
        raise typer.Exit


def train(
    faces: list[Path] = typer.Option(
        ...,
        "--faces",
        "--data",
        help="Aligned faces in any format that `data convert` reads; again for each further set.",
    ),
    out: Path = typer.Option(..., help="Folder of the run: model, checkpoints, log, report."),
    recipe: str = typer.Option("small", help="Name of a recipe (--recipes lists them) or a .toml file."),
    model: str | None = typer.Option(None, help="Network; default: the recipe's."),
    loss: str | None = typer.Option(None, help="Loss, with its default options; default: the recipe's."),
    steps: int | None = typer.Option(None, min=1, help="Number of steps; milestones and annealing scale with it."),
    batch: int | None = typer.Option(None, min=1, help="Global batch size."),
    lr: float | None = typer.Option(None, help="Learning rate."),
    width: float | None = typer.Option(None, help="Width of the network."),
    seed: int | None = typer.Option(None, min=0, help="Seed of the run."),
    checkpoint_every: int | None = typer.Option(None, min=1, help="Steps between checkpoints."),
    validation_people: int | None = typer.Option(None, min=0, help="Number of people held out for validation."),
    validate_every: int | None = typer.Option(None, min=0, help="Steps between validations; 0: at the end."),
    pairs: Path | None = typer.Option(None, help="List of pairs for validation, instead of held-out people."),
    pairs_faces: Path | None = typer.Option(None, help="Folder of the aligned faces of --pairs."),
    teacher: str | None = typer.Option(
        None,
        help=f"Model whose features the network learns to give, such as sface. {options.MODEL}",
        callback=options.fetched,
    ),
    unlabelled: list[Path] = typer.Option([], help="Set of faces without names, for --teacher; may be repeated."),
    targets: Path | None = typer.Option(None, help="Folder of the teacher's features; default: OUT/targets."),
    init: Path | None = typer.Option(None, help="Model to start from, for --recipe finetune."),
    exclude: Path | None = typer.Option(None, help="List of people and images to leave out, as of `data audit`."),
    missing: Missing = typer.Option("fail", help="Unreadable images: skip leaves them out."),
    resume: bool = typer.Option(False, "--resume", help="Continue from the newest complete checkpoint, if any."),
    device: str = typer.Option("auto", help="Device: auto, cpu, cuda, cuda:1."),
    workers: int = typer.Option(2, min=0, help="Number of processes that load faces."),
    tensorboard: bool = typer.Option(False, "--tensorboard", help="Also write a TensorBoard log to OUT/tensorboard."),
    preview: bool = typer.Option(
        False, "--preview", help="Plot learning rate, lambda and margin in OUT/preview.html, and exit."
    ),
    _recipes: bool = typer.Option(False, "--recipes", is_eager=True, callback=list_recipes, help="List the recipes."),
    as_json: AsJson = False,
) -> None:
    """Train a network. Ctrl-C saves a checkpoint and a report; --resume continues from there, bit for bit.

    Example: sphereface train --faces faces --out runs/first --loss a_softmax --validation-people 30
    """
    from sphereface import parallel
    from sphereface.training.recipes import load_recipe
    from sphereface.training.run import MODEL, is_finished, preview_run
    from sphereface.training.run import train as run
    from sphereface.training.setting import Place

    config = load_recipe(recipe, init)
    config = config.with_loss(loss) if loss is not None else config
    config = config.with_steps(steps) if steps is not None else config
    given = {
        "model": model, "batch": batch, "lr": lr, "width": width, "seed": seed, "checkpoint_every": checkpoint_every,
        "validation_people": validation_people, "validate_every": validate_every,
    }  # fmt: skip
    config = config.changed(**{name: value for name, value in given.items() if value is not None})
    if teacher is not None and config.teaching is None:
        config = config.changed(teaching={})
    if preview:
        page = preview_run(config, out)
        typer.echo(json.dumps({"preview": str(page)}) if as_json else f"Preview: {page}")
        return
    if resume and is_finished(out):
        done = {"outcome": "finished", "model": str(out / MODEL)}
        if os.environ.get("RANK", "0") == "0":  # only rank 0 prints
            typer.echo(json.dumps(done) if as_json else f"{out} is already finished")
        return
    place = Place(
        faces=tuple(faces), out=out, teacher=teacher, unlabelled=tuple(unlabelled), targets=targets, device=device,
        workers=workers, resume=resume, init=init, exclude=exclude, pairs=pairs, pairs_faces=pairs_faces,
        missing=missing, tensorboard=tensorboard,
        command=shlex.join(["sphereface", *sys.argv[1:]]),
    )  # fmt: skip
    trained = run(config, place)
    first = parallel.rank() == 0
    parallel.end()
    if not first:  # only rank 0 prints
        return
    if as_json:
        typer.echo(json.dumps({**trained.as_dict(), "report": str(out / "report.html")}))
    elif trained.outcome == "finished":
        typer.echo(f"Model: {trained.model}   Report: {out / 'report.html'}")
    else:
        typer.echo(f"Stopped at step {trained.step:,}; --resume goes on. Report: {out / 'report.html'}")
    if trained.outcome == "interrupted":
        raise typer.Exit(130)
