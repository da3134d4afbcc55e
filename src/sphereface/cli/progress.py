"""Progress bars on standard error, so that standard output stays for results."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bars() -> Iterator[Callable[[str, int], Callable[[int], None]]]:
    """Yield begin(what, total) -> update(done): one bar after another; plain lines where there is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description:<32}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:

        def begin(what: str, total: int) -> Callable[[int], None]:
            if not console.is_terminal:
                console.print(what, highlight=False)
            task = progress.add_task(what, total=total)
            return lambda done: progress.update(task, completed=done)

        yield begin
