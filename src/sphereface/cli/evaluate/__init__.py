"""sphereface evaluate: a model or its features by the published protocols, one file a protocol."""

import typer

from sphereface.cli.evaluate import folder, ijb, lfw, megaface, ytf

__all__ = ["app", "folder", "ijb", "lfw", "megaface", "ytf"]

HELP = "Score models by the published protocols, or on your own people."

app = typer.Typer(no_args_is_help=True, help=HELP)
app.command()(lfw.lfw)
app.command()(ytf.ytf)
app.command()(megaface.megaface)
app.command()(ijb.ijb)
app.command()(folder.folder)


@app.callback()
def evaluate() -> None:
    """Score models by the published protocols, or on your own people."""
