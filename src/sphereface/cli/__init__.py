"""The command line: one file a verb; each parses options, calls one library function, and prints the result."""

import os
import sys
from collections.abc import Sequence

import typer

from sphereface import __version__
from sphereface.cli import (
    bench,
    data,
    demo,
    doctor,
    embed,
    enroll,
    evaluate,
    gallery,
    group,
    identify,
    models,
    reproduce,
    train,
    verify,
)
from sphereface.errors import JobFailed, UserError

EXTRAS = {
    "torch": "train",
    "tomli_w": "train",
    "matplotlib": "plot",
    "cryptography": "secure",
}  # extra to install for a missing module

app = typer.Typer(
    name="sphereface",
    help="Open-set face recognition on the hypersphere.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
VERBS = (
    demo.demo, verify.verify, enroll.enroll, identify.identify, group.group, train.train, embed.embed, doctor.doctor,
)  # fmt: skip
for verb in VERBS:
    app.command()(verb)
app.add_typer(gallery.app, name="gallery")
app.add_typer(evaluate.app, name="evaluate")
app.add_typer(data.app, name="data")
app.add_typer(models.app, name="models")
app.add_typer(reproduce.app, name="reproduce")
app.add_typer(bench.app, name="bench")


@app.callback(invoke_without_command=True)
def version(show: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    """Open-set face recognition on the hypersphere."""
    if show:
        typer.echo(__version__)
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a verb; an error that the user can fix ends in one line and exit code 2, a failed job in exit code 1."""
    os.environ.setdefault("OPENCV_LOG_LEVEL", "ERROR")  # our errors cover its warnings
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        app(args=list(given), prog_name="sphereface", obj=given)  # `obj` is the command in reports
    except Exception as error:
        if os.environ.get("SPHEREFACE_DEBUG", "0") not in ("", "0"):
            raise
        line, code = ending(error)
        typer.echo(f"sphereface: {line}", err=True)
        sys.exit(code)


def ending(error: Exception) -> tuple[str, int]:
    """The line to print and the exit code for an error."""
    first = next(iter(str(error).splitlines()), "") or type(error).__name__
    match error:
        case UserError():
            return error.as_typed, 2
        case ImportError():
            extra = EXTRAS.get(error.name or "")
            return str(error) + (f"; pip install 'sphereface[{extra}]'" if extra else ""), 2
        case JobFailed():
            return str(error), 1
        case OSError() | RuntimeError() | MemoryError():  # of the machine, or of a library on it
            return f"{first} (SPHEREFACE_DEBUG=1 shows where)", 1
        case _:
            return f"a bug in sphereface, {type(error).__name__}: {first} (SPHEREFACE_DEBUG=1 shows where)", 1
