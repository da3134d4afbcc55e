"""Several models as one: each one's features at length one, side by side.

At their own lengths the model with the longest features would decide alone. At length one, each has the same say: the
score of two ensemble features is the mean of the models' scores. The paper concatenates the features of three networks,
one for each crop of a face, without anything further.

Models that see the same stored face are an `Ensemble`, which is an `Embedder` like any other. Crops that cannot be cut
from one stored face need a photo each time (`Patches`), or a set aligned and embedded once for each (`join_features`).
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sphereface.arrays import Float32, Floating, Image, Int64, unit_rows
from sphereface.choices import FeatureRule
from sphereface.contract import Card, Member, Preprocessing
from sphereface.embed.embedder import Embedder
from sphereface.embed.store import FeatureStore, card_hash
from sphereface.errors import ContractMismatch, DataFormatError, UserError
from sphereface.faces.warp import align
from sphereface.hashes import sha256_of
from sphereface.zoo import ModelFile

# What can be cut from a stored face without resampling it; `wide` and `upper` are other pixels of the photo.
HOLDS = {"112x112": {"112x112", "112x96"}, "112x96": {"112x96"}, "wide": {"wide"}, "upper": {"upper"}}


class Ensemble(Embedder):
    """Models that see the same faces, as one embedder: it goes wherever an embedder goes.

    >>> Ensemble.load(["a.safetensors", "face_recognition_sface_2021dec.onnx"], feature_rule="sum").embed(faces).shape
    (2, 1280)
    """

    def __init__(self, members: Sequence[Embedder]) -> None:
        """The models share a template and a feature rule, and their crops must be cut from one stored face."""
        self.members = tuple(members)
        card = combined_card([each.card for each in members], [each.model for each in members])
        crop = _holding([each.card.preprocessing.crop for each in members])
        card = card.model_copy(update={"preprocessing": card.preprocessing.model_copy(update={"crop": crop})})
        super().__init__(_of_members, card, model=_identity(card), engine=_engines(members))

    @classmethod
    def load(
        cls,
        path: str | Path | ModelFile | Sequence[str | Path],
        engine: str = "auto",
        *,
        threads: int | None = None,
        device: str = "cpu",
        feature_rule: FeatureRule | None = None,
    ) -> "Ensemble":
        """An ensemble from model files; `feature_rule` replaces those of their cards."""
        paths = [path] if isinstance(path, str | Path | ModelFile) else path
        return cls(
            [Embedder.load(each, engine, threads=threads, device=device, feature_rule=feature_rule) for each in paths]
        )

    def with_rule(self, rule: FeatureRule) -> "Ensemble":
        """The same networks under another feature rule."""
        return self if rule == self.card.feature_rule else Ensemble([each.with_rule(rule) for each in self.members])

    def _features(self, faces: Image) -> Float32:
        return joined([each.embed_batch(faces) for each in self.members], self.card.feature_rule)


class Patches:
    """Models that each see a crop of their own, cut from the photo: the paper's three patches.

    >>> Patches([front, wide, upper]).embed(photo, Detector().detect(photo).landmarks).shape
    (1, 3072)
    """

    def __init__(self, members: Sequence[Embedder]) -> None:
        """The models share a template and a feature rule."""
        self.members = tuple(members)
        self.card = combined_card([each.card for each in members], [each.model for each in members])
        self.model, self.engine = _identity(self.card), _engines(members)

    @cached_property
    def dimension(self) -> int:
        """How many numbers a feature has."""
        return sum(each.dimension for each in self.members)

    def embed(self, photo: Image, landmarks: Floating) -> Float32:
        """Features (N, D) of the faces of a photo (H, W, 3) with landmarks (N, 5, 2), each aligned once a crop."""
        landmarks = np.asarray(landmarks)
        if landmarks.shape == (5, 2):
            raise UserError("landmarks (5, 2); wanted (N, 5, 2): those of one face are landmarks[None]")
        if not len(landmarks):
            return np.zeros((0, self.dimension), np.float32)
        parts = []
        for each in self.members:
            how = each.card.preprocessing
            parts.append(each.embed(np.stack([align(photo, points, how.template, how.crop) for points in landmarks])))
        return joined(parts, self.card.feature_rule)


def joined(parts: Sequence[Float32], rule: FeatureRule) -> Float32:
    """Features (N, D_i) of several models as one (N, sum of D_i), each part at length one.

    Under the rule `concatenate` all images come first and all mirror images after them, so that the halves of an
    ensemble's feature are what the halves of a model's are, and rules that add them can.
    """
    units = [unit_rows(part, dtype=np.float32) for part in parts]  # zeros: that model has no say
    if rule != "concatenate":
        return np.concatenate(units, axis=1)
    halves = [np.split(unit, 2, axis=1) for unit in units]
    return np.concatenate([*(image for image, _ in halves), *(mirror for _, mirror in halves)], axis=1)


def join_features(parts: Sequence[FeatureStore]) -> FeatureStore:
    """Features of the same images by several models, each from a set aligned as its model wants, as one.

    Rows are matched by path and joined when they are asked for. Images that are not in all sets are an error.

    >>> join_features([open_features("lfw-112x96"), open_features("lfw-wide"), open_features("lfw-upper")]).rows[:2]
    """
    if not parts:
        raise UserError("no features to join; wanted those of at least one model")
    first = parts[0]
    whose = np.array(first.people)[first.labels] if len(first) else np.zeros(0, str)
    orders: list[Int64 | None] = []
    for number, part in enumerate(parts, 1):
        lost = set(first.paths) ^ set(part.paths)
        if lost or len(part) != len(first):
            named = f", such as {min(lost)}" if lost else ""
            raise DataFormatError(
                f"features 1 and {number} are of other images: {len(lost):,} are in one of them only{named}; "
                "align and embed the same photos once for each model, with --misses centre so that none is left out"
            )
        order = None if part.paths == first.paths else part.find(first.paths)
        orders.append(order)
        labels = part.labels if order is None else part.labels[order]
        other = np.flatnonzero(np.array(part.people)[labels] != whose) if len(first) else np.arange(0)
        if len(other):
            raise DataFormatError(
                f"features 1 and {number} name other people for {first.paths[other[0]]}; wanted one set of photos"
            )
    card = combined_card([part.card for part in parts], [part.manifests[0].model for part in parts])
    return FeatureStore(
        first.paths,
        first.people,
        first.labels,
        JoinedModels(parts, orders, card.feature_rule),
        card,
        tuple(manifest for part in parts for manifest in part.manifests),
    )


class JoinedModels:
    """The rows of several models side by side, joined as they are read."""

    def __init__(self, parts: Sequence[FeatureStore], orders: Sequence[Int64 | None], rule: FeatureRule) -> None:
        self._parts, self._orders, self._rule = parts, orders, rule
        self.shape = len(parts[0]), sum(part.rows.shape[1] for part in parts)
        self.ndim, self.dtype = 2, np.dtype(np.float32)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Float32:
        """Rows by a number, a slice, numbers (M,) or marks (N,), as of an array."""
        one = isinstance(key, int | np.integer)
        places = [key] if one else key
        rows = [
            part.rows[places] if order is None else part.rows[order[places]]
            for part, order in zip(self._parts, self._orders, strict=True)
        ]
        found = joined(rows, self._rule)
        return np.asarray(found[0]) if one else found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise UserError("rows of several models have no array without a copy; take slices")
        return self[:].astype(dtype or self.dtype, copy=False)


def combined_card(cards: Sequence[Card], models: Sequence[str]) -> Card:
    """The card of several models as one; `models` are the hashes of their files.

    It names its members and the hashes of their cards, so that another member gives another card. Thresholds stay
    behind: they are of one model's scores.
    """
    if not cards:
        raise UserError("an ensemble of no models; wanted at least one")
    for what, found in (
        ("feature rules", [card.feature_rule for card in cards]),
        ("templates", [card.preprocessing.template for card in cards]),
    ):
        if len(set(found)) > 1:
            way_out = "load them all under one" if what == "feature rules" else "take models of one template"
            told = ", ".join(f"{name} {value}" for name, value in zip(_names(cards), map(str, found), strict=True))
            raise ContractMismatch(f"the models have other {what}: {told}; {way_out}")
    members = tuple(
        Member(name=name, model=model, card=card_hash(card))
        for name, card, model in zip(_names(cards), cards, models, strict=True)
    )
    hows = [card.preprocessing for card in cards]
    crop = "+".join(dict.fromkeys(how.crop for how in hows))
    alike = len({how.model_copy(update={"crop": crop}) for how in hows}) == 1
    how = hows[0] if alike else Preprocessing(template=hows[0].template)
    return Card(
        name=" + ".join(member.name for member in members),
        preprocessing=how.model_copy(update={"crop": crop}),
        feature_rule=cards[0].feature_rule,
        licences={
            f"{name}: {what}": licence
            for name, card in zip(_names(cards), cards, strict=True)
            for what, licence in card.licences.items()
        },
        members=members,
    )


def _names(cards: Sequence[Card]) -> list[str]:
    return [card.name or f"model {number}" for number, card in enumerate(cards, 1)]


def _holding(crops: Sequence[str]) -> str:
    """The stored face from which all crops can be cut; the smallest that serves."""
    serving = [stored for stored, held in HOLDS.items() if set(crops) <= held]
    if serving:
        return min(serving, key=lambda stored: len(HOLDS[stored]))
    apart = [crop for crop in dict.fromkeys(crops) if crop not in HOLDS["112x112"]]
    raise ContractMismatch(
        f"the models want the crops {', '.join(dict.fromkeys(crops))}, and no stored face holds them all "
        f"(112x112 holds 112x96, but not {', '.join(apart)}): align the photos once for each crop, such as sphereface "
        f"data align SRC DST --crop {apart[0]}, embed each set with its own model and join_features; or take Patches "
        "for photos with landmarks"
    )


def _identity(card: Card) -> str:
    """A hash over the members: their files and their cards."""
    told = "\n".join(f"{member.model} {member.card}" for member in card.members)
    return sha256_of(told)


def _engines(members: Sequence[Embedder]) -> str:
    return "+".join(dict.fromkeys(each.engine for each in members))


def _of_members(_: Float32) -> Float32:
    raise AssertionError("each member runs its own network")
