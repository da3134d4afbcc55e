"""sphereface train: from faces and a recipe to a model."""

import json
import os
import shlex
import sys
from pathlib import Path

import typer

from sphereface.choices import Missing


def list_recipes(wanted: bool) -> None:
    """Print the recipes, with what each is for, and leave."""
    if wanted:
        from sphereface.training.recipes import RECIPES

        for name, recipe in RECIPES.items():
            function = getattr(recipe, "func", recipe)
            typer.echo(f"{name:<24} {(function.__doc__ or '').splitlines()[0]}")
        raise typer.Exit


def train(
    faces: Path = typer.Option(
        ..., "--faces", "--data", help="Aligned faces, in any format that `data convert` reads."
    ),
    out: Path = typer.Option(..., help="Folder of the run: model, checkpoints, log, report."),
    recipe: str = typer.Option("small", help="A recipe's name (--recipes lists them) or a .toml file."),
    model: str | None = typer.Option(None, help="Another network than the recipe's."),
    loss: str | None = typer.Option(None, help="Another loss, at its own defaults."),
    steps: int | None = typer.Option(None, min=1, help="Another length; rates and annealing are stretched with it."),
    batch: int | None = typer.Option(None, min=1, help="Another global batch."),
    lr: float | None = typer.Option(None, help="Another learning rate."),
    width: float | None = typer.Option(None, help="Another width of the network."),
    seed: int | None = typer.Option(None, min=0, help="Another seed."),
    checkpoint_every: int | None = typer.Option(None, min=1, help="Steps between checkpoints."),
    validation_people: int | None = typer.Option(None, min=0, help="People set aside to validate on."),
    validate_every: int | None = typer.Option(None, min=0, help="Steps between validations; 0: at the end."),
    pairs: Path | None = typer.Option(None, help="Pairs to validate on, instead of people set aside."),
    pairs_faces: Path | None = typer.Option(None, help="Where the aligned faces of --pairs lie."),
    init: Path | None = typer.Option(None, help="Start from this model: --recipe finetune."),
    exclude: Path | None = typer.Option(None, help="List of people and images to leave out, as `data audit` writes."),
    missing: Missing = typer.Option("fail", help="Images that cannot be read."),
    resume: bool = typer.Option(False, "--resume", help="Go on with the newest whole checkpoint, if there is one."),
    device: str = typer.Option("auto", help="auto, cpu, cuda, cuda:1."),
    workers: int = typer.Option(2, min=0, help="Processes that load faces."),
    tensorboard: bool = typer.Option(False, "--tensorboard", help="Also write OUT/tensorboard."),
    preview: bool = typer.Option(False, "--preview", help="Only draw rate, lambda and margin: OUT/preview.html."),
    _recipes: bool = typer.Option(False, "--recipes", is_eager=True, callback=list_recipes, help="List the recipes."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
) -> None:
    """Train a network. Ctrl-C saves a checkpoint and a report; --resume goes on from there, bit for bit.

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
    if preview:
        page = preview_run(config, out)
        typer.echo(json.dumps({"preview": str(page)}) if as_json else f"Preview: {page}")
        return
    if resume and is_finished(out):
        done = {"outcome": "finished", "model": str(out / MODEL)}
        if os.environ.get("RANK", "0") == "0":  # one of several processes speaks for all
            typer.echo(json.dumps(done) if as_json else f"{out} is finished already")
        return
    place = Place(
        faces=faces, out=out, device=device, workers=workers, resume=resume, init=init, exclude=exclude, pairs=pairs,
        pairs_faces=pairs_faces, missing=missing, tensorboard=tensorboard,
        command=shlex.join(["sphereface", *sys.argv[1:]]),
    )  # fmt: skip
    trained = run(config, place)
    first = parallel.rank() == 0
    parallel.end()
    if not first:
        return  # one of several processes speaks for all
    if as_json:
        typer.echo(json.dumps({**trained.as_dict(), "report": str(out / "report.html")}))
    elif trained.outcome == "finished":
        typer.echo(f"Model: {trained.model}   Report: {out / 'report.html'}")
    else:
        typer.echo(f"Stopped at step {trained.step:,}; --resume goes on. Report: {out / 'report.html'}")
    if trained.outcome == "interrupted":
        raise typer.Exit(130)
