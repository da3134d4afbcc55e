"""What was checked and what came of it; a check that breaks is a finding like any other."""

import math
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

Verdict = Literal["PASS", "FAIL", "SKIP"]
FENCE = "```"  # Markdown shows what is between two of these as it is


class Measured(NamedTuple):
    """How far apart two ways to compute the same are, how far they may be, and what else is worth knowing."""

    value: float
    limit: float
    note: str = ""


class Skipped(Exception):
    """A check that makes no sense here; its text says why."""


@dataclass(frozen=True)
class Check:
    """Something that can be right or wrong."""

    name: str
    run: Callable[[], Measured]


@dataclass(frozen=True)
class Finding:
    """What came of a check."""

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
        """The finding, as JSON takes it: a number that is not finite becomes null."""
        finite = self.measured is not None and math.isfinite(self.measured)
        return {**asdict(self), "measured": self.measured if finite else None, "seconds": round(self.seconds, 2)}


def find(check: Check) -> Finding:
    """Make a check; whatever goes wrong in it is its result."""
    start = time.perf_counter()
    try:
        value, limit, note = check.run()
    except Skipped as reason:
        return Finding(check.name, "SKIP", note=str(reason))
    except Exception as error:  # noqa: BLE001 - the other checks must be made, and this one's end is what was asked for
        note = f"{one_line(error)} ({type(error).__name__} in {_place(error)})"
        return Finding(check.name, "FAIL", note=note, seconds=time.perf_counter() - start)
    verdict: Verdict = "PASS" if value <= limit else "FAIL"  # which NaN is not
    return Finding(check.name, verdict, value, limit, note, time.perf_counter() - start)


@dataclass(frozen=True)
class Examination:
    """A machine and all findings on it."""

    device: str
    machine: Mapping[str, str]
    findings: Sequence[Finding]
    seconds: float

    def count(self, verdict: Verdict) -> int:
        """How many findings have a verdict."""
        return sum(finding.verdict == verdict for finding in self.findings)

    def block(self) -> str:
        """Everything, to paste into an issue."""
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
        """Everything, as JSON takes it."""
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
    """The line of an error that says most: the last, where it is a traceback from another process."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return "broken"
    return lines[-1] if any(line.startswith("Traceback") or "Traceback (" in line for line in lines) else lines[0]


def _place(error: BaseException) -> str:
    """Where an error was raised, without the folders of whoever it happened to."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(last.filename).name}:{last.lineno}"
