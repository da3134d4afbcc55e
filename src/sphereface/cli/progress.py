"""Progress bars on standard error, so that standard output stays for results."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from sphereface.progress import Progress

if TYPE_CHECKING:
    import rich.progress
    from rich.console import Console


class Bars:
    """One bar after another; plain lines where there is no terminal."""

    def __init__(self, bars: "rich.progress.Progress", console: "Console") -> None:
        self._bars, self._console = bars, console

    def __call__(self, step: str) -> Progress:
        """A bar for one step of the work."""
        if not self._console.is_terminal:
            self._console.print(step, highlight=False, soft_wrap=True)
        task = self._bars.add_task(step, total=None)
        return lambda done, total: self._bars.update(task, completed=done, total=total)


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
