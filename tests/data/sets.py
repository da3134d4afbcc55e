"""Small sets of faces for the tests of formats, and ways to spoil a file."""

import os
from pathlib import Path

import cv2
import numpy as np
from hypothesis import strategies as st

from sphereface.data.people import PeopleFolder
from sphereface.errors import DataFormatError, UnreadableImage

# Published lists and digits, where they exist: tests that need them are skipped elsewhere.
REAL = Path(os.environ.get("SPHEREFACE_DATA", Path(__file__).parents[3] / "shared" / "data"))

PEOPLE = {
    "Ann B. Clark": ["photo.1.jpg", "photo 2.png"],
    "Zoë": ["żółw.png", "a.JPG", "#3.jpeg"],
    "o'Neil": ["x.jpg"],
    "李": ["1/deep.png"],
}


def image(number, suffix):
    """An encoded image of 12 x 10 that no other number has."""
    pixels = np.random.default_rng(number).integers(0, 256, (12, 10, 3), dtype=np.uint8)
    return cv2.imencode(suffix, pixels)[1].tobytes()


def write_people(root):
    """A folder with awkward names, JPEG and PNG, ready to be read."""
    names = [f"{person}/{photo}" for person, photos in PEOPLE.items() for photo in photos]
    for number, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image(number, path.suffix.lower()))
    return PeopleFolder(root)


def tree(root):
    """Every file below a folder, hidden ones too, with its bytes."""
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def content(faces):
    """All that a set says."""
    persons = [faces.people[label] for label in faces.labels]
    return list(zip(persons, faces.labels.tolist(), faces.paths, map(faces.read, range(len(faces.paths))), strict=True))


def spoiled(whole):
    """A file cut off, with one bit or byte changed, or something else altogether."""
    places = st.integers(0, len(whole) - 1)
    return st.one_of(
        places.map(lambda end: whole[:end]),
        st.tuples(places, st.integers(1, 255)).map(
            lambda change: whole[: change[0]] + bytes([whole[change[0]] ^ change[1]]) + whole[change[0] + 1 :]
        ),
        st.binary(max_size=600),
    )


def reads_or_says_why(read, *arguments):
    """Call a reader and look at all that it found; an error must be one of ours, of one line."""
    try:
        found = read(*arguments)
        if hasattr(found, "paths"):
            content(found)
    except (DataFormatError, UnreadableImage) as error:
        assert len(str(error).split("\n")) == 1  # noqa: PT017 - whether it is raised is not the question
