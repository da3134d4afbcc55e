"""The model of a verb: loaded by name, path or URL; the choice of `auto` is said with its licences."""

from typing import TYPE_CHECKING, Any

from sphereface.cli.output import say

if TYPE_CHECKING:
    from sphereface.embed.embedder import Embedder


def load_embedder(model: str, engine: str = "auto", **options: Any) -> "Embedder":
    """An embedder; prints which model `auto` is, as it decides what its features may be used for."""
    from sphereface.embed.embedder import Embedder

    embedder = Embedder.load(model, engine, **options)
    if model == "auto":
        licences = ", ".join(f"{what} {licence}" for what, licence in embedder.card.licences.items())
        say(f"model {embedder.card.called}: {licences or 'no licence on its card'}")
    return embedder
