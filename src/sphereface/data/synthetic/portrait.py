"""Draws one synthetic face: a head, turned, lit, photographed and cropped to 112 x 96.

A face is drawn as coloured polygons with corners on a rounded head, so that a turn of the head moves the nose against
the eyes and narrows the far side, as in photos. A similarity transform then maps the five landmarks of the turned head
to the template, as alignment does with real photos.
"""

import math

import cv2
import numpy as np

from sphereface.arrays import Float64, Image
from sphereface.data.synthetic.canvas import Canvas, Colour, ellipse, mix, moved, some_colour
from sphereface.data.synthetic.head import Head, eye_place, landmarks, mouth_place, nose_lift
from sphereface.data.synthetic.traits import Shot, Traits

HEIGHT, WIDTH = 112, 96

_LID, _BROW, _LIPS = np.linspace(-1, 1, 7), np.linspace(0, 1, 6), np.linspace(-1, 1, 9)
_ARCH = np.sin(np.pi * _BROW)
_TURN = np.linspace(0, 2 * np.pi, 40, endpoint=False)
_ACROSS, _ALONG = np.sin(_TURN), -np.cos(_TURN)  # around the head from its top, clockwise
# Light changes slowly over a face: it is computed for every fourth pixel.
_X, _Y = np.meshgrid(np.arange(0.5, WIDTH, 2, dtype=np.float32), np.arange(0.5, HEIGHT, 2, dtype=np.float32))


class Palette:
    """The colours of a person in RGB."""

    def __init__(self, person: Traits) -> None:
        light, medium, dark = (242, 205, 180), (196, 142, 108), (92, 58, 42)
        tone = mix(light, medium, 2 * person.skin) if person.skin < 0.5 else mix(medium, dark, 2 * person.skin - 1)
        self.skin: Colour = (tone[0] + 5 * person.undertone, tone[1], tone[2] - 7 * person.undertone)
        brown = mix((28, 22, 20), (214, 178, 112), 0.5 + 0.35 * person.hair_colour - 0.6 * (person.skin - 0.3))
        red = mix(brown, (150, 70, 38), 0.5 * max(0.0, person.hair_red))
        self.hair = mix(red, (205, 203, 200), 1.6 * (person.age - 0.5))
        self.shadow = mix(self.skin, (60, 28, 24), 0.35)
        self.deep = mix(self.skin, (40, 18, 16), 0.6)
        self.lips = mix(mix(self.skin, (172, 72, 78), 0.55), (120, 48, 56), 0.3 + 0.25 * person.lip_colour)
        self.iris = mix((66, 42, 26), (96, 142, 172), 0.35 + 0.4 * person.iris - 0.5 * (person.skin - 0.3))


def draw(person: Traits, shot: Shot) -> Image:
    """One photo of one person, aligned: (112, 96, 3) uint8 RGB."""
    rng = np.random.default_rng(shot.background)
    head = Head(person, shot)
    head.align(landmarks(person, shot, head), shot)
    canvas, palette = Canvas(_background(rng), head.lay), Palette(person)
    _behind(canvas, head, person, shot, palette, rng)
    outline = _outline(person, shot, head)
    canvas.fill(outline, palette.skin)
    _skin_details(canvas, head, person, shot, palette)
    _eyes(canvas, person, shot, palette)
    _nose(canvas, person, palette)
    _mouth(canvas, person, shot, palette)
    _hair(canvas, head, person, shot, palette, outline)
    _worn(canvas, head, person, shot, outline, rng)
    return _expose(canvas.paint(), shot, outline, rng)


def _background(rng: np.random.Generator) -> Image:
    coarse = rng.uniform(20, 235, 3) + rng.normal(0, 35, (4, 3, 3))
    small = np.clip(coarse, 0, 255).astype(np.uint8)
    return np.asarray(cv2.resize(small, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC), dtype=np.uint8)


def _outline(person: Traits, shot: Shot, head: Head) -> Float64:
    """The silhouette of the head in the crop: it turns with the head but keeps its breadth."""
    across, along = _ACROSS, _ALONG
    below = np.clip(along, 0, None)
    width = head.half_width * (1 + 0.05 * person.cheek * np.exp(-((along - 0.1) ** 2) / 0.05))
    width = width * (1 - (0.20 - 0.07 * person.jaw) * below**1.5)
    squared = np.sign(across) * np.abs(across) ** np.where(along < 0, 0.72, 0.86 - 0.06 * person.jaw)
    x = squared * width * (1 - 0.03 * abs(math.sin(shot.yaw))) + 6 * math.sin(shot.yaw)
    y = np.where(along < 0, along * -head.top, along * head.bottom)
    return head.place(np.column_stack([x, y]))


def _behind(canvas: Canvas, head: Head, person: Traits, shot: Shot, palette: Palette, rng: np.random.Generator) -> None:
    shift = -22 * math.sin(shot.yaw)
    length = 0.9 * person.hair_length + 0.5 * shot.hair_change
    volume = 3.0 + 2.5 * person.hair_volume + 2.0 * shot.hair_change
    if length > -0.2:
        low = 10 + 40 * min(length, 1.3)
        half = head.half_width + max(1.0, volume) + 2
        right = [[half * 0.55, low + 6], [half + 2, low], [half, -20]]
        left = [[-x, y] for x, y in reversed(right)]
        canvas.fill(head.place(moved([*left, *right], 0.4 * shift)), mix(palette.hair, (0, 0, 0), 0.25))
    neck = [[-17.0, 25.0], [-18.0, 62.0], [18.0, 62.0], [17.0, 25.0]]
    canvas.fill(head.place(moved(neck, 0.3 * shift)), palette.shadow)
    shirt: list[list[float]] = [[-60, 70], [-16, 53], [0, 60], [16, 53], [60, 70], [60, 90], [-60, 90]]
    canvas.fill(head.place(moved(shirt, 0.3 * shift)), some_colour(rng, 20, 230))
    for side in (-1, 1):
        visible = 1 + 1.2 * side * math.sin(shot.yaw)
        ear_x = side * (head.half_width + (1.2 + 1.5 * person.ear_spread) * visible) + 0.25 * shift
        ear_y = -9 + 2.5 * person.ear_height
        size = max(0.3, 1 + 0.16 * person.ear_size)
        outer = ellipse(ear_x, ear_y, max(1.0, 4.2 * size * visible), 10.5 * size)
        inner = ellipse(ear_x, ear_y, max(0.6, 2.2 * size * visible), 6.5 * size)
        canvas.fill(head.place(outer), mix(palette.skin, palette.shadow, 0.3))
        canvas.stroke(head.place(inner), palette.shadow, closed=True)


def _skin_details(canvas: Canvas, head: Head, person: Traits, shot: Shot, palette: Palette) -> None:
    eye_x, eye_y = eye_place(person)
    socket = mix(palette.skin, palette.shadow, 0.3 + 0.12 * person.eye_depth)
    for side in (-1.0, 1.0):
        canvas.patch(ellipse(side * eye_x, eye_y + 0.5, 8.5, 6.0 + person.eye_depth), socket)
        canvas.patch(ellipse(side * 22, 6, 7, 5), mix(palette.skin, (225, 110, 100), 0.10 + 0.08 * shot.smile))
    beard = person.beard + 0.35 * shot.beard_change
    if beard > 0.7:
        share = min(0.85, 0.25 + 0.5 * (beard - 0.7))
        jaw = head.half_width * 0.86
        low = head.bottom - 1
        right = [[0, low], [jaw * 0.5, low - 3], [jaw * 0.9, 22], [jaw, 2], [jaw * 0.62, 12], [13.0, 11], [0.0, 9]]
        left = [[-x, y] for x, y in reversed(right[1:-1])]
        canvas.patch(np.array([*right, *left], dtype=float), mix(palette.skin, palette.hair, share))
    wrinkle = person.age - 0.35
    if wrinkle > 0:
        line = mix(palette.skin, palette.deep, min(0.8, 1.1 * wrinkle))
        for side in (-1.0, 1.0):
            fold = np.array([[9.0, 4], [13, 10], [15.5, 16 - 2 * shot.smile]]) * (side, 1)
            canvas.crease(fold, line)
            canvas.crease(np.array([[9.0, -12.0], [13, -10.5], [17, -11.5]]) * (side, 1), line)
        for row in range(int(1 + 3 * wrinkle)):
            canvas.crease(np.array([[-12.0, -40 - 4 * row], [0, -41.5 - 4 * row], [12, -40 - 4 * row]]), line)
    spots = mix(palette.skin, palette.deep, 0.55)
    if person.freckles > 0.8:
        grid = np.random.default_rng(int(1000 * abs(person.freckles))).uniform((-24, -4), (24, 12), (14, 2))
        for x, y in grid:
            square = np.array([[x, y], [x + 0.7, y], [x + 0.7, y + 0.7], [x, y + 0.7]])
            canvas.patch(square, mix(palette.skin, palette.deep, 0.3))
    if abs(person.mole_x) > 0.4:
        canvas.patch(ellipse(13 * person.mole_x, 6 + 11 * person.mole_y, 1.3, 1.3), spots, 0.5)


def _eyes(canvas: Canvas, person: Traits, shot: Shot, palette: Palette) -> None:
    eye_x, eye_y = eye_place(person)
    half = 7.0 + 0.9 * person.eye_size
    opening = max(0.5, (2.7 + 0.5 * person.eye_size + 0.7 * person.eye_shape) * shot.eye_open)
    t = _LID
    for side in (-1.0, 1.0):
        tilt = -side * (0.4 + 1.0 * person.eye_tilt) * t * side  # outer corners up or down
        x = side * eye_x + half * t
        lid_shape = 1 - np.abs(t) ** (2.0 + 0.4 * person.eye_shape)
        upper = np.column_stack([x, eye_y - opening * lid_shape + tilt * side])
        lower = np.column_stack([x, eye_y + 0.75 * opening * lid_shape + tilt * side])
        canvas.patch(np.vstack([upper, lower[::-1]]), mix((236, 232, 228), palette.skin, 0.15))
        if shot.eye_open > 0.35:
            gx, gy = side * eye_x + 2.2 * shot.gaze[0], eye_y + 0.8 * shot.gaze[1] - 0.2
            radius = min(3.3 + 0.2 * person.eye_size, opening * 1.15)
            canvas.patch(ellipse(gx, gy, 3.2, radius), palette.iris)
            canvas.patch(ellipse(gx, gy, 1.4, min(1.4, radius)), (15, 12, 12))
        canvas.crease(upper, mix(palette.deep, (20, 12, 12), 0.6), 1)
        brow_y = eye_y - 8.2 - 1.4 * person.brow_height - 2.2 * shot.brow_raise
        inner, outer = side * (eye_x - 9.5), side * (eye_x + 9.5)
        u = _BROW
        bx = inner + (outer - inner) * u
        by = brow_y + (1.0 - 2.0 * u) * (0.5 + 1.1 * person.brow_tilt) - (1.4 + 1.0 * person.brow_arch) * _ARCH
        weight = (1.7 + 0.55 * person.brow_weight) * (1 - 0.6 * u)
        shape = np.vstack([np.column_stack([bx, by - weight]), np.column_stack([bx, by + 0.6 * weight])[::-1]])
        canvas.patch(shape, mix(palette.hair, (20, 14, 12), 0.45), 1.0)


def _nose(canvas: Canvas, person: Traits, palette: Palette) -> None:
    tip_y = 0.5 + 2.2 * person.nose_length
    wing = 7.2 + 1.1 * person.nose_width
    bridge = 3.2 + 0.6 * person.nose_bridge
    lift = nose_lift(person)
    flat = np.array([[-bridge, -18], [-bridge, -8], [-wing, tip_y + 1], [-wing * 0.6, tip_y + 4.5], [0, tip_y + 5.5],
                     [wing * 0.6, tip_y + 4.5], [wing, tip_y + 1], [bridge, -8], [bridge, -18]])  # fmt: skip
    lifts = np.array([1, 3, 3, 5, 7, 5, 3, 3, 1], dtype=float)
    canvas.patch(flat, mix(palette.skin, palette.shadow, 0.22), lifts)
    ridge = np.array(
        [[-1.6, -17], [-1.8, -6], [-3.8, tip_y - 1], [0, tip_y + 2.5], [3.8, tip_y - 1], [1.8, -6], [1.6, -17]]
    )
    heights = np.array([3, 7, lift - 1, lift, lift - 1, 7, 3])
    canvas.patch(ridge, mix(palette.skin, (255, 245, 235), 0.16), heights)
    for side in (-1.0, 1.0):
        nostril = ellipse(side * wing * 0.48, tip_y + 3.6, 1.7 + 0.2 * person.nose_width, 1.0)
        canvas.patch(nostril, palette.deep, lift * 0.5)
        edge = np.array([[wing, tip_y - 1.5], [wing + 0.6, tip_y + 1], [wing - 1, tip_y + 3.5]]) * (side, 1)
        canvas.crease(edge, palette.shadow, lift=3.0)


def _mouth(canvas: Canvas, person: Traits, shot: Shot, palette: Palette) -> None:
    y = mouth_place(person)
    half = 13.6 + 1.5 * person.mouth_width + 2.0 * shot.smile
    t = _LIPS
    corner = -1.6 * shot.smile * t**2
    gap = 3.2 * shot.mouth_open * (1 - t**2)
    top = (2.1 + 0.55 * person.upper_lip) * (1 - t**2) * (1 - 0.18 * np.exp(-((t / 0.2) ** 2)))
    bottom = (2.9 + 0.65 * person.lower_lip) * (1 - t**2) ** 0.8
    x = half * t
    if shot.mouth_open > 0.15:
        inside = np.vstack([np.column_stack([x, y + corner - 0.3 * gap]), np.column_stack([x, y + corner + gap])[::-1]])
        canvas.patch(inside, (238, 234, 226) if shot.smile > 0.3 else (70, 26, 28), 1.0)
    upper = np.vstack(
        [np.column_stack([x, y + corner - 0.3 * gap - top]), np.column_stack([x, y + corner - 0.3 * gap])[::-1]]
    )
    lower = np.vstack([np.column_stack([x, y + corner + gap]), np.column_stack([x, y + corner + gap + bottom])[::-1]])
    canvas.patch(upper, mix(palette.lips, (60, 20, 26), 0.12), 1.5)
    canvas.patch(lower, palette.lips, 1.5)
    canvas.crease(np.column_stack([x, y + corner]), mix(palette.lips, (40, 12, 16), 0.6), lift=1.5)
    canvas.crease(np.array([[-5.0, y + 7.5], [0, y + 8.5], [5, y + 7.5]]), mix(palette.skin, palette.shadow, 0.4))


def _hair(canvas: Canvas, head: Head, person: Traits, shot: Shot, palette: Palette, outline: Float64) -> None:
    baldness = person.hairline + 1.2 * max(0.0, person.age - 0.6) - 0.3 * shot.hair_change
    if baldness > 1.9:
        return
    volume = max(0.8, 3.0 + 2.2 * person.hair_volume + 1.5 * shot.hair_change)
    line = -38 - 4.0 * baldness  # where the forehead ends
    middle = outline.mean(0)
    above = np.concatenate([np.arange(30, 40), np.arange(0, 11)])  # from the left temple over the top to the right
    cap = middle + (outline[above] - middle) * (1 + volume / 38)
    part = 11.0 * np.clip(person.parting, -1.5, 1.5)
    temple = head.half_width - 2.5
    edge = np.array([[temple, -20.0], [temple - 4, line + 8], [12 + 0.3 * part, line + 1.5], [part, line - 3],
                     [-12 + 0.3 * part, line + 1.5], [-temple + 4, line + 8], [-temple, -20.0]])  # fmt: skip
    canvas.fill(np.vstack([cap, head.lay(edge, 1.0)]), palette.hair)


def _worn(canvas: Canvas, head: Head, person: Traits, shot: Shot, outline: Float64, rng: np.random.Generator) -> None:
    if shot.wears_glasses:
        eye_x, eye_y = eye_place(person)
        frame = some_colour(rng, 10, 110)
        height, thickness = rng.uniform(6.0, 8.5), 1 + int(rng.integers(2))
        for side in (-1.0, 1.0):
            rim = ellipse(side * eye_x, eye_y + 0.5, 10.0, height)
            canvas.crease(rim, frame, thickness, 5.0, closed=True)
        bridge = np.array([[-(eye_x - 10), eye_y - 1], [0, eye_y - 2.5], [eye_x - 10, eye_y - 1]])
        canvas.crease(bridge, frame, 1, 6.0)
    if shot.wears_hat:
        colour = some_colour(rng, 15, 220)
        middle = outline.mean(0)
        above = np.concatenate([np.arange(29, 40), np.arange(0, 12)])
        cap = middle + (outline[above] - middle) * 1.16
        low = -34 + rng.uniform(-5, 4)
        brim = head.lay(np.array([[34.0, low], [0, low + 3], [-34, low]]), 5.0)
        canvas.fill(np.vstack([cap, brim]), colour)
        canvas.stroke(brim, mix(colour, (0, 0, 0), 0.4), 2)
    if shot.hand:
        skin = mix(Palette(person).skin, (80, 40, 30), 0.12)
        side = math.copysign(1.0, shot.hand)
        x, y = WIDTH / 2 + side * rng.uniform(24, 40), rng.uniform(78, 104)
        for finger in range(4):
            shape = ellipse(x + side * 3 * finger, y - 7.5 * finger + 4, 15, 4.2, side * 0.5)
            canvas.fill(shape, skin)
            canvas.stroke(shape, mix(skin, (50, 20, 16), 0.4), closed=True)


def _expose(image: Image, shot: Shot, outline: Float64, rng: np.random.Generator) -> Image:
    """Light on the rounded head, the colour of the light, then lens, sensor and compression."""
    centre = outline.mean(0)
    radius = np.ptp(outline, axis=0) / 2 + 2
    nx, ny = (_X - np.float32(centre[0])) / np.float32(radius[0]), (_Y - np.float32(centre[1])) / np.float32(radius[1])
    nz = np.sqrt(np.maximum(1 - nx * nx - ny * ny, 0))
    lx, ly, lz = (np.float32(shot.exposure * (1 - shot.ambient) * value) for value in shot.light)
    shade = np.float32(shot.exposure * shot.ambient) + np.maximum(nx * lx + ny * ly + nz * lz, 0)
    shade = cv2.resize(shade, (WIDTH, HEIGHT), interpolation=cv2.INTER_LINEAR)
    gain = cv2.merge([shade * np.float32(value) for value in shot.tint])
    lit = cv2.multiply(image, gain, dtype=cv2.CV_8U)
    if shot.blur > 0.3:
        lit = cv2.GaussianBlur(lit, (0, 0), shot.blur)
    grain = (shot.noise * rng.standard_normal((HEIGHT, WIDTH), dtype=np.float32)).astype(np.int16)
    taken = cv2.add(lit, cv2.merge([grain, grain, grain]), dtype=cv2.CV_8U)
    _, stored = cv2.imencode(".jpg", cv2.cvtColor(taken, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, shot.quality])
    developed = cv2.imdecode(stored, cv2.IMREAD_COLOR)
    assert developed is not None, "OpenCV cannot read the JPEG that it wrote"
    return np.asarray(cv2.cvtColor(developed, cv2.COLOR_BGR2RGB), dtype=np.uint8)
