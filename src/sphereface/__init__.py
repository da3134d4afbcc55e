"""Open-set face recognition on the hypersphere.

Names are imported on first use, so that `import sphereface` is fast and needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphereface.embed.embedder import Embedder
    from sphereface.embed.store import open_features
    from sphereface.evaluation import evaluate_folder, evaluate_ijb, evaluate_lfw, evaluate_megaface, evaluate_ytf
    from sphereface.faces.detector import Detector
    from sphereface.faces.images import read_photo
    from sphereface.faces.warp import align
    from sphereface.gallery.gallery import Gallery
    from sphereface.losses import Annealing, create_loss
    from sphereface.models import create_model, load_model, save_model
    from sphereface.recognize.recognizer import Recognizer
    from sphereface.training.run import train

__version__ = "0.1.0.dev0"
__all__ = [
    "Annealing", "Detector", "Embedder", "Gallery", "Recognizer", "__version__", "align", "create_loss",
    "create_model", "evaluate_folder", "evaluate_ijb", "evaluate_lfw", "evaluate_megaface", "evaluate_ytf",
    "load_model", "open_features", "read_photo", "save_model", "train",
]  # fmt: skip

_HOMES = {
    "Annealing": "sphereface.losses",
    "Detector": "sphereface.faces.detector",
    "Embedder": "sphereface.embed.embedder",
    "Gallery": "sphereface.gallery.gallery",
    "Recognizer": "sphereface.recognize.recognizer",
    "align": "sphereface.faces.warp",
    "create_loss": "sphereface.losses",
    "create_model": "sphereface.models",
    "evaluate_folder": "sphereface.evaluation",
    "evaluate_ijb": "sphereface.evaluation",
    "evaluate_lfw": "sphereface.evaluation",
    "evaluate_megaface": "sphereface.evaluation",
    "evaluate_ytf": "sphereface.evaluation",
    "load_model": "sphereface.models",
    "open_features": "sphereface.embed.store",
    "read_photo": "sphereface.faces.images",
    "save_model": "sphereface.models",
    "train": "sphereface.training.run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sphereface' has no attribute {name!r}; it has {', '.join(__all__)}")
    try:
        return getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f"sphereface.{name} needs torch: pip install 'sphereface[train]'") from error


def __dir__() -> list[str]:
    return sorted(__all__)
