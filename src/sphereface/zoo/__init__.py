"""The models that we know: their cards, where their files come from, and model files as such."""

from sphereface.zoo.finding import Found, find_detector, find_model
from sphereface.zoo.listing import Listed, list_models
from sphereface.zoo.model_files import LARGEST, ModelFile, card_of, identity_of, model_file
from sphereface.zoo.pulling import pull

__all__ = [
    "LARGEST", "Found", "Listed", "ModelFile", "card_of", "find_detector", "find_model", "identity_of", "list_models",
    "model_file", "pull",
]  # fmt: skip
