"""sphereface data: make and mend sets of faces."""

import json
import os
import time
from enum import StrEnum
from pathlib import Path

import typer

app = typer.Typer(no_args_is_help=True, help="Make and mend sets of faces.")


class Skin(StrEnum):
    """Groups by skin tone."""

    light = "light"
    medium = "medium"
    dark = "dark"


class Age(StrEnum):
    """Groups by age."""

    young = "young"
    middle = "middle"
    old = "old"


@app.callback()
def data() -> None:
    """Make and mend sets of faces."""


@app.command()
def synth(
    folder: Path = typer.Argument(help="Where to write pNNNN/NNNN.png."),
    people: int = typer.Option(100, min=1, help="How many people."),
    photos: int = typer.Option(20, min=1, help="Photos of each."),
    seed: int = typer.Option(0, min=0, help="Another seed, another population."),
    skin: Skin | None = typer.Option(None, help="Only people of this group."),
    age: Age | None = typer.Option(None, help="Only people of this group."),
    workers: int = typer.Option(os.cpu_count() or 1, min=1, help="Processes; the faces do not depend on it."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
) -> None:
    """Draw synthetic faces, aligned to 112 x 96.

    Example: sphereface data synth faces --people 500 --photos 20 --seed 7
    """
    from sphereface.cli.progress import bars
    from sphereface.data.synthetic import VERSION, SyntheticPeople

    population = SyntheticPeople(seed=seed, skin=skin.value if skin else None, age=age.value if age else None)
    start = time.perf_counter()
    with bars() as begin:
        population.write(folder, people, photos, workers=workers, progress=begin("drawing faces", people * photos))
    rate = people * photos / (time.perf_counter() - start)
    if as_json:
        result = {"folder": str(folder), "version": VERSION, "seed": seed, "people": people, "photos": photos}
        typer.echo(json.dumps({**result, "faces_per_second": round(rate, 1)}))
    else:
        typer.echo(f"{people * photos:,} faces of {people:,} people in {folder} ({rate:.0f} faces/s)")
