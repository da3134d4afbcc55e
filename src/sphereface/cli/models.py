"""sphereface models: model files and their cards."""

import json
from pathlib import Path

import typer

from sphereface.choices import Missing, Weigh
from sphereface.cli import options
from sphereface.cli.output import say
from sphereface.errors import UserError

app = typer.Typer(no_args_is_help=True, help="List, download and calibrate models, and show their cards.")


@app.command("list")
def list_known(as_json: options.AsJson = False) -> None:
    """Show all known models: training data, accuracy, licences, and where they are.

    Example: sphereface models list
    """
    from sphereface.cli.output import print_table
    from sphereface.zoo import list_models
    from sphereface.zoo.listing import HEAD

    models = list_models()
    if as_json:
        typer.echo(json.dumps({"models": [model.as_dict() for model in models]}))
    else:
        print_table(HEAD, [model.row() for model in models])


@app.command()
def pull(
    model: str = typer.Argument(help="A name of `models list`, or an https URL."),
    sha256: str | None = typer.Option(None, help="SHA-256 that the file of a URL must have."),
    as_json: options.AsJson = False,
) -> None:
    """Download a model, checked by its SHA-256, into the folder of models.

    Example: sphereface models pull sphere20
    """
    from sphereface.cli.progress import bars
    from sphereface.zoo import pull as pull_model

    with bars() as begin:
        path = pull_model(model, sha256=sha256, begin=begin)
    typer.echo(json.dumps({"model": model, "path": str(path)}) if as_json else f"{path}")


@app.command()
def calibrate(
    model: str = typer.Argument(help=options.MODEL, callback=options.fetched),
    faces: Path = typer.Argument(help="Aligned faces in any format, or a folder that `sphereface embed` wrote."),
    far: list[float] | None = typer.Option(
        None, help="False accept rate; may be repeated. Default: those of 1e-2 ... 1e-6 that the set can measure."
    ),
    fpir: list[float] | None = typer.Option(
        None, help="False positive identification rate of a gallery; may be repeated. Default: 0.1 and 0.01."
    ),
    gallery_size: list[int] | None = typer.Option(
        None, min=1, help="Number of people in a gallery, to calibrate searches; may be repeated."
    ),
    out: Path | None = typer.Option(None, help="File for a calibrated copy; default: change the model file."),
    weigh: Weigh = typer.Option("people", help="Equal weight for every pair of people, or for every pair of photos."),
    measured_on: str = typer.Option("", help="Name of the set in the card; default: the name of its folder."),
    rounds: options.Rounds = 1000,
    seed: options.Seed = 0,
    batch: options.Batch = 16,
    threads: options.Threads = None,
    workers: int = typer.Option(min(4, options.CORES), min=0, help=options.READERS),
    missing: Missing = typer.Option("fail", help="Unreadable images: skip leaves them out, with a note."),
    as_json: options.AsJson = False,
) -> None:
    """Measure thresholds for given error rates on your own people, and write them into the model's card.

    Example: sphereface models calibrate model.safetensors our-people --far 1e-3 --fpir 0.01 --gallery-size 100
    """
    from sphereface.cli.progress import bars
    from sphereface.evaluation.calibration.measure import FPIRS
    from sphereface.evaluation.calibration.model import calibrate_model

    if fpir and not gallery_size:
        raise UserError("--fpir without --gallery-size; wanted the size of the gallery, such as --gallery-size 100")
    with bars() as begin:
        found, card = calibrate_model(
            model, faces, out=out, fars=far or None, fpirs=fpir or FPIRS, gallery_sizes=gallery_size or (),
            weigh=weigh, measured_on=measured_on, rounds=rounds, seed=seed, batch=batch, threads=threads,
            workers=workers, missing=missing, say=say, begin=begin,
        )  # fmt: skip
    written = out or model
    if as_json:
        typer.echo(json.dumps({"model": str(written), "name": card.name, **found.as_dict()}))
        return
    typer.echo(f"{found.table()}\nwritten into the card of {written}")


@app.command()
def card(
    model: str = typer.Argument(help=options.MODEL, callback=options.fetched), as_json: options.AsJson = False
) -> None:
    """Show a model's card: its faces, features, thresholds and licences.

    Example: sphereface models card model.safetensors
    """
    from sphereface.zoo import card_of

    found = card_of(model)
    typer.echo(found.model_dump_json() if as_json else found.text())
