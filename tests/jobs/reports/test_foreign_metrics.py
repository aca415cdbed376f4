"""Metrics that others write: TensorBoard's event files, and those of FfDL's jobs."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from pathlib import Path

import pytest

from weft.jobs.reports.gathered import Gathered, Position
from weft.jobs.reports.parsers import JsonLines, OutputPattern, PrintedJson
from weft.jobs.reports.tensorboard import EventRecords
from weft.jobs.spec.model import RegexSource
from weft.reporting.event_files import event_files

# Written by torch.utils.tensorboard 2.12 with TensorBoard 2.20: two steps of loss (simple_value), acc (a tensor of
# floats) and dbl (a tensor of doubles), then a NaN at step 10**12, and a text.
EVENTS = (
    "c-r$|fPjCKJmzv9s5|;qcmFL%Dc+=_#LPTB*Rs^S5-X!1JuaP+)V$*SqNM!9q7=R2(%js{qDsB;qRf)iBE3|Qs`#|boYZ)T$lf1&"
    "`6Zy{F0S`h;$&b@aQG8)(@~3;i<^rjC%?E@6ewkX;^Hw&O{hBa|M3h6b#h!XT+E5d$xa*`j9M%pc`t4*PA>N1<iwoBqT)IU|1Y{w"
    "jW&*5zY!XhxD>dUQ<8F=csQ7hIG{>UHRpv*cb9@n2+h8s3)Gwd)-1q?;=TsEdsl8dYC~1FNgwt`R*CMy20Ii>Y|HOl(T8fyjg<{R"
    "){5%JSu;Ukr#*`Ha|b7t$w9T>ydz`;)b8K}*50sS%F<q0Egmi|F6O+%JfJ%d)Nhb;k+g#OXzHs+oYUq*;t^<>E|)eJUx|K6YDGyr"
    "G~S%}IoO3*gqS!Oomewcb8_;%IJnrjSU^g?KV!cE0Lo8~Zv"
)


@pytest.fixture(scope="module")
def events() -> bytes:
    return zlib.decompress(base64.b85decode(EVENTS))


def parse(data: bytes, group: str = "") -> Gathered:
    return EventRecords(group).parse(data, Position(), 0)[0]


def test_scalars_of_an_event_file_are_points(events: bytes) -> None:
    assert EventRecords("").whole(events) == len(events)
    points = parse(events).points
    assert points[:6] == [
        ("loss", 0, 1700000000500, 0.5),
        ("acc", 0, 1700000000500, 0.0),
        ("dbl", 0, 1700000000500, 0.0),
        ("loss", 1, 1700000001500, 0.25),
        ("acc", 1, 1700000001500, 0.25),
        ("dbl", 1, 1700000001500, 0.1),
    ]
    assert points[6][:3] == ("nan", 10**12, 1700000009000)
    assert points[6][3] != points[6][3]
    assert len(points) == 7
    assert parse(events, "train").points[0][0] == "train/loss"


def test_an_event_file_is_read_in_pieces_of_any_size(events: bytes) -> None:
    records, pending, found = EventRecords(""), b"", Gathered()
    for place in range(0, len(events), 13):
        pending += events[place : place + 13]
        size = records.whole(pending)
        if size:
            found.points += parse(pending[:size]).points
            pending = pending[size:]
    assert str(found.points) == str(parse(events).points)


def test_a_broken_event_file_ends_the_reading_of_it_alone(events: bytes) -> None:
    broken = events + struct.pack("<Q", 1 << 60) + b"rubbish"
    assert EventRecords("").whole(broken) == len(broken)
    assert len(parse(broken).points) == 7
    for place in range(12, len(events), 7):  # any byte may be wrong
        parse(events[:place] + b"\xff\xff" + events[place + 2 :])


def test_event_files_are_found_with_their_groups(tmp_path: Path) -> None:
    for name in ("a.tfevents.1", "train/x.tfevents.2", "other.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert {(path.name, group) for path, group in event_files(tmp_path)} == {
        ("a.tfevents.1", ""),
        ("x.tfevents.2", "train"),
    }
    assert not list(event_files(tmp_path / "nothing"))


def test_lines_of_json_among_others_are_points() -> None:
    data = (
        b'epoch 1\n{"loss": 0.5}\r{"epoch": 4, "loss": NaN, "on": true}\n {"loss": 1, "step": 9} \n{broken\n'
    )
    found, after = PrintedJson.of(0).parse(data, Position(), 5)
    assert [(name, step, str(value)) for name, step, _, value in found.points] == [
        ("loss", 1, "0.5"),
        ("loss", 4, "nan"),
        ("loss", 9, "1.0"),
    ]
    again, _ = PrintedJson.of(2).parse(b'{"loss": 3}\n', after, 5)
    assert again.points == [("loss@2", 4, 5, 3.0)]


def test_lines_of_evaluation_metrics_are_points() -> None:
    line = {
        "meta": {"training_id": "t", "time": 1700000000123, "rindex": 1},
        "grouplabel": "test",
        "etimes": {"iteration": {"type": "INT", "value": "3"}},
        "values": {"loss": {"type": "FLOAT", "value": "0.1"}, "note": {"type": "STRING", "value": "x"}},
    }
    plain = {"etimes": {}, "values": {"acc": {"value": 0.5}}}
    data = (json.dumps(line) + "\n" + json.dumps(plain) + "\n").encode()
    found, position = JsonLines().parse(data, Position(count=4), 9)
    assert found.points == [("test/loss", 3, 1700000000123, 0.1), ("acc", 5, 9, 0.5)]
    assert position.count == 6


def test_a_prefix_keeps_expressions_of_the_same_names_apart() -> None:
    points = []
    for prefix in ("train", "test", ""):
        source = RegexSource(pattern=rf"{prefix} step (?P<step>\d+) loss (?P<loss>\S+)", prefix=prefix)
        data = b"train step 3 loss 0.5\ntest step 3 loss 0.7\n"
        points += OutputPattern.of(source, 0).parse(data, Position(), 0)[0].points
    assert points[:2] == [("train/loss", 3, 0, 0.5), ("test/loss", 3, 0, 0.7)]
    assert {point[0] for point in points[2:]} == {"loss"}
