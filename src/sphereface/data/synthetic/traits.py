"""The traits of a synthetic person, and the circumstances of a photo."""

from dataclasses import dataclass, fields

from sphereface.data.synthetic.canvas import Colour


@dataclass(frozen=True)
class Traits:
    """The traits of a person; each number is 0 for an average face and about 1 for an unusual one, unless stated."""

    # bone
    head_width: float
    head_height: float
    jaw: float
    chin: float
    cheek: float
    forehead: float
    # skin
    skin: float  # 0 light .. 1 dark
    undertone: float
    # eyes
    eye_gap: float
    eye_height: float
    eye_size: float
    eye_shape: float
    eye_tilt: float
    iris: float
    eye_depth: float
    # brows
    brow_height: float
    brow_weight: float
    brow_tilt: float
    brow_arch: float
    # nose
    nose_length: float
    nose_width: float
    nose_depth: float
    nose_bridge: float
    # mouth
    mouth_width: float
    mouth_height: float
    upper_lip: float
    lower_lip: float
    lip_colour: float
    # ears
    ear_size: float
    ear_height: float
    ear_spread: float
    # hair
    hair_colour: float
    hair_red: float
    hair_length: float
    hair_volume: float
    hairline: float
    parting: float
    beard: float
    # age
    age: float  # 0 young .. 1 old
    # marks
    mole_x: float
    mole_y: float
    freckles: float
    glasses: float

    @classmethod
    def count(cls) -> int:
        """The number of traits."""
        return len(fields(cls))


@dataclass(frozen=True)
class Shot:
    """The circumstances of one photo of a person."""

    yaw: float  # radians
    pitch: float
    shift: tuple[float, float]  # pixels by which the alignment is off
    zoom: float
    roll: float
    light: tuple[float, float, float]  # direction
    ambient: float
    exposure: float
    tint: Colour
    smile: float
    mouth_open: float
    brow_raise: float
    eye_open: float
    gaze: tuple[float, float]
    hair_change: float
    beard_change: float
    wears_glasses: bool
    wears_hat: bool
    hand: float  # 0 none, else where it covers
    background: int  # its random seed
    blur: float
    noise: float
    quality: int
