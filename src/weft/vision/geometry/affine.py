"""Affine maps of a picture's plane: flips, turns, crops and scales, and their products.

    Affine.flip_left_right(640).then(Affine.scale(0.5, 0.5)).point(10, 20)

A map takes continuous coordinates: (0, 0) is the left upper corner of the first pixel, whose middle is (0.5, 0.5).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft.vision.records import Point


@dataclass(frozen=True)
class Affine:
    """The map x' = a x + b y + c, y' = d x + e y + f."""

    a: float = 1.0
    b: float = 0.0
    c: float = 0.0
    d: float = 0.0
    e: float = 1.0
    f: float = 0.0

    @classmethod
    def flip_left_right(cls, width: float) -> Affine:
        return cls(a=-1.0, c=float(width))

    @classmethod
    def flip_top_bottom(cls, height: float) -> Affine:
        return cls(e=-1.0, f=float(height))

    @classmethod
    def scale(cls, across: float, down: float) -> Affine:
        return cls(a=across, e=down)

    @classmethod
    def shift(cls, x: float, y: float) -> Affine:
        return cls(c=x, f=y)

    @classmethod
    def quarter_turns(cls, turns: int, width: float, height: float) -> Affine:
        """Return turns by 90 degrees clockwise; the picture's left upper corner stays at (0, 0)."""
        turns %= 4
        if turns == 0:
            return cls()
        if turns == 1:
            return cls(a=0.0, b=-1.0, c=float(height), d=1.0, e=0.0)
        if turns == 2:
            return cls(a=-1.0, c=float(width), e=-1.0, f=float(height))
        return cls(a=0.0, b=1.0, d=-1.0, e=0.0, f=float(width))

    @classmethod
    def rotation(cls, degrees: float, centre: Point) -> Affine:
        """Return a turn clockwise around a point."""
        x, y = centre
        cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        turn = cls(a=cos, b=-sin, d=sin, e=cos)
        return cls.shift(-x, -y).then(turn).then(cls.shift(x, y))

    @property
    def determinant(self) -> float:
        return self.a * self.e - self.b * self.d

    def point(self, x: float, y: float) -> Point:
        """Return where a point goes."""
        return (self.a * x + self.b * y + self.c, self.d * x + self.e * y + self.f)

    def then(self, other: Affine) -> Affine:
        """Return the map that does this one first and the other one after it."""
        return Affine(
            other.a * self.a + other.b * self.d,
            other.a * self.b + other.b * self.e,
            other.a * self.c + other.b * self.f + other.c,
            other.d * self.a + other.e * self.d,
            other.d * self.b + other.e * self.e,
            other.d * self.c + other.e * self.f + other.f,
        )

    def inverse(self) -> Affine:
        """Return the map back; one that flattens the plane has none."""
        det = self.determinant
        if det == 0:
            raise ZeroDivisionError("a map that flattens the plane has no inverse")
        a, b, d, e = self.e / det, -self.b / det, -self.d / det, self.a / det
        return Affine(a, b, -(a * self.c + b * self.f), d, e, -(d * self.c + e * self.f))
