"""Plans of augmentation: what is done to one picture, as data; chance depends on the seed and the picture."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass

from weft.errors import PictureError
from weft.text import suggestion
from weft.vision.geometry.affine import Affine
from weft.vision.geometry.moving import move_shape
from weft.vision.records import LabelledPicture, LabelledShape

KINDS = ("blur", "sharpen", "colour", "crop", "flip_left_right", "flip_top_bottom", "rotate", "noise")
LEAST_VISIBLE = 0.25  # of a shape's area: less than this is left out of a cropped or turned picture
_MOST_DEGREES = 45.0
_LEAST_KEPT = 0.4  # of a side, by the strongest crop


@dataclass(frozen=True)
class AugmentStep:
    """One way to change pictures, and its level from 0 (hardly) to 1 (much)."""

    kind: str
    level: float = 0.5

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise PictureError(
                f"an augmentation must be one of {', '.join(KINDS)}, got {self.kind!r}; {suggestion(self.kind, KINDS)}"
            )
        if not 0 <= self.level <= 1:
            raise PictureError(f"the level of {self.kind} must be from 0 to 1, got {self.level}")


@dataclass(frozen=True, kw_only=True)
class PictureChange:
    """The change of one picture: where its pixels go, and what happens to their values."""

    kind: str
    to: Affine
    width: int  # of the new picture
    height: int
    amount: float = 0.0  # of blur (sigma in pixels), sharpening, noise (standard deviation of 0..255)
    hue: float = 0.0  # degrees
    saturation: float = 1.0
    brightness: float = 1.0
    seed: int = 0

    def moved(self, shapes: tuple[LabelledShape, ...]) -> tuple[LabelledShape, ...]:
        """Return the shapes that are still to be seen in the new picture, where they are there."""
        if self.to == Affine():
            return shapes
        found = (
            move_shape(shape, self.to, self.width, self.height, least_visible=LEAST_VISIBLE)
            for shape in shapes
        )
        return tuple(shape for shape in found if shape is not None)


def plan_change(step: AugmentStep, picture: LabelledPicture, seed: int = 0) -> PictureChange:
    """Return what a step does to a picture; the same for the same bytes and the same seed."""
    drawn = hashlib.sha256(
        f"{seed}:{step.kind}:{step.level}:{picture.sha256 or picture.id}".encode()
    ).digest()
    number = int.from_bytes(drawn[:8], "big")
    rng = random.Random(number)
    width, height, level = picture.width, picture.height, step.level
    same = {"kind": step.kind, "width": width, "height": height, "seed": number & 0x7FFFFFFF}
    match step.kind:
        case "flip_left_right":
            return PictureChange(to=Affine.flip_left_right(width), **same)  # type: ignore[arg-type]
        case "flip_top_bottom":
            return PictureChange(to=Affine.flip_top_bottom(height), **same)  # type: ignore[arg-type]
        case "rotate":
            degrees = rng.uniform(0.3, 1.0) * level * _MOST_DEGREES * rng.choice((-1, 1))
            return PictureChange(to=Affine.rotation(degrees, (width / 2, height / 2)), **same)  # type: ignore[arg-type]
        case "crop":
            kept = 1 - level * (1 - _LEAST_KEPT)
            wide, high = max(1, round(width * kept)), max(1, round(height * kept))
            left, top = rng.randint(0, width - wide), rng.randint(0, height - high)
            same |= {"width": wide, "height": high}
            return PictureChange(to=Affine.shift(-left, -top), **same)  # type: ignore[arg-type]
        case "colour":
            return PictureChange(
                to=Affine(),
                hue=rng.uniform(-30, 30) * level,
                saturation=1 + rng.uniform(-0.6, 0.6) * level,
                brightness=1 + rng.uniform(-0.4, 0.4) * level,
                **same,  # type: ignore[arg-type]
            )
    amounts = {"blur": 0.2 + level * 0.012 * max(width, height), "sharpen": 2 * level, "noise": 50 * level}
    return PictureChange(to=Affine(), amount=amounts[step.kind], **same)  # type: ignore[arg-type]
