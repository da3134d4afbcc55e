"""IJB-B and IJB-C: templates of many images, compared 1:1 and searched 1:N in two galleries.

1:1 compares listed pairs of templates. 1:N searches each probe in each gallery: closed-set ranks over the probes of a
subject in the gallery, open-set rates with all others as strangers. Every tie counts against the model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from sphereface.arrays import Float64, Integers
from sphereface.choices import IjbName, Missing, Repeats
from sphereface.contract import Card
from sphereface.data.lists.ijb import AlignedFaces, IjbFiles, Member, find_lists, read_found_faces
from sphereface.data.lists.ijb_files import IjbLists, read_ijb
from sphereface.data.manifest import require_faces
from sphereface.data.reading import require_missing
from sphereface.embed.store import FeatureStore, Rows, open_features
from sphereface.errors import DataFormatError, Setting, UserError
from sphereface.evaluation.rules.galleries import FPIRS as FPIRS
from sphereface.evaluation.rules.galleries import RANKS as RANKS
from sphereface.evaluation.rules.galleries import GalleryRates as GalleryRates
from sphereface.evaluation.rules.galleries import search_galleries
from sphereface.evaluation.rules.pairs import FEATURES
from sphereface.evaluation.rules.tables import shown
from sphereface.evaluation.rules.template_pairs import BLOCK, FARS, TemplateVerification, verify_templates
from sphereface.evaluation.rules.templates import Templates, pool_templates
from sphereface.evaluation.sources import Embeds, find_images, gather
from sphereface.metrics.rates import ROUNDS
from sphereface.progress import Progress, silent

TIES = "a wrong template that scores as high as the mate goes before it; what ties with the first refused is refused"


@dataclass(frozen=True)
class IjbResult:
    """Numbers of a model on IJB-B or IJB-C, with the description of how they were made."""

    name: IjbName
    model: str
    features: str  # description
    pooling: str  # description
    images: int  # distinct ones that were used
    templates: int
    missing: Mapping[str, str]  # unusable images, with the reasons
    lost_templates: int  # without a usable image
    pairs_listed: int
    probes_listed: int
    verification: TemplateVerification | None
    galleries: tuple[GalleryRates, ...]
    mean: GalleryRates | None  # over the galleries
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "data": self.name,
            "model": self.model,
            "features": self.features,
            "pooling": self.pooling,
            "ties": TIES,
            "images": self.images,
            "templates": self.templates,
            "missing": dict(self.missing),
            "lost_templates": self.lost_templates,
            "pairs_listed": self.pairs_listed,
            "probes_listed": self.probes_listed,
            "verification": self.verification and self.verification.as_dict(),
            "galleries": [gallery.as_dict() for gallery in self.galleries],
            "mean": self.mean and self.mean.as_dict(),
            "notes": list(self.notes),
        }

    def table(self) -> str:
        """The result as plain text."""
        lines = [
            f"{self.name}, {self.model}",
            f"{self.images:,} images, {self.templates:,} templates",
            f"features: {self.features}",
            f"pooling: {self.pooling}",
            f"ties: {TIES}",
        ]
        if self.missing:
            example, why = next(iter(self.missing.items()))
            lines.append(
                f"left out: {len(self.missing):,} images, such as {example} ({why}), and with them "
                f"{self.lost_templates:,} templates"
            )
        lines += [f"note: {note}" for note in self.notes]
        if self.verification:
            found = self.verification
            scored = found.same + found.different
            lines += ["", f"1:1, {scored:,} of {self.pairs_listed:,} pairs scored, {found.same:,} of them same"]
            lines += [f"  TAR at FAR {far:g}".ljust(24) + shown(rate) for far, rate in found.tar.items()]
            lines += [f"  95 % intervals: {found.intervals}"]
        for gallery in (*self.galleries, *([self.mean] if self.mean else [])):
            lines += ["", f"1:N, {gallery.name}: {gallery.mated:,} mated probes, {gallery.strangers:,} strangers"]
            lines += [f"  rank {rank}".ljust(24) + shown(rate) for rank, rate in gallery.rank.items()]
            lines += [f"  TPIR at FPIR {fpir:g}".ljust(24) + shown(rate) for fpir, rate in gallery.tpir.items()]
        return "\n".join(lines)


def evaluate_ijb(
    features: Embeds | FeatureStore | str | Path,
    meta: str | Path,
    name: IjbName = "ijbc",
    *,
    faces: str | Path | None = None,
    missing: Missing = "fail",
    repeats: Repeats = "fail",
    score_weights: bool = False,
    unit_length: bool = False,
    fars: Sequence[float] = FARS,
    fpirs: Sequence[float] = FPIRS,
    ranks: Sequence[int] = RANKS,
    rounds: int = ROUNDS,
    seed: int = 0,
    block: int = BLOCK,
    progress: Progress = silent,
) -> IjbResult:
    """Score features on IJB-B or IJB-C, 1:1 and 1:N, as far as `meta` has the lists.

    `features` are a folder that `sphereface embed` wrote, or an embedder, which needs `faces`, the folder of aligned
    faces. Features of one media are averaged, then those of a template's media; `unit_length` first scales each to
    length one, `score_weights` multiplies it by its detection score. An absent or unreadable image is an error, or with
    `missing="skip"` it is left out, as are templates without any image, counted and named. A pair that is listed twice
    is an error, or with `repeats="keep"` counts twice, with a note.

    >>> print(evaluate_ijb("ijbc-features", "IJBC/meta", "ijbc").table())
    """
    require_missing(missing)
    if repeats not in get_args(Repeats):
        raise UserError(f"repeats is {repeats!r}; choose one of {', '.join(get_args(Repeats))}")
    if not all(0 < rate <= 1 for rate in (*fars, *fpirs)):
        raise UserError(f"fars are {tuple(fars)}, fpirs {tuple(fpirs)}; wanted shares, above 0 up to 1")
    if not ranks or min(ranks) < 1 or block < 1:
        raise UserError(f"ranks are {tuple(ranks)}, block is {block}; wanted at least one rank, each of them from 1")
    lists = read_ijb(find_lists(meta, name), repeats=repeats)
    source = _embedded(features, faces, lists.images, missing, progress)
    kept = [member for member in lists.members if member.image in source.rows]
    templates = pool_templates(
        source.features,
        [member.template for member in kept],
        [member.media for member in kept],
        rows=[source.rows[member.image] for member in kept],
        images=[member.image for member in kept],
        weights=_detection_scores(lists.files, kept) if score_weights else None,
        unit_length=unit_length,
    )
    verification, why = _verify(lists, templates, fars, rounds, seed, block) if lists.pairs else (None, [])
    galleries, mean = _identify(lists, templates, fpirs, ranks, rounds, seed) if lists.probes else ((), None)
    length, weighted = (
        "length one" if unit_length else "their own length",
        ", times the detection score" * score_weights,
    )
    return IjbResult(
        name=name,
        model=source.card.called,
        features=FEATURES[source.card.feature_rule],
        pooling=f"features at {length}{weighted}, averaged over each media, then over a template's media",
        images=len({member.image for member in kept}),
        templates=len(templates),
        missing=source.missing,
        lost_templates=len(lists.known) - len(templates),
        pairs_listed=len(lists.pairs) if lists.pairs else 0,
        probes_listed=len(lists.probes),
        verification=verification,
        galleries=galleries,
        mean=mean,
        notes=(*source.notes, *why, *_absent(lists)),
    )


class _Source(NamedTuple):
    """Features of the listed images."""

    features: Rows
    rows: Mapping[str, int]  # by the image's name in the lists
    missing: Mapping[str, str]
    card: Card
    notes: tuple[str, ...]


def _embedded(
    features: Embeds | FeatureStore | str | Path,
    faces: str | Path | None,
    images: Sequence[str],
    missing: Missing,
    progress: Progress,
) -> _Source:
    """Features of the listed images, stored ones as memory maps, or embedded now."""
    if isinstance(features, str | Path):
        features = open_features(features)
    if isinstance(features, FeatureStore):
        if faces is not None:
            raise UserError(f"faces are {faces}, but features are given; leave one of them out")
        rows = find_images(images, features.paths, anywhere=True)
        unread = find_images(images, list(features.unreadable), anywhere=True)
        reasons = list(features.unreadable.values())
        why = {image: reasons[place] for image, place in unread.items() if image not in rows}
        absent = _absent_images(images, rows, why, "the features", missing)
        return _Source(features.rows, rows, absent, features.card, ())
    if faces is None:
        raise UserError("an embedder without faces; name the folder of aligned faces, or give features instead")
    found = AlignedFaces(faces)
    note = require_faces(Path(faces), found, features.card.preprocessing.alignment)
    places = find_images(images, found.paths, anywhere=True)
    absent = _absent_images(images, places, {}, str(faces), missing)
    gathered = gather(features, found, places.values(), missing=missing, progress=progress)
    rows = {image: gathered.rows[place] for image, place in places.items() if place in gathered.rows}
    broken = {image: gathered.unreadable[found.paths[place]] for image, place in places.items() if image not in rows}
    return _Source(gathered.features, rows, {**absent, **broken}, features.card, (note,) if note else ())


def _absent_images(
    images: Sequence[str], found: Mapping[str, int], why: Mapping[str, str], where: str, missing: Missing
) -> dict[str, str]:
    """The absent images, with the reasons; an error with `missing="fail"`, and if all are absent."""
    absent = {image: why.get(image, "not in the set") for image in images if image not in found}
    if absent and (missing == "fail" or not found):
        image, reason = next(iter(absent.items()))
        raise DataFormatError(
            f"{len(absent):,} of {len(images):,} listed images are not in {where}, such as {image} ({reason}): align "
            "with --misses centre and embed again, or leave some out with ",
            Setting("missing", "skip"),
        )
    return absent


def _detection_scores(files: IjbFiles, members: Sequence[Member]) -> Float64:
    """The detection score of each face."""
    if files.faces is None:
        raise DataFormatError(f"{files.members.parent}: no list of detection scores; wanted name_5pts_score.txt")
    listed = read_found_faces(files.faces)
    absent = [member.image for member in members if member.image not in listed]
    if absent:
        raise DataFormatError(f"{files.faces}: {len(absent):,} images have no score, such as {absent[0]}; add them")
    scores = np.array([listed[member.image].score for member in members])
    if scores.min() < 0:
        image = members[int(scores.argmin())].image
        raise DataFormatError(f"{files.faces}: {image} has the score {scores.min():g}; wanted at least 0 for a weight")
    return scores


def _verify(
    lists: IjbLists, templates: Templates, fars: Sequence[float], rounds: int, seed: int, block: int
) -> tuple[TemplateVerification, list[str]]:
    """1:1 over the pairs with both templates, and notes on it."""
    assert lists.pairs
    first, second = (templates.find(side).astype(np.int32) for side in (lists.pairs.first, lists.pairs.second))
    usable = (first >= 0) & (second >= 0)
    first, second, same = first[usable], second[usable], lists.pairs.same[usable]
    subjects = np.array([lists.subjects.get(number, -1) for number in templates.numbers.tolist()])
    again = lists.pairs.repeats
    notes = [f"{again:,} pairs are listed again, and count again"] if again else []
    known = bool((subjects[first] >= 0).all() and (subjects[second] >= 0).all())
    if known and ((subjects[first] == subjects[second]) != same).any():
        known = False
        notes.append("labels of pairs disagree with the subjects of galleries and probes; intervals are Wilson's")
    people = subjects if known else None
    found = verify_templates(
        templates.features, first, second, same, subjects=people, fars=fars, rounds=rounds, seed=seed, block=block
    )
    return found, notes


def _identify(
    lists: IjbLists, templates: Templates, fpirs: Sequence[float], ranks: Sequence[int], rounds: int, seed: int
) -> tuple[tuple[GalleryRates, ...], GalleryRates]:
    """1:N over the templates with features."""
    probes, owners = _present(lists.probes, templates)
    galleries = {}
    for name, listed in lists.galleries.items():
        places, subjects = _present(listed, templates)
        if not np.isin(owners, subjects).any():
            raise DataFormatError(f"{lists.files.galleries[name]}: no probe has a mate in it; wanted at least one")
        galleries[name] = templates.features[places], subjects
    found = templates.features[probes]
    return search_galleries(found, owners, galleries, fpirs=fpirs, ranks=ranks, rounds=rounds, seed=seed)


def _present(listed: Mapping[int, int], templates: Templates) -> tuple[Integers, Integers]:
    """Places and subjects of the listed templates that have features."""
    places, subjects = templates.find(list(listed)), np.array(list(listed.values()))
    return places[places >= 0], subjects[places >= 0]


def _absent(lists: IjbLists) -> list[str]:
    """Notes on the tasks without lists."""
    notes = [] if lists.pairs else ["no 1:1: its list of pairs is not there"]
    absent = 2 - len(lists.galleries)
    return notes + ([f"1:N: {absent} of 2 galleries are not there"] if absent else [])
