"""Ensembles: the features of several models, each scaled to length one and concatenated.

Without scaling, the model with the longest features would dominate. At length one all models have equal weight: the
score of two ensemble features is the mean of the models' scores. The paper concatenates the features of three networks,
one for each crop of a face, without scaling.

Models for the same stored face form an `Ensemble`, which is an `Embedder`. Crops that cannot be cut from one stored
face need the photo (`Patches`), or a set aligned and embedded once for each model (`join_features`).
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from sphereface.arrays import Float32, Floating, Image, Int64, unit_rows
from sphereface.choices import FeatureRule
from sphereface.contract import Card, Member, Preprocessing
from sphereface.embed.embedder import Embedder
from sphereface.embed.store import FeatureStore, RowsOnAccess, card_hash
from sphereface.errors import ContractMismatch, DataFormatError, UserError
from sphereface.faces.warp import align
from sphereface.hashes import sha256_of
from sphereface.zoo import ModelFile

# Crops that can be cut from a stored face without resampling; `wide` and `upper` are other pixels of the photo.
HOLDS = {"112x112": {"112x112", "112x96"}, "112x96": {"112x96"}, "wide": {"wide"}, "upper": {"upper"}}


class Ensemble(Embedder):
    """Models for the same stored faces as one embedder.

    >>> Ensemble.load(["a.safetensors", "sface"], feature_rule="sum").embed(faces).shape
    (2, 1280)
    """

    def __init__(self, members: Sequence[Embedder]) -> None:
        """The models must have one template, one feature rule, and crops that can be cut from one stored face."""
        self.members = tuple(members)
        card = combined_card([each.card for each in members], [each.model for each in members])
        crop = _holding([each.card.preprocessing.crop for each in members])
        card = card.model_copy(update={"preprocessing": card.preprocessing.model_copy(update={"crop": crop})})
        super().__init__(_of_members, card, model=_identity(card), engine=_engines(members))

    @classmethod
    def load(
        cls,
        path: str | Path | ModelFile | Sequence[str | Path] = "auto",
        engine: str = "auto",
        *,
        threads: int | None = None,
        device: str = "cpu",
        feature_rule: FeatureRule | None = None,
    ) -> "Ensemble":
        """An ensemble of model files; `feature_rule` replaces those of the cards."""
        paths = [path] if isinstance(path, str | Path | ModelFile) else path
        return cls(
            [Embedder.load(each, engine, threads=threads, device=device, feature_rule=feature_rule) for each in paths]
        )

    def with_rule(self, rule: FeatureRule) -> "Ensemble":
        """The same networks under another feature rule."""
        return self if rule == self.card.feature_rule else Ensemble([each.with_rule(rule) for each in self.members])

    @property
    def identity(self) -> str:
        """A hash of all that decides the features: that of each member."""
        return sha256_of("\n".join(each.identity for each in self.members))

    def _features(self, faces: Image) -> Float32:
        return joined([each.embed_batch(faces) for each in self.members], self.card.feature_rule)


class Patches:
    """Models for different crops of a photo, such as the paper's three patches.

    >>> Patches([front, wide, upper]).embed(photo, Detector().detect(photo).landmarks).shape
    (1, 3072)
    """

    def __init__(self, members: Sequence[Embedder]) -> None:
        """The models must have one template and one feature rule."""
        self.members = tuple(members)
        self.card = combined_card([each.card for each in members], [each.model for each in members])
        self.model, self.engine = _identity(self.card), _engines(members)

    @cached_property
    def dimension(self) -> int:
        """The length D of a feature."""
        return sum(each.dimension for each in self.members)

    def embed(self, photo: Image, landmarks: Floating) -> Float32:
        """Features (N, D) of faces of a photo (H, W, 3) with landmarks (N, 5, 2); aligns each face once per crop."""
        landmarks = np.asarray(landmarks)
        if landmarks.shape == (5, 2):
            raise UserError("landmarks (5, 2); wanted (N, 5, 2): use landmarks[None] for one face")
        if not len(landmarks):
            return np.zeros((0, self.dimension), np.float32)
        parts = []
        for each in self.members:
            how = each.card.preprocessing
            parts.append(each.embed(np.stack([align(photo, points, how.template, how.crop) for points in landmarks])))
        return joined(parts, self.card.feature_rule)


def joined(parts: Sequence[Float32], rule: FeatureRule) -> Float32:
    """Features (N, D_i) of several models as one (N, sum of D_i), each part at length one.

    Under the rule `concatenate` all images come first and then all mirror images, so that the halves of an ensemble's
    feature mean the same as those of a model's, also for rules that add them.
    """
    units = [unit_rows(part, dtype=np.float32) for part in parts]  # a zero row adds 0 to every score
    if rule != "concatenate":
        return np.concatenate(units, axis=1)
    halves = [np.split(unit, 2, axis=1) for unit in units]
    return np.concatenate([*(image for image, _ in halves), *(mirror for _, mirror in halves)], axis=1)


def join_features(parts: Sequence[FeatureStore]) -> FeatureStore:
    """Features of the same images by several models as one store, each from a set aligned for its model.

    Rows are matched by path and joined on access. An image that is missing in one of the sets is an error.

    >>> join_features([open_features("lfw-112x96"), open_features("lfw-wide"), open_features("lfw-upper")]).rows[:2]
    """
    if not parts:
        raise UserError("no features to join; wanted a feature store for each model, at least one")
    first = parts[0]
    owners = np.array(first.people, str)[first.labels]
    orders: list[Int64 | None] = []
    for number, part in enumerate(parts, 1):
        lost = set(first.paths) ^ set(part.paths)
        if lost or len(part) != len(first):
            named = f", such as {min(lost)}" if lost else ""
            raise DataFormatError(
                f"features 1 and {number} are of other images: {len(lost):,} are in one of them only{named}; "
                "align and embed the same photos once for each model, with --misses centre to keep all photos"
            )
        order = None if part.paths == first.paths else part.find(first.paths)
        orders.append(order)
        labels = part.labels if order is None else part.labels[order]
        other = np.flatnonzero(np.array(part.people, str)[labels] != owners)
        if len(other):
            path = first.paths[other[0]]
            raise DataFormatError(f"features 1 and {number} name other people for {path}; wanted one set of photos")
    card = combined_card([part.card for part in parts], [part.manifests[0].model for part in parts])
    rows = JoinedModels(parts, orders, card.feature_rule)
    manifests = tuple(manifest for part in parts for manifest in part.manifests)
    return FeatureStore(first.paths, first.people, first.labels, rows, card, manifests)


class JoinedModels(RowsOnAccess):
    """The rows of several models side by side, joined on access."""

    def __init__(self, parts: Sequence[FeatureStore], orders: Sequence[Int64 | None], rule: FeatureRule) -> None:
        super().__init__(len(parts[0]), sum(part.rows.shape[1] for part in parts))
        self._parts, self._orders, self._rule = parts, orders, rule

    def __getitem__(self, key: Any) -> Float32:
        one = isinstance(key, int | np.integer)
        places = [key] if one else key
        rows = [
            part.rows[places] if order is None else part.rows[order[places]]
            for part, order in zip(self._parts, self._orders, strict=True)
        ]
        found = joined(rows, self._rule)
        return np.asarray(found[0]) if one else found


def combined_card(cards: Sequence[Card], models: Sequence[str]) -> Card:
    """The card of several models as one; `models` are the hashes of their files.

    It names its members and the hashes of their cards, so that another member gives another card. It has no thresholds:
    those of the members are for one model's scores.
    """
    if not cards:
        raise UserError("an ensemble of no models; wanted at least one")
    names = [card.name or f"model {number}" for number, card in enumerate(cards, 1)]
    for what, found, way_out in (
        ("feature rules", [card.feature_rule for card in cards], "load them all under one"),
        ("templates", [card.preprocessing.template for card in cards], "use models of one template"),
    ):
        if len(set(found)) > 1:
            listed = ", ".join(f"{name} {value}" for name, value in zip(names, map(str, found), strict=True))
            raise ContractMismatch(f"the models have different {what}: {listed}; {way_out}")
    members = tuple(
        Member(name=name, model=model, card=card_hash(card))
        for name, card, model in zip(names, cards, models, strict=True)
    )
    inputs = [card.preprocessing for card in cards]
    crop = "+".join(dict.fromkeys(each.crop for each in inputs))
    alike = len({each.model_copy(update={"crop": crop}) for each in inputs}) == 1
    shared = inputs[0] if alike else Preprocessing(template=inputs[0].template)
    return Card(
        name=" + ".join(names),
        preprocessing=shared.model_copy(update={"crop": crop}),
        feature_rule=cards[0].feature_rule,
        licences={
            f"{name}: {what}": licence
            for name, card in zip(names, cards, strict=True)
            for what, licence in card.licences.items()
        },
        members=members,
    )


def _holding(crops: Sequence[str]) -> str:
    """The smallest stored face from which all crops can be cut."""
    serving = [stored for stored, held in HOLDS.items() if set(crops) <= held]
    if serving:
        return min(serving, key=lambda stored: len(HOLDS[stored]))
    apart = [crop for crop in dict.fromkeys(crops) if crop not in HOLDS["112x112"]]
    raise ContractMismatch(
        f"the models need the crops {', '.join(dict.fromkeys(crops))}, and no stored face holds them all "
        f"(112x112 holds 112x96, but not {', '.join(apart)}): align the photos once for each crop, such as sphereface "
        f"data align SRC DST --crop {apart[0]}, embed each set with its own model and join_features; or use Patches "
        "for photos with landmarks"
    )


def _identity(card: Card) -> str:
    """A hash of the members: their files and their cards."""
    return sha256_of("\n".join(f"{member.model} {member.card}" for member in card.members))


def _engines(members: Sequence[Embedder]) -> str:
    return "+".join(dict.fromkeys(each.engine for each in members))


def _of_members(_: Float32) -> Float32:
    raise AssertionError("each member runs its own network")
