"""sphereface bench: ratios against named peers."""

import json
from typing import Any

import typer

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

    result: dict[str, Any] = bench_head(
        repeats=repeats, device=device, memory=memory, say=lambda line: typer.echo(line, err=True)
    )
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
