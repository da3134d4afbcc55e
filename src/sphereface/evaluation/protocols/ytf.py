"""YouTube Faces: do two videos show one person? Ten splits of video pairs, with a stated policy for the frames.

A video is a folder of aligned frames, `Name/0/0.123.jpg`. The paper does not state the number of frames, which alone
moves the accuracy by several percent: every result states it. Videos are embedded one after the other; only the mean of
each is kept, or, for the highest score of two frames, its features in a temporary file.
"""

import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from sphereface.choices import FramePolicy, Missing, PairRule
from sphereface.data.lists.pairs import Pair
from sphereface.data.lists.videos import read_video_pairs
from sphereface.embed.store import FeatureStore
from sphereface.errors import DataFormatError, UserError
from sphereface.evaluation.protocols.pair_lists import names_of, people_of, refuse_absent, refuse_repeats
from sphereface.evaluation.rules.pairs import Asked, PairOptions, RuleResults, features_for, some_of
from sphereface.evaluation.rules.videos import JUDGES, ON_SCORES, Judge
from sphereface.evaluation.rules.videos import POLICIES as POLICIES
from sphereface.evaluation.sources import Embeds, NoneUsable, Source, open_source
from sphereface.metrics.rates import ROUNDS
from sphereface.progress import Progress, silent

SPLITS = "splits.txt"  # YTF's name for its list; there is a `splits_corrected.txt` too
FRAMES = 100  # of a video; with 100, users of the paper's model report 97 %, otherwise 91 to 94 %

PathLike = str | Path


@dataclass(frozen=True, kw_only=True)
class VideosResult(RuleResults):
    """Numbers of a model on pairs of videos."""

    policy: FramePolicy
    frames: int  # of a video at most
    videos: int  # distinct ones, each embedded once
    embedded: int  # frames
    unreadable: Mapping[str, str]  # frames that were left out of their videos, with the reasons

    @property
    def sentence(self) -> str:
        """Description of the frame policy and of the rule."""
        return f"{self.frame_policy}; {self.sentence_of(self.rule)}"

    @property
    def frame_policy(self) -> str:
        """Description of the frame policy."""
        return POLICIES[self.policy].format(frames=f"{self.frames:,}")

    def sentence_of(self, rule: PairRule) -> str:
        """Description of a rule, on features or on scores."""
        return super().sentence_of(rule) if self.policy == "mean-feature" else ON_SCORES[rule]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return self._as_dict(
            {"videos": self.videos, "frames_embedded": self.embedded},
            policy={"policy": self.policy, "frames": self.frames, "sentence": self.sentence},
            unreadable_frames=dict(self.unreadable),
        )

    def table(self) -> str:
        """The result as plain text."""
        frames = [f"frames: {self.frame_policy}"]
        if self.unreadable:
            frames.insert(0, f"left out: {len(self.unreadable):,} frames, {some_of(self.unreadable)}")
        return self._table(f"{self.videos:,} videos, {self.embedded:,} frames", frames=frames)


def evaluate_ytf(
    embedder: Embeds | FeatureStore,
    faces: PathLike | None = None,
    splits: PathLike | None = None,
    *,
    frames: int = FRAMES,
    policy: FramePolicy = "mean-feature",
    rounds: int = ROUNDS,
    seed: int = 0,
    scratch: PathLike | None = None,
    progress: Progress = silent,
    **options: Unpack[PairOptions],
) -> VideosResult:
    """Score a model on pairs of videos over held-out splits; `faces` holds aligned frames as `Name/0/frame.jpg`.

    `splits` is YTF's list, as published or corrected, or the folder that holds it as `splits.txt`; by default the
    folder `faces`. Of each video up to `frames` frames count, evenly spaced in the order of their numbers. `options`
    are those of `PairOptions`: `rule`, `all_rules`, `missing`, `fars`. An absent video is an error, as is an unreadable
    frame; with `missing="skip"` the pairs of absent videos are left out, counted and named, and an unreadable frame is
    left out of its video. Memory holds the pixels and features of one video, and one mean for each;
    `policy="max-score"` keeps all features in a file in `scratch`, by default the folder for temporary files: 4 bytes a
    number, 1.4 GB for the 3,425 videos of YTF with 1,024 numbers a frame. Instead of an embedder, stored features of
    the frames, of one model or joined, may be given; then `faces` is needed for the list only.

    >>> print(evaluate_ytf(Embedder.load("model.onnx"), "ytf-112x96", "splits_corrected.txt").table())
    """
    folder = None if faces is None else Path(faces)
    asked = Asked(rounds=rounds, seed=seed, **options)
    _check_choices(policy, frames, scratch)
    listing = _listing(folder, splits)
    pairs = _read(listing, asked)
    source = open_source(embedder, folder)
    videos = _frames_of(names_of(pairs), source.paths)
    if asked.missing == "fail":
        refuse_absent(pairs, videos, str(folder or source.name), "videos", "add them")
    chosen = {name: evenly(places, frames) for name, places in videos.items()}
    with tempfile.TemporaryFile(dir=scratch) as file:
        judge = JUDGES[policy](source.card.feature_rule == "concatenate", file)
        seen = _show_each(source, chosen, judge, missing=asked.missing, progress=progress)
        absent = dict.fromkeys((name for name in names_of(pairs) if name not in videos), "not in the set")
        lost = {**absent, **seen.lost}
        scored = [pair for pair in pairs if pair.left not in lost and pair.right not in lost]
        if not scored:
            raise DataFormatError(f"{listing}: no pair has both videos, for lack of {some_of(lost)}")
        reports = asked.reports(lambda rule: judge.verify(scored, rule), people_of(scored))
    gone = len({pair.fold for pair in pairs}) - len({pair.fold for pair in scored})
    return VideosResult(
        data=f"{source.name} ({listing.name})",
        model=source.card.called,
        policy=policy,
        frames=frames,
        rule=asked.rule,
        reports=reports,
        features={name: features_for(name, source.card) for name in asked.rules},
        listed=len(pairs),
        scored=len(scored),
        videos=len(chosen) - len(seen.lost),
        embedded=seen.frames,
        missing=lost,
        unreadable=seen.unreadable,
        notes=(*source.notes, *([f"{gone} of the splits have no pair left"] if gone else [])),
    )


def _check_choices(policy: FramePolicy, frames: int, scratch: PathLike | None) -> None:
    """Raise for unknown choices before anything is read."""
    if policy not in POLICIES:
        raise UserError(f"unknown policy {policy!r}; choose one of {', '.join(POLICIES)}")
    if frames < 1:
        raise UserError(f"frames is {frames}; wanted at least 1 of each video")
    if scratch is not None and not Path(scratch).is_dir():
        raise UserError(f"{scratch}: no such folder; wanted one for a temporary file")


def _listing(faces: Path | None, splits: PathLike | None) -> Path:
    given = faces if splits is None else splits
    if given is None:
        raise UserError(f"neither a set nor a list is named; wanted YTF's {SPLITS}, or the folder that holds it")
    place = Path(given)
    listing = place / SPLITS if place.is_dir() else place
    if not listing.is_file():
        raise DataFormatError(f"{listing}: no such list; name YTF's {SPLITS}, or the folder that holds it")
    return listing


def _read(listing: Path, asked: Asked) -> list[Pair]:
    """The pairs of a list; raises for repeated pairs, and for a single split where a rule holds one out."""
    pairs = [Pair(pair.first, pair.second, pair.same, pair.split) for pair in read_video_pairs(listing)]
    refuse_repeats(pairs, str(listing), "videos")
    if len({pair.fold for pair in pairs}) < 2 and asked.holds_out:
        raise UserError(f"{listing}: one split, so that none can be held out; wanted at least two")
    return pairs


def evenly(frames: Sequence[int], most: int) -> list[int]:
    """Up to `most` of some frames in order: all, or the middles of `most` equal stretches."""
    if len(frames) <= most:
        return list(frames)
    return [frames[(2 * stretch + 1) * len(frames) // (2 * most)] for stretch in range(most)]


class _Seen(NamedTuple):
    """Counts and losses of the embedded videos."""

    frames: int  # with a feature
    lost: dict[str, str]  # videos without a feature, with the reasons
    unreadable: dict[str, str]  # frames of the other videos, with the reasons


def _show_each(
    source: Source, chosen: Mapping[str, list[int]], judge: Judge, *, missing: Missing, progress: Progress
) -> _Seen:
    """Pass the features of one video after the other to the judge."""
    whole, done, frames = sum(map(len, chosen.values())), 0, 0
    lost: dict[str, str] = {}
    unreadable: dict[str, str] = {}
    for name, places in chosen.items():
        try:
            found = source.gather(places, missing=missing)
        except NoneUsable as error:
            if missing == "fail":
                raise
            lost[name] = str(error)
        else:
            judge.add(name, found.features)
            unreadable |= found.unreadable
            frames += len(found.features)
        done += len(places)
        progress(done, whole)
    return _Seen(frames, lost, unreadable)


def _frames_of(names: Iterable[str], paths: Sequence[str]) -> dict[str, list[int]]:
    """The places of each listed video's frames in a set, in the order of time; absent videos are left out."""
    frames: dict[str, list[int]] = {name: [] for name in names}
    for place, path in enumerate(paths):
        folder = path.rpartition("/")[0]
        if folder in frames:
            frames[folder].append(place)
    return {name: sorted(found, key=lambda place: in_time(paths[place])) for name, found in frames.items() if found}


def in_time(path: str) -> tuple[list[int], str]:
    """Sort key for frames in the order of time, by the numbers in their names: `0.99.jpg` before `0.100.jpg`."""
    name = path.rpartition("/")[2]
    return [int(digits) for digits in re.findall("[0-9]+", name)], name
