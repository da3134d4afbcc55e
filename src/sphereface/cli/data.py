"""sphereface data: draw, align, convert and audit sets of faces."""

import json
import time
from pathlib import Path

import typer

from sphereface import choices
from sphereface.cli import options

app = typer.Typer(no_args_is_help=True, help="Draw, align, convert and audit sets of faces.")


@app.command()
def synth(
    out: Path = typer.Argument(help="Folder for pNNNN/NNNN.png, or for the files of the shape."),
    people: int = typer.Option(100, min=1, help="Number of people."),
    photos: int = typer.Option(20, min=1, help="Photos of each person; for ytf, frames of each of their three videos."),
    seed: int = typer.Option(0, min=0, help="Seed of the population."),
    skin: choices.Skin | None = typer.Option(None, help="Skin of all people; default: mixed."),
    age: choices.Age | None = typer.Option(None, help="Age of all people; default: mixed."),
    shape: choices.Shape = typer.Option("folder", help="A plain folder, or the files and lists of a published set."),
    workers: int = typer.Option(options.CORES, min=1, help="Number of processes; changes speed only."),
    as_json: options.AsJson = False,
) -> None:
    """Draw synthetic faces, aligned to 112 x 96.

    Example: sphereface data synth faces --people 500 --photos 20 --seed 7
    """
    from sphereface.cli.progress import bars
    from sphereface.data.synthetic.people import VERSION, SyntheticPeople
    from sphereface.data.synthetic.shapes import num_faces, write_shape

    population = SyntheticPeople(seed=seed, skin=skin, age=age)
    faces = num_faces(shape, people, photos)
    start = time.perf_counter()
    with bars() as begin:
        write_shape(population, out, people, photos, shape=shape, workers=workers, progress=begin("drawing faces"))
    rate = faces / (time.perf_counter() - start)
    if as_json:
        result = {"out": str(out), "version": VERSION, "seed": seed, "people": people, "photos": photos}
        typer.echo(json.dumps({**result, "shape": shape, "faces": faces, "faces_per_second": round(rate, 1)}))
    else:
        typer.echo(f"{faces:,} faces of {people:,} people in {out} ({rate:.0f} faces/s)")


@app.command()
def align(
    photos: Path = typer.Argument(help="Folder of photos, with any subfolders."),
    out: Path = typer.Argument(help="Folder of the faces: new, empty, or an unfinished run of the same command."),
    detector: choices.DetectorName = typer.Option(
        "mtcnn", help="Detector; fast: yunet, from the extra sface or --model."
    ),
    preset: choices.Preset = typer.Option("paper", help="Settings of MTCNN: the paper's, or fast (faces from 40 px)."),
    model: Path | None = typer.Option(None, help="Model file of YuNet."),
    landmarks: Path | None = typer.Option(None, help="List of landmarks instead of a detector: path, ten numbers."),
    choose: choices.WhichFace = typer.Option("centre", help="Choice among several faces of a photo."),
    template: str = typer.Option("sphereface", help="Template: sphereface (0-based, common) or matlab (the authors')."),
    crop: str = typer.Option("112x96", help="Crop: 112x96, 112x112, or a patch: wide, upper."),
    misses: choices.Misses = typer.Option("skip", help="Photos without a face: skip, centre crop, or fail."),
    image_format: choices.ImageFormat = typer.Option("jpg", "--format", help="Image format of the faces."),
    quality: int = typer.Option(95, min=1, max=100, help="JPEG quality."),
    antialias: bool = typer.Option(True, help="Smooth before shrinking."),
    workers: int = typer.Option(options.CORES, min=1, help="Number of processes; changes speed only."),
    as_json: options.AsJson = False,
) -> None:
    """Find and align the faces of a folder of photos; the same command continues an interrupted run.

    Example: sphereface data align lfw lfw-112x96 --misses centre
    """
    from sphereface.cli.progress import bars
    from sphereface.data.aligning.run import REPORT, Job, align_folder

    job = Job(
        photos=photos, out=out, detector=detector, preset=preset, model=model, landmarks=landmarks,
        choice=choose, template=template, crop=crop, antialias=antialias, format=image_format,
        quality=quality,
    )  # fmt: skip
    start = time.perf_counter()
    with bars() as begin:
        report = align_folder(job, misses=misses, workers=workers, progress=begin("aligning photos"))
    if as_json:
        typer.echo(report.model_dump_json())
        return
    rate = report.photos / (time.perf_counter() - start)
    typer.echo(f"{report.faces + report.centre_crops:,} faces of {report.photos:,} photos in {out} ({rate:.0f}/s)")
    for label, paths in (
        ("no face", report.none),
        ("several faces", tuple(report.several)),
        ("unreadable", tuple(report.unreadable)),
        ("not an image", report.ignored),
        ("not in landmarks.txt", tuple(report.unlisted)),
    ):
        if paths:
            typer.echo(f"  {label:<20} {len(paths):>8,}  such as {paths[0]}")
    typer.echo(f"  full lists: {out / REPORT}")


@app.command()
def convert(
    faces: Path = typer.Argument(help="Folder, .rec, .tar (or a folder of them), .zip, Caffe list, files of MNIST."),
    out: Path = typer.Argument(help="New file or folder."),
    to: choices.SetFormat = typer.Option(..., help="Format of OUT."),
    root: options.Root = None,
    as_json: options.AsJson = False,
) -> None:
    """Write a set in another format; images keep their bytes.

    Example: sphereface data convert faces_emore/train.rec faces --to folder
    """
    from sphereface.cli.progress import bars
    from sphereface.data.formats.sets import convert as convert_set

    with bars() as begin:
        done = convert_set(faces, out, to=to, root=root, progress=begin(f"writing {out}"))
    if as_json:
        result = {"out": str(out), "images": done.images, "people": done.people, "ignored": list(done.ignored)}
        typer.echo(json.dumps(result))
        return
    typer.echo(f"{done.images:,} images of {done.people:,} people in {out}")
    if done.ignored:
        typer.echo(f"  {len(done.ignored):,} files are not images, such as {done.ignored[0]}")


@app.command()
def audit(
    faces: Path = typer.Argument(help="Aligned faces, in any format that convert reads."),
    against: Path | None = typer.Option(None, help="Test set that should have no person in common."),
    model: str | None = typer.Option(
        None, help=f"{options.MODEL} Compares people also by features.", callback=options.fetched
    ),
    few: int = typer.Option(5, min=1, help="List people with fewer photos."),
    missing: choices.Missing = typer.Option("skip", help="Unreadable images: skip lists them, fail is an error."),
    out: Path = typer.Option(Path("audit"), help="Folder for report.html, audit.md, audit.json and exclude.txt."),
    as_json: options.AsJson = False,
) -> None:
    """Find copies, wrong labels, one person under two names, and people of a test set.

    Example: sphereface data audit faces --against lfw-112x112 --model sface
    """
    from sphereface.audit import audit_path
    from sphereface.cli.progress import bars

    with bars() as begin:
        found = audit_path(faces, against=against, model=model, few=few, missing=missing, out=out, begin=begin)
    if as_json:
        typer.echo(found.model_dump_json())
        return
    for label, count in (
        ("copies", len(found.duplicates)),
        ("likely wrong labels", len(found.wrong_labels)),
        ("one person, two names", len(found.two_names)),
        ("people of the test set", len(found.in_test)),
        ("copies of test photos", len(found.copies_in_test)),
        (f"people with under {few} photos", len(found.few)),
        ("unreadable", len(found.unreadable) + len(found.unreadable_in_test)),
    ):
        typer.echo(f"{label:<28} {count:>8,}")
    for note in found.notes:
        typer.echo(f"  {note}")
    typer.echo(f"Report: {out / 'report.html'}; list for train --exclude: {out / 'exclude.txt'}")
