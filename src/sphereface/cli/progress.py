"""Progress bars on standard error; standard output is for results only."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from sphereface.progress import Progress

if TYPE_CHECKING:
    import rich.progress
    from rich.console import Console


class Bars:
    """A bar for each step of a job; plain lines if standard error is not a terminal."""

    def __init__(self, bars: "rich.progress.Progress", console: "Console") -> None:
        self._bars, self._console = bars, console

    def __call__(self, step: str) -> Progress:
        """Start the bar of one step."""
        if not self._console.is_terminal:
            self._console.print(step, highlight=False, soft_wrap=True)
        task = self._bars.add_task(step, total=None)
        return lambda done, total: self._bars.update(task, completed=done, total=total)


@contextmanager
def bars() -> Iterator[Bars]:
    """Bars that release the terminal when the job ends, also by an error."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description:<32}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=console, disable=not console.is_terminal)
    with progress if console.is_terminal else nullcontext():  # before rich 15, hidden bars end in a blank line
        yield Bars(progress, console)
