"""The features that a protocol scores: of models that are loaded, or of feature stores; errors name the files."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sphereface.cli.model import load_embedder
from sphereface.cli.options import Source
from sphereface.errors import BadFeature, DataFormatError, UserError

if TYPE_CHECKING:
    from sphereface.embed.embedder import Embedder
    from sphereface.embed.store import FeatureStore

WANTED = "a name of `models list`, a .safetensors of ours, or any .onnx with a card"


def load_source(source: Source) -> "Embedder | FeatureStore":
    """Load one model or an ensemble, or open feature stores; both kinds at once are an error."""
    rule = source.feature_rule
    if bool(source.models) == bool(source.features):
        came = "--model and --features are both given" if source.models else "neither --model nor --features is given"
        raise UserError(f"{came}; wanted --model NAME|FILE, {WANTED}, or --features FOLDER, which `embed` wrote")
    if source.features:
        if rule is not None:
            raise UserError(f"--feature-rule {rule} with --features, which were stored by their own rule; embed again")
        from sphereface.evaluation.sources import open_stored

        return open_stored(source.features)
    from sphereface.embed.ensemble import Ensemble

    models = list(source.models or ())
    if len(models) == 1:
        return load_embedder(models[0], source.engine, threads=source.threads, device=source.device, feature_rule=rule)
    return Ensemble.load(models, source.engine, threads=source.threads, device=source.device, feature_rule=rule)


def require_faces(faces: Path | None, models: Sequence[str] | None) -> None:
    """Raise if models are given without faces to embed."""
    if models and faces is None:
        raise UserError("--model without faces; wanted the folder of aligned ones as FACES, or --features instead")


@contextmanager
def naming(**files: Sequence[Path] | None) -> Iterator[None]:
    """Add file names to errors about a feature; `files` are given by the kind of their features."""
    try:
        yield
    except BadFeature as error:
        paths = files.get(error.what)
        if not paths:
            raise
        raise DataFormatError(", ".join(map(str, paths)), ": ", *error.parts) from error
