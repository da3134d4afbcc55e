"""Files of every kind that we read, spoiled in seeded ways, and the readers that must bear them.

Run as a program it reads what it is asked to and prints a line before and after each file, so that whoever started it
can name the file that crashed or hung: `python -m tests.mutated FOLDER KIND FIRST COUNT`.
"""

import random
import sys
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np

from sphereface.data.formats.bins import PairSet, read_bin, write_bin
from sphereface.data.formats.sets import convert, open_set
from sphereface.data.people import FaceSet
from sphereface.data.reading import read_face
from sphereface.embed.embedder import Embedder
from sphereface.embed.run import embed_set
from sphereface.embed.store import open_features
from sphereface.engines.convert import as_onnx
from sphereface.errors import SphereFaceError, UnreadableImage
from sphereface.evaluation.streaming.scores import map_features
from sphereface.faces.images import decode
from sphereface.zoo import ModelFile
from tests.embed.sets import mixing_embedder
from tests.engines.networks import write_network

WAYS = ("truncated", "flipped", "spliced", "zeroed")


def mutate(whole: bytes, seed: int) -> bytes:
    """A spoiled copy; the way and the place follow from the seed. Every other one spares all but the first 256 bytes.

    Headers decide most of what a reader does, and in a file of many kilobytes chance would seldom hit them.
    """
    rng = random.Random(seed)
    way, reach = WAYS[seed % len(WAYS)], len(whole) if seed // len(WAYS) % 2 else min(len(whole), 256)
    place = rng.randrange(reach)
    if way == "truncated":
        return whole[:place]
    data = bytearray(whole)
    if way == "flipped":
        for _ in range(rng.choice((1, 1, 2, 8, 64))):
            data[rng.randrange(reach)] ^= 1 << rng.randrange(8)
    elif way == "zeroed":
        end = min(place + rng.choice((1, 4, 64, 1024)), len(whole))
        data[place:end] = bytes(end - place)
    else:
        start, length = rng.randrange(len(whole)), rng.choice((1, 4, 16, 256))
        data[place : place + rng.choice((0, length))] = whole[start : start + length]
    return bytes(data)


def face(number: int) -> np.ndarray:
    """A face of smooth colours that no other number has."""
    small = np.random.default_rng(number).integers(0, 256, (7, 6, 3), dtype=np.uint8)
    return cv2.resize(small, (96, 112), interpolation=cv2.INTER_CUBIC)


def write_people(root: Path, suffix: str = ".jpg") -> Path:
    """Three people with three faces each."""
    for number in range(9):
        path = root / f"p{number // 3}" / f"{number % 3}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(cv2.imencode(suffix, face(number))[1].tobytes())
    return root


def write_whole(folder: Path) -> dict[str, Path]:
    """A whole file of each kind."""
    people = write_people(folder / "people")
    for kind in ("rec", "zip", "tar"):
        convert(people, folder / f"set.{kind}", to=kind)
    convert(people, folder / "bare" / "set.rec", to="rec")  # without its list: read through index and records alone
    (folder / "bare" / "set.lst").unlink()
    for suffix in (".jpg", ".png", ".webp"):
        (folder / f"face{suffix}").write_bytes(cv2.imencode(suffix, face(0))[1].tobytes())
    images = [path.read_bytes() for path in sorted(people.rglob("*.jpg"))]
    write_bin(folder / "pairs.bin", PairSet((*images[:8],), (True, False, True, False)))
    write_network(folder / "net.safetensors")
    (folder / "net.onnx").write_bytes(as_onnx(ModelFile(folder / "net.safetensors")))
    embed_set(people, folder / "features", mixing_embedder())
    np.save(folder / "plain.npy", np.arange(18, dtype=np.float32).reshape(9, 2))
    files = {
        "rec": folder / "set.rec", "idx": folder / "bare" / "set.idx", "bare rec": folder / "bare" / "set.rec",
        "zip": folder / "set.zip", "tar": folder / "set.tar", "bin": folder / "pairs.bin",
        "safetensors": folder / "net.safetensors", "onnx": folder / "net.onnx",
        "npy": folder / "features" / "features.npy", "plain npy": folder / "plain.npy",
        "jpg": folder / "face.jpg", "png": folder / "face.png", "webp": folder / "face.webp",
    }  # fmt: skip
    assert set(files) == set(READERS)
    return files


def read_set(path: Path) -> object:
    """Open a set of faces and read each image by itself: a damaged one must not keep the others from being read."""
    faces = open_set(path.with_suffix(".rec") if path.suffix == ".idx" else path)
    return list(faces.people), faces.labels.tolist(), [read_image(faces, index) for index in range(len(faces.labels))]


def read_image(faces: FaceSet, index: int) -> object:
    """The pixels of one image of a set, or why it cannot be read."""
    try:
        return read_face(faces, index, None).tobytes()
    except UnreadableImage as error:
        return error.reason


def read_features(path: Path) -> object:
    """Every row of a feature store."""
    return np.asarray(open_features(path.parent).rows[np.arange(9)]).tobytes()


def read_matrix(path: Path) -> object:
    """Every row of a file of features."""
    return np.asarray(map_features(path)).tobytes()


def read_model(path: Path) -> object:
    """The feature of a face."""
    return Embedder.load(path, threads=1).embed(face(0)[None]).tobytes()


def read_photo(path: Path) -> object:
    """The pixels of a photo."""
    return decode(path.read_bytes(), source=path.name).tobytes()


READERS: dict[str, Callable[[Path], object]] = {
    **dict.fromkeys(("rec", "idx", "bare rec", "zip", "tar"), read_set),
    **dict.fromkeys(("jpg", "png", "webp"), read_photo),
    **dict.fromkeys(("safetensors", "onnx"), read_model),
    "bin": read_bin,
    "npy": read_features,
    "plain npy": read_matrix,
}


def main(folder: Path, kind: str, first: int, count: int) -> None:
    """Read some mutations of one kind of file."""
    path = write_whole(folder)[kind]
    whole = path.read_bytes()
    expected = READERS[kind](path)  # the whole one is read without an error
    for seed in range(first, first + count):
        path.write_bytes(mutate(whole, seed))
        print(f"reading {seed}", flush=True)
        try:
            print("unchanged" if READERS[kind](path) == expected else "changed", flush=True)
        except SphereFaceError as error:
            print(f"refused {type(error).__name__}: {str(error).splitlines()[0]}", flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
