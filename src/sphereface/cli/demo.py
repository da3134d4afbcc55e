"""sphereface demo: see A-Softmax at work."""

import json

import typer


def demo(
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
    seed: int = typer.Option(0, help="Same seed, same result."),
) -> None:
    """Train five losses on points of six classes and compare the angles of their 3-D features.

    A first small demonstration, without faces. Example: sphereface demo --json
    """
    from sphereface.experiments.toy import compare_losses

    rows = compare_losses(seed=seed)
    if as_json:
        typer.echo(json.dumps({"seed": seed, "rows": [row._asdict() for row in rows]}))
        return
    typer.echo(
        "Angles of 3-D features of unseen points, in degrees: within a class small is good, between large is good"
    )
    for row in rows:
        typer.echo(f"  {row.loss:<18} within {row.within:5.1f}   between {row.between:5.1f}   ratio {row.ratio:5.3f}")
