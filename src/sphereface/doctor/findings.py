"""Checks and their findings; an error inside a check is a finding too."""

import math
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

Verdict = Literal["PASS", "FAIL", "SKIP"]
FENCE = "```"  # of a block of preformatted text in Markdown


class Measured(NamedTuple):
    """The distance between two computations of the same numbers, its limit, and a note."""

    value: float
    limit: float
    note: str = ""


class Skipped(Exception):
    """A check that does not apply here; the text is the reason."""


@dataclass(frozen=True)
class Check:
    """A named check."""

    name: str
    run: Callable[[], Measured]


@dataclass(frozen=True)
class Finding:
    """The result of a check."""

    name: str
    verdict: Verdict
    measured: float | None = None
    limit: float | None = None
    note: str = ""
    seconds: float = 0.0

    def line(self) -> str:
        """The finding as one line."""
        numbers = "" if self.measured is None else f"{self.measured:.1e}, limit {self.limit:g}"
        return f"{self.verdict}  {self.name:<28} {numbers:<21}  {self.note}".rstrip()

    def as_dict(self) -> dict[str, Any]:
        """The finding for JSON: a number that is not finite becomes null."""
        finite = self.measured is not None and math.isfinite(self.measured)
        return {**asdict(self), "measured": self.measured if finite else None, "seconds": round(self.seconds, 2)}


def throw(error: Exception) -> NoReturn:
    """Raise an error: the body of a check that cannot run."""
    raise error


def find(check: Check) -> Finding:
    """Run a check; an error inside it is a failure."""
    start = time.perf_counter()
    try:
        value, limit, note = check.run()
    except Skipped as reason:
        return Finding(check.name, "SKIP", note=str(reason))
    except Exception as error:  # noqa: BLE001 - any error is a finding, and the other checks follow
        note = f"{one_line(error)} ({type(error).__name__} in {_place(error)})"
        return Finding(check.name, "FAIL", note=note, seconds=time.perf_counter() - start)
    verdict: Verdict = "PASS" if value <= limit else "FAIL"  # NaN fails
    return Finding(check.name, verdict, value, limit, note, time.perf_counter() - start)


@dataclass(frozen=True)
class Examination:
    """A machine and all findings on it."""

    device: str
    machine: Mapping[str, str]
    findings: Sequence[Finding]
    seconds: float

    def count(self, verdict: Verdict) -> int:
        """The number of findings with a verdict."""
        return sum(finding.verdict == verdict for finding in self.findings)

    def block(self) -> str:
        """Machine and findings as text to paste into an issue."""
        wide = max(map(len, self.machine), default=0)
        return "\n".join([
            FENCE,
            f"sphereface doctor --device {self.device}",
            *(f"{name:<{wide}}  {value}" for name, value in self.machine.items()),
            "",
            *(finding.line() for finding in self.findings),
            "",
            f"{self.count('PASS')} passed, {self.count('FAIL')} failed, {self.count('SKIP')} skipped "
            f"in {self.seconds:.0f} s",
            FENCE,
        ])  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        """Machine and findings for JSON."""
        return {
            "device": self.device,
            "machine": dict(self.machine),
            "checks": [finding.as_dict() for finding in self.findings],
            "passed": self.count("PASS"),
            "failed": self.count("FAIL"),
            "skipped": self.count("SKIP"),
            "seconds": round(self.seconds, 1),
        }


def one_line(error: BaseException) -> str:
    """The most informative line of an error: the last of a traceback from another process, else the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return "broken"
    return lines[-1] if any(line.startswith("Traceback") or "Traceback (" in line for line in lines) else lines[0]


def _place(error: BaseException) -> str:
    """File name and line of an error, without folders, which may name a user."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(last.filename).name}:{last.lineno}"
