"""What is scored: models that are loaded, or features that are opened; errors name the files."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sphereface.choices import Engine, FeatureRule
from sphereface.errors import BadFeature, DataFormatError, UserError

if TYPE_CHECKING:
    from sphereface.embed.embedder import Embedder
    from sphereface.embed.store import FeatureStore

WANTED = "a .safetensors of ours, or any .onnx with a card"


def load_models(
    models: Sequence[Path] | None,
    engine: Engine,
    feature_rule: FeatureRule | None,
    device: str,
    threads: int | None,
) -> "Embedder":
    """One model, or several as an ensemble."""
    from sphereface.embed.embedder import Embedder
    from sphereface.embed.ensemble import Ensemble

    if not models:
        raise UserError(f"no model is named; wanted --model FILE, {WANTED}")
    absent = [str(path) for path in models if not path.is_file()]
    if absent:
        raise UserError(f"{', '.join(absent)}: no such model; wanted {WANTED}")
    if len(models) == 1:
        return Embedder.load(models[0], engine, threads=threads, device=device, feature_rule=feature_rule)
    return Ensemble.load(list(models), engine, threads=threads, device=device, feature_rule=feature_rule)


def load_source(
    models: Sequence[Path] | None,
    folders: Sequence[Path] | None,
    engine: Engine,
    feature_rule: FeatureRule | None,
    device: str,
    threads: int | None,
) -> "Embedder | FeatureStore":
    """Models, or the features that were stored; not both."""
    if bool(models) == bool(folders):
        came = "--model and --features are both given" if models else "neither --model nor --features is given"
        raise UserError(f"{came}; wanted --model FILE, {WANTED}, or --features FOLDER, which sphereface embed wrote")
    if not folders:
        return load_models(models, engine, feature_rule, device, threads)
    if feature_rule is not None:
        raise UserError(f"--feature-rule {feature_rule} with --features, which have theirs; embed again with it")
    from sphereface.evaluation.sources import open_stored

    return open_stored(folders)


def require_faces(faces: Path | None, models: Sequence[Path] | None) -> None:
    """Refuse a model that has nothing to embed."""
    if models and faces is None:
        raise UserError("--model without faces; wanted the folder of aligned ones as FACES, or --features instead")


@contextmanager
def naming(**files: Sequence[Path] | None) -> Iterator[None]:
    """Errors about a feature also name the files that hold it; `files` by what they are features of."""
    try:
        yield
    except BadFeature as error:
        paths = files.get(error.what)
        if not paths:
            raise
        raise DataFormatError(", ".join(map(str, paths)), ": ", *error.parts) from error
