"""Notice when a run is lost, and say what to do: no run should end at "loss stuck at 87" the morning after.

A run is lost when the loss or its gradient is no number, or when the loss has stood still for a whole window at log K,
where all logits are equal, or at 87.3 = -log(FLT_MIN), where float32 has no smaller probability. Then the run goes
back to a checkpoint from before, learns at a lower rate, and lets lambda fall more slowly.

K is the number of classes that a step compares with: of a sample, where the loss takes one. Where a loss adds a term to
its softmax (contrastive, SphereFace+, SphereFace-R with soft lengths), a lost run stands at log K plus what that term
happens to be. It depends on directions of features or weights, which logits near 0 say nothing about, and may itself
still fall; so no height is known, and such a standstill is left to whoever looks at the curve. The term of center loss
goes to 0 with the features. What is no number, and 87.3, is noticed for all.
"""

import math
from collections import deque
from dataclasses import dataclass, field

from sphereface.training.config import GuardConfig

UNDERFLOW = 87.3365  # -log(FLT_MIN)
CLOSE = 2e-3  # of a plateau's height: how near the loss must stay
PROGRESS = 5e-4  # of its height: a fall from one half of the window to the next that counts as learning


@dataclass(frozen=True)
class Lost:
    """Why a run is lost, and the last step that was surely good."""

    reason: str
    good_until: int
    advice: str


@dataclass
class Guard:
    """Watches the losses of a run, K classes a step; K is None where a standstill has no known height."""

    rule: GuardConfig
    classes: int | None
    losses: deque[float] = field(default_factory=deque)

    def watch(self, step: int, loss: float, gradient_norm: float = 0.0) -> Lost | None:
        """What to say about a step, given its loss; None while all is well."""
        if not math.isfinite(loss) or not math.isfinite(gradient_norm):
            what = f"loss {loss}" if not math.isfinite(loss) else f"gradient norm {gradient_norm}"
            return Lost(f"{what} at step {step}", step - 1, "lower lr, clip gradients, or let lambda fall more slowly")
        self.losses.append(loss)
        if len(self.losses) > self.rule.window:
            self.losses.popleft()
        if len(self.losses) < self.rule.window:
            return None
        for height, name in self._plateaus():
            if self._stands_at(height):
                return Lost(
                    f"loss stood at {name} = {height:.3f} for {self.rule.window} steps, up to step {step}",
                    step - self.rule.window,
                    "let lambda fall more slowly (annealing.gamma), lower lr, or use norm = 'batch'",
                )
        return None

    def forget(self) -> None:
        """Begin anew, after a rollback."""
        self.losses.clear()

    def _plateaus(self) -> list[tuple[float, str]]:
        known = [(UNDERFLOW, "-log(FLT_MIN)")]
        if self.classes is not None:
            known.append((math.log(self.classes), "log K"))
        return known

    def _stands_at(self, height: float) -> bool:
        """Whether both halves of the window are near a height, and the second is no lower than the first."""
        values = list(self.losses)
        half = len(values) // 2
        first, second = (sum(part) / len(part) for part in (values[:half], values[half:]))
        near = max(abs(first - height), abs(second - height)) <= CLOSE * height
        return near and first - second < PROGRESS * height
