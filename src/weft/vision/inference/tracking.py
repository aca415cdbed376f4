"""Tracks of a film's objects: boxes of one label that overlap from frame to frame are the same object."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from weft.vision.records import Box, LabelledShape

LEAST_OVERLAP = 0.3  # of a box with that of the same object in the frame before
MOST_MISSED = 5  # frames that an object may not be found in before its track ends


@dataclass
class _Track:
    name: str
    label: str
    box: Box
    missed: int = 0


@dataclass
class ObjectTracker:
    """Gives each object of a film's frames, which come in order, the name of its track."""

    _tracks: list[_Track] = field(default_factory=list)
    _made: int = 0

    def follow(self, shapes: tuple[LabelledShape, ...]) -> tuple[LabelledShape, ...]:
        """Return the objects of the next frame with their tracks: the best pairs by overlap first."""
        pairs = sorted(
            (
                (overlap(track.box, shape.box), number, place)
                for number, track in enumerate(self._tracks)
                for place, shape in enumerate(shapes)
                if track.label == shape.label
            ),
            key=lambda pair: -pair[0],
        )
        given: dict[int, _Track] = {}
        taken: set[int] = set()
        for share, number, place in pairs:
            if share >= LEAST_OVERLAP and number not in taken and place not in given:
                taken.add(number)
                given[place] = self._tracks[number]
        for number, track in enumerate(self._tracks):
            track.missed = 0 if number in taken else track.missed + 1
        self._tracks = [track for track in self._tracks if track.missed <= MOST_MISSED]
        return tuple(self._named(shape, given.get(place)) for place, shape in enumerate(shapes))

    def _named(self, shape: LabelledShape, track: _Track | None) -> LabelledShape:
        if track is None:
            self._made += 1
            track = _Track(str(self._made), shape.label, shape.box)
            self._tracks.append(track)
        track.box = shape.box
        return replace(shape, track=track.name)


def overlap(one: Box, other: Box) -> float:
    """Return the intersection of two boxes over their union."""
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    if wide <= 0 or high <= 0:
        return 0.0
    areas = (one[2] - one[0]) * (one[3] - one[1]) + (other[2] - other[0]) * (other[3] - other[1])
    return wide * high / (areas - wide * high)
