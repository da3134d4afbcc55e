"""sphereface evaluate: published protocols for a model or its features, one file a protocol."""

import typer

from sphereface.cli.evaluate import folder, ijb, lfw, megaface, ytf

__all__ = ["app", "folder", "ijb", "lfw", "megaface", "ytf"]

app = typer.Typer(no_args_is_help=True, help="Score models by published protocols, or on your own people.")
for verb in (lfw.lfw, ytf.ytf, megaface.megaface, ijb.ijb, folder.folder):
    app.command()(verb)
