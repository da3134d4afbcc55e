"""A calibration in a model file: a new card, the same network."""

import json
from pathlib import Path

from sphereface.contract import METADATA_KEY, Card, broken_safetensors
from sphereface.data.files.writing import whole_file
from sphereface.errors import ContractMismatch, UserError
from sphereface.evaluation.calibration.result import Calibration
from sphereface.graphs import with_metadata
from sphereface.hashes import sha256_of
from sphereface.zoo import ModelFile, model_file


def write_calibration(path: str | Path | ModelFile, calibration: Calibration, *, out: str | Path | None = None) -> Card:
    """Write a calibration into the card of a model file, `.safetensors` or `.onnx`; the network is unchanged.

    The file, or a copy of it at `out`, is replaced as a whole or not at all. Its SHA-256 changes.
    """
    model = model_file(path)
    target = calibrated_path(model.path, out)
    calibrated = calibration.card(model.card)
    require_maker(model, calibration.made_with, calibration.model)
    rewritten = _with_card(model, calibrated)
    with whole_file(target) as file:
        file.write(rewritten)
    return calibrated


def calibrated_path(path: Path, out: str | Path | None) -> Path:
    """The path of a calibrated model: `out`, or the file itself; links are resolved.

    A name with another suffix, or in a folder that does not exist, is an error.
    """
    target = Path(path if out is None else out)
    if target.suffix != path.suffix:
        raise UserError(f"{target}: wanted a name that ends in {path.suffix}, like {path}")
    if not target.resolve().parent.is_dir():
        raise UserError(f"{target}: there is no folder {target.parent}; make it, or choose another")
    return target.resolve()


def require_maker(file: ModelFile, card: Card | None, model: str) -> None:
    """Raise unless features with a card, made by a file of the SHA-256 `model`, are from this model file.

    Calibration changes the hash of a file; with the card of the features in place, the earlier hash returns.
    """
    if not model or card is None or model == file.sha256:
        return
    earlier = [_with_card(file, card)]
    if file.kind == ".onnx":  # with a card in another file, or from our list
        earlier.append(_with_card(file, None))
    if model not in [sha256_of(content) for content in earlier]:
        raise ContractMismatch(
            f"the features were made by another file than {file.path} (SHA-256 {model[:12]}...); embed the faces with "
            "this model, or calibrate the model that made them"
        )


def _with_card(file: ModelFile, card: Card | None) -> bytes:
    """The bytes of a model file with another card; an `.onnx` may have none."""
    content = file.content
    if file.kind == ".onnx":
        return with_metadata(content, METADATA_KEY, card.model_dump_json() if card else None)
    assert card is not None
    # A .safetensors file: the header's length (8 bytes), the header as JSON, then the tensors.
    length = int.from_bytes(content[:8], "little")
    try:
        header = json.loads(content[8 : 8 + length])
    except ValueError as error:
        raise broken_safetensors(str(file.path), error) from error
    header["__metadata__"] = {**header.get("__metadata__", {}), METADATA_KEY: card.model_dump_json()}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8
    return len(text).to_bytes(8, "little") + text + content[8 + length :]
