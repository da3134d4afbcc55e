"""What is scored: models that are loaded, or features that are opened; errors name the files."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sphereface.cli.choices import EngineName, RuleName
from sphereface.errors import DataFormatError

if TYPE_CHECKING:
    from sphereface.embed.embedder import Embedder, Rule
    from sphereface.embed.store import Features

WANTED = "a .safetensors of ours, or any .onnx with a card"


def load_models(
    models: Sequence[Path] | None,
    engine: EngineName,
    rule: RuleName | None,
    device: str,
    threads: int | None,
) -> "Embedder":
    """One model, or several as an ensemble."""
    from sphereface.embed.embedder import Embedder
    from sphereface.embed.ensemble import Ensemble

    if not models:
        raise ValueError(f"no model is named; wanted --model FILE, {WANTED}")
    absent = [str(path) for path in models if not path.is_file()]
    if absent:
        raise ValueError(f"{', '.join(absent)}: no such model; wanted {WANTED}")
    told: Rule | None = None if rule is None else rule.value
    if len(models) == 1:
        return Embedder.load(models[0], engine.value, threads=threads, device=device, rule=told)
    with naming({}):
        return Ensemble.load(list(models), engine.value, threads=threads, device=device, rule=told)


def load_source(
    models: Sequence[Path] | None,
    folders: Sequence[Path] | None,
    engine: EngineName,
    rule: RuleName | None,
    device: str,
    threads: int | None,
) -> "Embedder | Features":
    """Models, or the features that were stored; not both."""
    if bool(models) == bool(folders):
        came = "--model and --features are both given" if models else "neither --model nor --features is given"
        raise ValueError(f"{came}; wanted --model FILE, {WANTED}, or --features FOLDER, which sphereface embed wrote")
    if not folders:
        return load_models(models, engine, rule, device, threads)
    if rule is not None:
        raise ValueError(f"--feature-rule {rule.value} with --features, which have theirs; embed again with --rule")
    from sphereface.evaluation.list_order import open_stored

    return open_stored(folders)


def require_faces(faces: Path | None, models: Sequence[Path] | None) -> None:
    """Refuse a model that has nothing to embed."""
    if models and faces is None:
        raise ValueError("--model without faces; wanted the folder of aligned ones as FACES, or --features instead")


@contextmanager
def naming(files: Mapping[str, Sequence[Path] | None]) -> Iterator[None]:
    """Errors about features name their files too, and every way out is told as one types it.

    `files` are those of features by what these are of: `probe `, or nothing for images.
    """
    try:
        yield
    except ValueError as error:
        where = [
            f"{', '.join(map(str, paths))}: "
            for what, paths in files.items()
            if paths and str(error).startswith(f"the feature of {what}")
        ]
        told = "".join(where) + as_options(str(error))
        if told == str(error):
            raise
        raise DataFormatError(told) from error


def as_options(text: str) -> str:
    """What a function's error calls `missing="skip"` is `--missing skip` here."""
    text = text.replace("load them with one rule=", "give them one with --feature-rule")
    return re.sub(r'\b([a-z]+)="([a-z ]+)"', lambda told: f"--{told[1]} {told[2].replace(' ', '-')}", text)
