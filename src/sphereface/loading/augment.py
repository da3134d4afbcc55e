"""Random changes of faces for training: seeded views, and loss of detail.

A *view* of a face is what another photo of it might show: a slight shift, scale and rotation, other colours, or grey.
Loss of detail (blur, low resolution, JPEG) comes on top. A teacher sees the view, never the loss of detail: its feature
of the sharp view is the target for both.
"""

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from pydantic import Field

from sphereface.arrays import Float64, UInt8
from sphereface.contract import Record
from sphereface.loading.samplers import uniform

VIEW, DETAIL = 4, 5  # purposes of random numbers, beside those of the samplers
LOWEST_SHARE = 0.25  # of the resolution, at the least
BLUR = (0.5, 2.0)  # widths of the Gaussian, in pixels
QUALITY = (20, 80)  # of a JPEG


class Augmentation(Record):
    """Largest changes and probabilities; 0 leaves a change out. The paper has none but the mirror."""

    shift: float = Field(default=0.0, ge=0, le=20)  # pixels, in x and in y
    scale: float = Field(default=0.0, ge=0, lt=1)  # 0.1: from 0.9 to 1.1
    rotation: float = Field(default=0.0, ge=0, le=180)  # degrees
    colour: float = Field(default=0.0, ge=0, lt=1)  # of brightness, contrast and saturation; 0.2: from 0.8 to 1.2
    grey: float = Field(default=0.0, ge=0, le=1)  # probability, as of those below
    blur: float = Field(default=0.0, ge=0, le=1)
    low_resolution: float = Field(default=0.0, ge=0, le=1)
    jpeg: float = Field(default=0.0, ge=0, le=1)

    @property
    def of_view(self) -> dict[str, float]:
        """The settings of views, which a teacher sees."""
        return self.model_dump(include={"shift", "scale", "rotation", "colour", "grey"})

    def view(self, face: UInt8, draw: Float64) -> UInt8:
        """The face (H, W, 3) moved and coloured by random numbers `draw` (8,) from [0, 1)."""
        signed = 2 * draw - 1
        if self.shift or self.scale or self.rotation:
            height, width = face.shape[:2]
            turn = cv2.getRotationMatrix2D(
                ((width - 1) / 2, (height - 1) / 2), self.rotation * signed[0], 1 + self.scale * signed[1]
            )
            turn[:, 2] += self.shift * signed[2:4]  # type: ignore[arg-type]
            face = cv2.warpAffine(face, turn, (width, height), borderMode=cv2.BORDER_REPLICATE)  # type: ignore[assignment]
        if self.colour:
            face = recoloured(face, *(1 + self.colour * signed[4:7]).tolist())
        if draw[7] < self.grey:
            face = recoloured(face, 1.0, 1.0, 0.0)
        return face

    def lose_detail(self, face: UInt8, draw: Float64) -> UInt8:
        """The face in low resolution, blurred, as a JPEG; each by chance, by random numbers `draw` (6,)."""
        height, width = face.shape[:2]
        if draw[0] < self.low_resolution:
            share = LOWEST_SHARE + (1 - LOWEST_SHARE) * draw[1]
            small = cv2.resize(face, (round(width * share), round(height * share)), interpolation=cv2.INTER_AREA)
            face = cv2.resize(small, (width, height), interpolation=cv2.INTER_LINEAR)  # type: ignore[assignment]
        if draw[2] < self.blur:
            face = cv2.GaussianBlur(face, (0, 0), _between(BLUR, draw[3]))  # type: ignore[assignment]
        if draw[4] < self.jpeg:
            _, encoded = cv2.imencode(
                ".jpg", face[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, round(_between(QUALITY, draw[5]))]
            )
            face = cv2.imdecode(encoded, cv2.IMREAD_COLOR)[..., ::-1]  # type: ignore[index,assignment]
        return face


@dataclass(frozen=True)
class Views:
    """The random changes of a run: the same for a seed, a face and a draw."""

    augmentation: Augmentation
    seed: int
    count: int = 0  # different views of a face, 0 the unchanged one; None of them is kept if 0: each draw is a new view

    def settings(self) -> dict[str, int | str]:
        """The settings that determine the changes."""
        return {"augmentation": self.augmentation.model_dump_json(), "views": self.count}

    def about(self, number: int) -> dict[str, Any]:
        """The settings that determine a numbered view; none for the unchanged face."""
        return {} if self.count and number == 0 else {"number": number, "seed": self.seed, **self.augmentation.of_view}

    def number(self, place: int, faces: int) -> int:
        """The view of the face at a place of the run's sequence of faces: each pass over the set has the next view."""
        return place // faces % self.count if self.count else place

    def view(self, face: UInt8, index: int, number: int) -> UInt8:
        """A numbered view of the face at `index` of its set."""
        if self.count and number == 0:
            return face
        return self.augmentation.view(face, uniform(VIEW, self.seed, index, number, 8))

    def lose_detail(self, face: UInt8, place: int) -> UInt8:
        """A face with loss of detail, at a place of the run's sequence of faces."""
        return self.augmentation.lose_detail(face, uniform(DETAIL, self.seed, 0, place, 6))


def recoloured(face: UInt8, brightness: float, contrast: float, saturation: float) -> UInt8:
    """A face with its brightness, its contrast about its mean, and its saturation multiplied."""
    if brightness != 1 or contrast != 1:
        mean = float(face.mean())
        table = (contrast * (np.arange(256) - mean) + mean) * brightness
        face = cv2.LUT(face, np.clip(np.round(table), 0, 255).astype(np.uint8))  # type: ignore[assignment]
    if saturation != 1:
        grey = cv2.cvtColor(cv2.cvtColor(face, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
        face = cv2.addWeighted(face, saturation, grey, 1 - saturation, 0)  # type: ignore[assignment]
    return face


def _between(ends: tuple[float, float], share: float) -> float:
    return ends[0] + (ends[1] - ends[0]) * share
