"""sphereface models: the files of models, and what their cards say."""

import json
import os
from pathlib import Path

import typer

from sphereface.choices import Missing, Weigh
from sphereface.errors import UserError

app = typer.Typer(no_args_is_help=True, help="Model files and their cards.")


@app.callback()
def models() -> None:
    """Model files and their cards."""


@app.command()
def calibrate(
    model: Path = typer.Argument(help="A .safetensors of ours, or any .onnx with a card."),
    faces: Path = typer.Argument(help="Aligned faces in any format, or what `sphereface embed` made of them."),
    far: list[float] | None = typer.Option(
        None, help="False accept rate of two faces; again for more. Else those of 1e-2 ... 1e-6 that the people show."
    ),
    fpir: list[float] | None = typer.Option(
        None, help="Rate of strangers who find somebody in a gallery; again for more. Else 0.1 and 0.01."
    ),
    gallery_size: list[int] | None = typer.Option(
        None, min=1, help="People in a gallery, to calibrate searches; again for more."
    ),
    out: Path | None = typer.Option(None, help="Write a calibrated copy there; else the model file itself changes."),
    weigh: Weigh = typer.Option("people", help="Every two people have the same say, or every two of their photos."),
    measured_on: str = typer.Option("", help="What the card calls these people; else the name of their folder."),
    rounds: int = typer.Option(1000, min=2, help="Draws of people for the intervals."),
    seed: int = typer.Option(0, min=0, help="Of the draws."),
    batch: int = typer.Option(16, min=1, help="Faces that go through the network together."),
    threads: int | None = typer.Option(None, min=1, help="Of the network; else one a core."),
    workers: int = typer.Option(min(4, os.cpu_count() or 1), min=0, help="Threads that read faces ahead."),
    missing: Missing = typer.Option("fail", help="Images that cannot be read: skip leaves them out, and says so."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
) -> None:
    """Measure thresholds for stated rates on people of your own, and write them into the model's card.

    Example: sphereface models calibrate model.safetensors our-people --far 1e-3 --fpir 0.01 --gallery-size 100
    """
    from sphereface.cli.progress import bars
    from sphereface.evaluation.calibration.measure import FPIRS
    from sphereface.evaluation.calibration.model import calibrate_model

    if fpir and not gallery_size:
        raise UserError("--fpir is of a gallery; name its size, such as --gallery-size 100")
    with bars() as begin:
        found, card = calibrate_model(
            model, faces, out=out, fars=far or None, fpirs=fpir or FPIRS, gallery_sizes=gallery_size or (),
            weigh=weigh, measured_on=measured_on, rounds=rounds, seed=seed, batch=batch, threads=threads,
            workers=workers, missing=missing, say=lambda note: typer.echo(note, err=True),
            begin=begin,
        )  # fmt: skip
    written = out or model
    if as_json:
        typer.echo(json.dumps({"model": str(written), "name": card.name, **found.as_dict()}))
        return
    typer.echo(f"{found.table()}\nwritten into the card of {written}")


@app.command()
def card(
    model: Path = typer.Argument(help="A .safetensors of ours, or any .onnx with a card."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
) -> None:
    """Show what a model's card says: its faces, its features, its thresholds and licences.

    Example: sphereface models card model.safetensors
    """
    from sphereface.zoo import card_of

    found = card_of(model)
    typer.echo(found.model_dump_json() if as_json else found.text())
