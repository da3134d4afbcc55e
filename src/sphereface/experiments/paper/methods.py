"""The losses that the paper compares, as settings of a training run, by the names of `published`."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from sphereface.training.config import TrainConfig


class Method(NamedTuple):
    """A loss with its options; `weighted` names an option whose value is searched."""

    label: str
    loss: str
    options: Mapping[str, Any] = {}
    last_relu: bool = False
    rate_of: str | None = None  # another method whose learning rate it takes
    weighted: str | None = None

    def config(self, base: TrainConfig) -> TrainConfig:
        """The settings `base` with this loss."""
        config = base.with_loss(self.loss)
        options = {**config.loss_options, **self.options}
        return config.changed(loss_options=options, last_relu=self.last_relu)


METHODS: dict[str, Method] = {
    "softmax": Method("softmax", "softmax"),
    "modified_softmax": Method("modified softmax (m = 1)", "modified_softmax"),
    "a_softmax_m2": Method("A-Softmax, m = 2", "a_softmax", {"m": 2}),
    "a_softmax_m3": Method("A-Softmax, m = 3", "a_softmax", {"m": 3}),
    "a_softmax": Method("A-Softmax, m = 4", "a_softmax", {"m": 4}),
    "contrastive": Method("softmax + contrastive", "contrastive", weighted="weight"),
    "triplet": Method("triplet", "triplet"),
    "l_softmax": Method("L-Softmax, m = 4", "l_softmax", {"m": 4}),
    "center": Method("softmax + center", "center", weighted="weight"),
    "softmax_relu": Method("softmax, last ReLU", "softmax", last_relu=True, rate_of="softmax"),
    "softmax_no_bias": Method("softmax, no bias", "softmax", {"bias": False}, rate_of="softmax"),
}
# Row of the ablation -> method. Appendix E.
ABLATION = {
    "A": "softmax_relu", "B": "softmax", "C": "softmax_no_bias", "D": "modified_softmax", "E": "a_softmax_m2",
    "F": "a_softmax_m3", "G": "a_softmax",
}  # fmt: skip
EFFECT_OF_M = ("softmax", "modified_softmax", "a_softmax_m2", "a_softmax_m3", "a_softmax")  # Table 3
RIVALS = ("softmax", "contrastive", "triplet", "l_softmax", "center", "a_softmax")  # Tables 4 and 5
