"""The answers of a recognizer: what was found, the threshold that decided, and the rate that it promises."""

import math
from dataclasses import dataclass, field
from typing import Any

from sphereface.contract import FalseAcceptRate
from sphereface.recognize.photos import Face
from sphereface.recognize.thresholds import NO_LIVENESS, PairThreshold, SearchThreshold


@dataclass(frozen=True)
class Verification:
    """Whether two photos show one person."""

    score: float  # cosine
    threshold: PairThreshold
    rate: FalseAcceptRate  # of pairs of different people that score as high
    faces: tuple[Face, Face]
    sources: tuple[str, str]
    model: str
    warnings: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """True if the score reaches the threshold."""
        return self.score >= self.threshold.score

    @property
    def angle(self) -> float:
        """The angle between the two features, in degrees."""
        return math.degrees(math.acos(max(-1.0, min(1.0, self.score))))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        faces = [{"photo": source, **face.as_dict()} for source, face in zip(self.sources, self.faces, strict=True)]
        return {
            "same": self.same, "score": self.score, "threshold": self.threshold.score, "far": self.threshold.far,
            "angle": self.angle, "rate": self.rate.far, "rate_is": self.rate.said, "faces": faces,
            "model": self.model, "warnings": [*self.warnings, NO_LIVENESS],
        }  # fmt: skip

    def text(self) -> str:
        """For people."""
        verdict = "the same person" if self.same else "different people"
        side = "at or above" if self.same else "below"
        lines = [
            f"{verdict}: score {self.score:.3f}, {side} the threshold {self.threshold.score:.3f} (angle "
            f"{self.angle:.0f} degrees)",
            f"{_share(self.threshold.far)} of different people reach this threshold; "
            f"{_share(self.rate.far, self.rate.said)} are as alike as these two.",
        ]
        return "\n".join([*lines, *(f"warning: {each}" for each in (*self.warnings, NO_LIVENESS))])


@dataclass(frozen=True)
class Identified:
    """A face in a photo, and who it is."""

    face: Face
    name: str | None  # None: unknown
    score: float | None  # of the most similar person; None in an empty gallery
    threshold: SearchThreshold

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **self.face.as_dict(), "name": self.name, "score": self.score, "threshold": self.threshold.score,
            "fpir": self.threshold.fpir,
        }  # fmt: skip


@dataclass(frozen=True)
class IdentifiedPhoto:
    """The faces of a photo, the one nearest the centre first, and who they are."""

    source: str
    faces: tuple[Identified, ...]
    error: str = ""  # of a photo that could not be read

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        found = {"path": self.source, "faces": [each.as_dict() for each in self.faces]}
        return {**found, "error": self.error} if self.error else found


@dataclass(frozen=True)
class Alike:
    """A person who may be the enrolled one under another name."""

    name: str
    score: float


@dataclass(frozen=True)
class Enrolment:
    """What became of the photos of a person."""

    name: str  # in the gallery: the name that was given may be an earlier one
    photos: int  # that the person has now
    added: tuple[str, ...] = ()
    known: tuple[str, ...] = ()  # were there before
    removed: tuple[str, ...] = ()  # were removed from the person before, and stay out
    failed: dict[str, str] = field(default_factory=dict)  # photo -> reason: unreadable, without a face, of low quality
    refused: dict[str, float] = field(default_factory=dict)  # photo -> score: shows somebody else, it seems
    match: float | None = None  # the score from which a photo looks like the person
    alike: tuple[Alike, ...] = ()
    warnings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name, "photos": self.photos, "added": list(self.added), "known": list(self.known),
            "removed": list(self.removed), "failed": self.failed, "refused": self.refused, "threshold": self.match,
            "alike": [{"name": each.name, "score": each.score} for each in self.alike],
            "warnings": [*self.warnings, NO_LIVENESS],
        }  # fmt: skip

    def text(self) -> str:
        """For people."""
        lines = [f"{self.name}: {len(self.added)} of {self._given} photos added, {self.photos} now"]
        lines += [f"  {photo}: failed to enroll: {reason}" for photo, reason in self.failed.items()]
        lines += [
            f"  {photo}: does not look like {self.name} (score {score:.3f}, wanted {self.match:.3f}); --force adds it"
            for photo, score in self.refused.items()
        ]
        lines += [f"  {photo}: was removed from {self.name} before" for photo in self.removed]
        lines += [
            f"  looks like {each.name} (score {each.score:.3f}); if that is one person: sphereface gallery merge"
            for each in self.alike
        ]
        return "\n".join([*lines, *(f"  {each}" for each in self.warnings)])

    @property
    def _given(self) -> int:
        return sum(len(each) for each in (self.added, self.known, self.removed, self.failed, self.refused))


def _share(rate: float, said: str = "measured") -> str:
    """A rate in words, such as `1 of 1,000 pairs`."""
    side = {"below what was measured": "less than ", "above what was measured": "more than "}.get(said, "")
    return f"{side}1 of {1 / rate:,.0f} pairs" if rate < 0.1 else f"{side}{rate:.0%} of pairs"
