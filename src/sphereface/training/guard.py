"""Detection of lost runs, with a reason and advice.

A run is lost when the loss or its gradient is not finite, or when the loss has a plateau for a whole window at log K,
where all logits are equal, or at 87.3 = -log(FLT_MIN), where float32 has no smaller probability. Then the run goes
back to an earlier checkpoint, continues at a lower rate, and lets lambda fall more slowly.

K is the number of classes in the softmax of a step: those of the sample, where the loss draws one. Where a loss adds a
term to its softmax (contrastive, SphereFace+, SphereFace-R with soft lengths), the plateau is at log K plus that term.
The term depends on directions of features or weights, independent of logits near 0, and may still fall: its height is
unknown, and such a plateau is left to a reader of the curve. The term of center loss goes to 0 with the features.
Values that are not finite, and 87.3, are detected for every loss.
"""

import math
from collections import deque
from dataclasses import dataclass, field

from sphereface.training.config import GuardConfig

UNDERFLOW = 87.3365  # -log(FLT_MIN)
CLOSE = 2e-3  # largest distance from a plateau, as a share of its height
PROGRESS = 5e-4  # smallest fall between the halves of the window that counts as learning, as a share of the height


@dataclass(frozen=True)
class Lost:
    """Why a run is lost, and the last step that is known to be good."""

    reason: str
    good_until: int
    advice: str


@dataclass
class Guard:
    """Watches the losses of a run with K = `classes`, None for losses without a known plateau height."""

    rule: GuardConfig
    classes: int | None
    losses: deque[float] = field(default_factory=deque)

    def watch(self, step: int, loss: float, gradient_norm: float = 0.0) -> Lost | None:
        """The reason why the run is lost at this step, or None."""
        if not math.isfinite(loss) or not math.isfinite(gradient_norm):
            value = f"loss {loss}" if not math.isfinite(loss) else f"gradient norm {gradient_norm}"
            return Lost(f"{value} at step {step}", step - 1, "lower lr, clip gradients, or let lambda fall more slowly")
        self.losses.append(loss)
        if len(self.losses) > self.rule.window:
            self.losses.popleft()
        if len(self.losses) < self.rule.window:
            return None
        plateaus = {"-log(FLT_MIN)": UNDERFLOW}
        if self.classes is not None:
            plateaus["log K"] = math.log(self.classes)
        for name, height in plateaus.items():
            if self._stands_at(height):
                return Lost(
                    f"loss stood at {name} = {height:.3f} for {self.rule.window} steps, up to step {step}",
                    step - self.rule.window,
                    "let lambda fall more slowly (annealing.gamma), lower lr, or use norm = 'batch'",
                )
        return None

    def forget(self) -> None:
        """Clear the window, after a rollback."""
        self.losses.clear()

    def _stands_at(self, height: float) -> bool:
        """True if the means of both halves of the window are near a height, and the second is not lower."""
        values = list(self.losses)
        half = len(values) // 2
        first, second = (sum(part) / len(part) for part in (values[:half], values[half:]))
        near = max(abs(first - height), abs(second - height)) <= CLOSE * height
        return near and first - second < PROGRESS * height
