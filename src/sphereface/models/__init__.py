"""The networks by name, and their model files."""

from sphereface.contract import Architecture, Norm
from sphereface.errors import UserError
from sphereface.models.files import load_model, save_model
from sphereface.models.spherefacenet import STAGES, SphereFaceNet

__all__ = ["MODELS", "create_model", "load_model", "save_model"]

MODELS = tuple(STAGES)
NORMS = "batch", "batch-all"


def create_model(
    name: str, *, features: int = 512, width: float = 1.0, last_relu: bool = False, norm: Norm = None
) -> SphereFaceNet:
    """Build a network by name, with the authors' initial values: (N, 3, 112, 96) -> (N, features).

    >>> net = create_model("sphereface20")
    """
    if name not in STAGES:
        raise UserError(f"unknown model {name!r}; choose one of {', '.join(STAGES)}")
    if norm is not None and norm not in NORMS:
        raise UserError(f"norm is {norm!r}; choose None, as in the paper, or one of {', '.join(NORMS)}")
    if features < 1 or not 0 < width <= 64:
        raise UserError(f"features is {features} and width is {width}; wanted at least 1, and above 0 and up to 64")
    return SphereFaceNet(Architecture(name=name, features=features, width=width, last_relu=last_relu, norm=norm))
