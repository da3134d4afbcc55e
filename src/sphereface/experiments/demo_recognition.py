"""The end of the demo: the network that it has just trained recognises people, through the same steps as real photos.

A photo shows a drawn face on a grey wall. The detector finds it, and it is aligned and embedded; the thresholds are
calibrated on people of the test set who are neither enrolled nor searched.
"""

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from sphereface.arrays import Image
from sphereface.contract import Card
from sphereface.data.synthetic.people import SyntheticPeople
from sphereface.embed.embedder import Embedder
from sphereface.evaluation.calibration.measure import calibrate
from sphereface.experiments.openset import TEST, Scale
from sphereface.faces.detector import Detector
from sphereface.faces.images import encode_png
from sphereface.gallery.gallery import Gallery
from sphereface.models import save_model
from sphereface.progress import Begin
from sphereface.recognize.drawing import draw_names
from sphereface.recognize.photos import FaceReader, open_photo
from sphereface.recognize.recognizer import Recognizer
from sphereface.recognize.thresholds import SearchThreshold
from sphereface.reports.figures import Picture

KNOWN, STRANGERS = 12, 12  # people
ENROLLED, SEARCHED = 3, 2  # photos of each
FPIR = 0.1
WALL = 170  # pixels, each side of a photo
COLUMNS = 6  # of the picture
CALIBRATED_ON = 100  # people at the least: 78 show a rate of 1e-2, and of a few no face is found
LEAST = KNOWN + STRANGERS + CALIBRATED_ON  # people of the test set
COMMANDS = (
    "sphereface verify a.jpg b.jpg",
    'sphereface enroll "Ada Lovelace" ada-1.jpg ada-2.jpg',
    "sphereface identify party.jpg --draw named",
)


class Recognised(NamedTuple):
    """What came of it."""

    enrolled: int  # people
    failed: int  # photos without a face that was found
    right: int  # other photos of enrolled people with their name
    wrong: int  # with another name
    unknown: int
    strangers: int  # photos of strangers
    named: int  # of these with a name
    threshold: SearchThreshold
    picture: Picture

    def as_json(self) -> dict[str, Any]:
        """For JSON."""
        counts = {name: value for name, value in self._asdict().items() if isinstance(value, int)}
        return {**counts, "threshold": self.threshold.score, "fpir": self.threshold.fpir}

    def text(self) -> str:
        """In one paragraph."""
        return (
            f"{self.enrolled} people of the test set were enrolled with {ENROLLED} photos each. Of "
            f"{self.right + self.wrong + self.unknown} other photos of them, {self.right} got the right name, "
            f"{self.wrong} another one, and {self.unknown} were unknown. Of {self.strangers} photos of strangers, "
            f"{self.named} got a name; {self.threshold.fpir:.0%} were promised, with a threshold of "
            f"{self.threshold.score:.3f}. In {self.failed} photos the detector found no face."
        )


def recognise(net: nn.Module, scale: Scale, *, begin: Begin) -> Recognised:
    """Enroll people of the test set, and identify their other photos and strangers."""
    population, detector = SyntheticPeople(), Detector("mtcnn", preset="fast")
    with tempfile.TemporaryDirectory() as room:
        path = Path(room) / "demo.safetensors"
        save_model(net.eval(), path, Card(name="the network of this demo"))
        embedder = _calibrated(Embedder.load(path), detector, population, scale, begin)
        with Gallery.open(Path(room) / "people.gallery") as gallery:
            return _run(Recognizer(embedder, gallery, detector=detector, fpir=FPIR), population, begin)


def _calibrated(
    embedder: Embedder, detector: Detector, population: SyntheticPeople, scale: Scale, begin: Begin
) -> Embedder:
    """The embedder with thresholds from people of the test set who are not searched."""
    reader, progress = FaceReader(embedder, detector), begin("calibrating the network")
    features, people = [], []
    first = KNOWN + STRANGERS
    for person in range(first, scale.test_people):
        for photo in range(ENROLLED):
            for face in reader.faces(open_photo(_photo(population, person, photo)))[:1]:
                features.append(face.feature)
                people.append(person)
        progress(person - first + 1, scale.test_people - first)
    found = calibrate(np.stack(features), people, rounds=100, measured_on="synthetic people of the test set")
    return embedder.with_card(found.card(embedder.card))


def _run(recognizer: Recognizer, population: SyntheticPeople, begin: Begin) -> Recognised:
    progress, failed = begin("enrolling and identifying"), 0
    for person in range(KNOWN):
        done = recognizer.enroll(_name(person), [_photo(population, person, photo) for photo in range(ENROLLED)])
        failed += len(done.failed)
        progress(person + 1, KNOWN + KNOWN + STRANGERS)
    names, drawn = [], []
    for person in range(KNOWN + STRANGERS):
        for photo in range(ENROLLED, ENROLLED + SEARCHED):
            picture = _photo(population, person, photo)
            answer = recognizer.identify(picture)
            failed += not answer.faces
            names += [(person, face.name) for face in answer.faces[:1]]
            if photo == ENROLLED and person % 2 == 0:
                drawn.append(draw_names(picture, answer.faces))
        progress(KNOWN + person + 1, KNOWN + KNOWN + STRANGERS)
    known = [name for person, name in names if person < KNOWN]
    right = sum(name == _name(person) for person, name in names if person < KNOWN)
    strangers = [name for person, name in names if person >= KNOWN]
    return Recognised(
        len(recognizer.gallery), failed, right, len(known) - right - known.count(None), known.count(None),
        len(strangers), len(strangers) - strangers.count(None), recognizer.threshold(), _sheet(drawn),
    )  # fmt: skip


def _photo(population: SyntheticPeople, person: int, number: int) -> Image:
    """A photo of a person of the test set."""
    photo = np.full((WALL, WALL, 3), 128, np.uint8)
    face = population.face(TEST + person, number)
    y, x = (WALL - face.shape[0]) // 2, (WALL - face.shape[1]) // 2
    photo[y : y + face.shape[0], x : x + face.shape[1]] = face
    return photo


def _name(person: int) -> str:
    return f"person {person + 1}"


def _sheet(photos: list[Image]) -> Picture:
    rows = [np.concatenate(photos[start : start + COLUMNS], axis=1) for start in range(0, len(photos), COLUMNS)]
    sheet = encode_png(np.concatenate(rows, axis=0))
    return Picture(sheet, sheet, f"{len(photos)} photos with a box around each face, and its name or unknown")
