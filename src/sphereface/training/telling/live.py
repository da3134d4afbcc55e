"""The progress of a run in one live line: loss, lambda, rate, speed and time left."""

import math
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live


class _Mark(NamedTuple):
    time: float
    step: int
    images: int


class Meter:
    """Smoothed loss, speed and time left of a run.

    Speed is the mean over the last half minute, with validations and checkpoints.
    """

    WINDOW = 30.0  # seconds
    MEMORY = 0.98  # of the loss: a mean over about 50 records

    def __init__(self, steps: int, *, start: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self.steps, self._clock = steps, clock
        self._marks = deque([_Mark(clock(), start, 0)])
        self._sum = self._weight = 0.0
        self._latest = math.nan

    def see(self, step: int, loss: float, *, images: int) -> None:
        """Record a completed step, and the number of images since the last record."""
        last = self._marks[-1]
        self._marks.append(_Mark(self._clock(), step, last.images + images))
        while len(self._marks) > 2 and self._marks[1].time <= self._marks[-1].time - self.WINDOW:
            self._marks.popleft()
        self._latest = loss
        if math.isfinite(loss):
            self._sum = self.MEMORY * self._sum + (1 - self.MEMORY) * loss
            self._weight = self.MEMORY * self._weight + (1 - self.MEMORY)

    def rewind(self, step: int) -> None:
        """Restart all means at an earlier step, after a rollback."""
        self._marks = deque([_Mark(self._clock(), step, 0)])
        self._sum = self._weight = 0.0

    @property
    def step(self) -> int:
        """The last recorded step."""
        return self._marks[-1].step

    @property
    def loss(self) -> float:
        """The smoothed loss; a last loss that is not finite is returned as it is, and left out of the mean."""
        return self._sum / self._weight if math.isfinite(self._latest) and self._weight else self._latest

    @property
    def images_per_second(self) -> float:
        """Images per second; nan at first."""
        first, last = self._marks[0], self._marks[-1]
        return (last.images - first.images) / (last.time - first.time) if last.time > first.time else math.nan

    @property
    def seconds_left(self) -> float:
        """Seconds for the remaining steps at this speed; nan at first."""
        first, last = self._marks[0], self._marks[-1]
        done = last.step - first.step
        return (self.steps - last.step) * (last.time - first.time) / done if done > 0 else math.nan


class LiveLine:
    """One line of progress on standard error; without a terminal, a new line every `every` seconds.

    >>> with LiveLine(steps=28_000) as line:
    ...     line.update(1, loss=9.2, lr=0.1, images=128, lambda_=892.9)
    """

    REFRESH = 0.2  # seconds between changes of the line

    def __init__(
        self,
        steps: int,
        *,
        start: int = 0,
        every: float = 30.0,
        console: "Console | None" = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        from rich.console import Console

        self.meter = Meter(steps, start=start, clock=clock)
        self._console = console or Console(stderr=True)
        self._clock, self._pause = clock, self.REFRESH if self._console.is_terminal else every
        self._text, self._shown, self._due = "", "", -math.inf
        self._live: Live | None = None

    def update(self, step: int, *, loss: float, lr: float, images: int, lambda_: float | None = None) -> None:
        """Record a completed step; `images` is their number since the last record."""
        self.meter.see(step, loss, images=images)
        now = self._clock()
        if now < self._due and step < self.meter.steps:
            return
        self._due = now + self._pause
        self._text = describe(self.meter, lr=lr, lambda_=lambda_)
        self._show()

    def say(self, text: str) -> None:
        """Print a line of text above the live line."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _show(self) -> None:
        if self._live is not None:
            from rich.text import Text

            self._live.update(Text(self._text, no_wrap=True, overflow="ellipsis"), refresh=True)
        elif self._text != self._shown:
            self.say(self._text)
        self._shown = self._text

    def __enter__(self) -> "LiveLine":
        if self._console.is_terminal:
            from rich.live import Live

            # Without a refresh thread, because the loader may fork; standard output is for results.
            self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=False)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def describe(meter: Meter, *, lr: float, lambda_: float | None = None) -> str:
    """The progress of a run as one line of text."""
    speed = meter.images_per_second
    parts = [
        f"step {meter.step:,}/{meter.steps:,}",
        f"loss {meter.loss:.4g}",
        *([] if lambda_ is None else [f"lambda {lambda_:.4g}"]),
        f"lr {lr:.3g}",
        *([] if math.isnan(speed) else [f"{speed:,.0f} images/s" if speed >= 10 else f"{speed:.1f} images/s"]),
        *([] if math.isnan(meter.seconds_left) else [f"{clock_time(meter.seconds_left)} left"]),
    ]
    return "  ".join(parts)


def clock_time(seconds: float) -> str:
    """A duration as hours:minutes:seconds.

    >>> clock_time(3725)
    '1:02:05'
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
