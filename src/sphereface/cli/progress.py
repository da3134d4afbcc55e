"""Progress bars on standard error, so that standard output stays for results."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


class Bars:
    """One bar after another; plain lines where there is no terminal."""

    def __init__(self, progress: "Progress", console: "Console") -> None:
        self._progress, self._console = progress, console

    def __call__(self, what: str, total: int) -> Callable[[int], None]:
        """A bar whose length is known; the function that it gives hears how much is done."""
        update = self.growing(what)
        update(0, total)
        return lambda done: update(done, total)

    def growing(self, what: str) -> Callable[[int, int | None], None]:
        """A bar that learns its length as it goes: its function hears how much is done, and of how much."""
        if not self._console.is_terminal:
            self._console.print(what, highlight=False, soft_wrap=True)
        task = self._progress.add_task(what, total=None)
        return lambda done, total: self._progress.update(task, completed=done, total=total)

    def counting(self, what: str) -> Callable[[int], None]:
        """A bar without an end in sight."""
        update = self.growing(what)
        return lambda done: update(done, None)


@contextmanager
def bars() -> Iterator[Bars]:
    """Bars that vanish from the terminal's cursor when the work ends, however it ends."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description:<32}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=console, disable=not console.is_terminal)
    with (
        progress if console.is_terminal else nullcontext()
    ):  # before rich 15, bars that are not shown end in a blank line
        yield Bars(progress, console)
