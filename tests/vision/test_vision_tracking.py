"""Tracks of a film's objects: the same object keeps its track, another gets another."""

from __future__ import annotations

import pytest

from weft.jobs.vision.collecting import is_doubtful
from weft.vision.inference.tracking import MOST_MISSED, ObjectTracker, overlap
from weft.vision.records import LabelledShape


def shape(x: float, label: str = "car") -> LabelledShape:
    return LabelledShape(label=label, box=(x, 0, x + 10, 10), confidence=0.9)


def tracks(tracker: ObjectTracker, *shapes: LabelledShape) -> list[str | None]:
    return [one.track for one in tracker.follow(shapes)]


def test_objects_keep_their_tracks_as_they_move() -> None:
    tracker = ObjectTracker()
    assert tracks(tracker, shape(0), shape(40)) == ["1", "2"]
    assert tracks(tracker, shape(43), shape(3)) == ["2", "1"]  # whatever the order
    assert tracks(tracker, shape(6)) == ["1"]
    assert tracks(tracker, shape(9), shape(46)) == ["1", "2"]  # missed for one frame


def test_another_label_or_place_is_another_object() -> None:
    tracker = ObjectTracker()
    assert tracks(tracker, shape(0)) == ["1"]
    assert tracks(tracker, shape(0, "bus"), shape(30)) == ["2", "3"]


def test_the_best_overlap_wins_and_a_track_is_given_once() -> None:
    tracker = ObjectTracker()
    tracks(tracker, shape(0))
    assert tracks(tracker, shape(4), shape(1)) == ["2", "1"]


def test_a_track_ends_after_frames_without_its_object() -> None:
    tracker = ObjectTracker()
    tracks(tracker, shape(0))
    for _ in range(MOST_MISSED + 1):
        tracks(tracker)
    assert tracks(tracker, shape(0)) == ["2"]


def test_overlaps() -> None:
    assert overlap((0, 0, 10, 10), (0, 0, 10, 10)) == 1
    assert overlap((0, 0, 10, 10), (5, 0, 15, 10)) == pytest.approx(1 / 3)
    assert overlap((0, 0, 10, 10), (10, 0, 20, 10)) == 0


def test_doubt() -> None:
    """A model is unsure of its first class, of its least sure object, and where it finds none."""
    sure, unsure = {"label": "a", "confidence": 0.9}, {"label": "b", "confidence": 0.2}
    assert not is_doubtful({"classified": [sure, unsure]}, 0.6)
    assert is_doubtful({"classified": [{"label": "a", "confidence": 0.5}]}, 0.6)
    assert is_doubtful({"detections": [sure, unsure]}, 0.6)
    assert not is_doubtful({"detections": [sure]}, 0.6)
    assert is_doubtful({"detections": []}, 0.6)
    assert not is_doubtful({"outputs": 3}, 0.6)
