"""The result of a calibration: thresholds and the impostor tail, for a card, for JSON and as plain text."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sphereface.contract import Card, ImpostorTail, TemplateTail, Threshold
from sphereface.errors import ContractMismatch, UserError
from sphereface.metrics.support import lowest_far


@dataclass(frozen=True)
class Calibration:
    """Thresholds with their intervals, and the upper tail of the scores of different people."""

    thresholds: tuple[Threshold, ...]
    tail: ImpostorTail
    photos: int
    template_tails: tuple[TemplateTail, ...] = ()
    made_with: Card | None = field(default=None, repr=False)  # the card of the model that made the features
    model: str = ""  # SHA-256 of its file, if the features have it

    def at_far(self, far: float) -> Threshold:
        """The threshold for comparing two faces at a false accept rate."""
        return self._find(lambda each: each.fpir is None and np.isclose(each.far, far), f"FAR {far:g}")

    def at_fpir(self, fpir: float, gallery_size: int) -> Threshold:
        """The threshold for searching a gallery at a false positive identification rate."""
        return self._find(
            lambda each: each.gallery_size == gallery_size and each.fpir is not None and np.isclose(each.fpir, fpir),
            f"FPIR {fpir:g} with {gallery_size:,} people",
        )

    def with_thresholds(self, more: Iterable[Threshold]) -> "Calibration":
        """The same calibration with more thresholds, measured on the same people."""
        return replace(self, thresholds=(*self.thresholds, *more))

    def card(self, card: Card) -> Card:
        """A model's card with this calibration, which replaces an older one."""
        if card.feature_rule != self.tail.feature_rule:
            raise ContractMismatch(
                f"the calibration is of features under the rule {self.tail.feature_rule}, the card's rule is "
                f"{card.feature_rule}; calibrate features made under that rule"
            )
        made = self.made_with
        for what in ("name", "architecture", "preprocessing", "members") if made is not None else ():
            if getattr(made, what) != getattr(card, what):
                raise ContractMismatch(
                    f"the calibration is of features of another model: their card has {what} {getattr(made, what)!r}, "
                    f"this one {getattr(card, what)!r}; calibrate features of this model"
                )
        return card.model_copy(update=self.measured)

    @property
    def measured(self) -> dict[str, Any]:
        """The fields of a card that a calibration decides."""
        return {"thresholds": self.thresholds, "impostor_tail": self.tail, "template_tails": self.template_tails}

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "thresholds": [each.model_dump(mode="json") for each in self.thresholds],
            "impostor_tail": self.tail.model_dump(mode="json"),
            "template_tails": [each.model_dump(mode="json") for each in self.template_tails],
            "photos": self.photos,
            "lowest_far": lowest_far(self.tail.people),
        }

    def table(self) -> str:
        """The thresholds as plain text."""
        weighed = "every two people" if self.tail.weigh == "people" else "every two photos"
        lines = [
            f"{self.tail.measured_on}: {self.tail.people:,} people, {self.photos:,} photos, {self.tail.pairs:,} pairs "
            f"of different people; {weighed} have the same weight",
            f"{'rate':<34}{'score':>8}   95 %",
            *map(str, self.thresholds),
        ]
        if self.template_tails:
            sizes = ", ".join(f"{each.photos} ({each.templates:,} people)" for each in self.template_tails)
            lines.append(f"searches: impostor tails of templates of {sizes} photos")
        return "\n".join(lines)

    def _find(self, matches: Callable[[Threshold], bool | np.bool_], what: str) -> Threshold:
        for each in filter(matches, self.thresholds):
            return each
        raise UserError(f"no threshold for {what} in this calibration; name the rate when calibrating")
