"""What a timeline makes of the events agents have left."""

from __future__ import annotations

import json
import re
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.elastic.made_up import AGAIN, FOUR, START, THREE, TWO, Line, event, events, story, write

from weft.cli import group
from weft.elastic.history.timeline import (
    MembershipChange,
    changes,
    complete,
    parse_event,
    read_events,
    standstills,
)
from weft.elastic.history.timeline_svg import phases, render_svg, spans_of
from weft.elastic.history.timeline_table import format_clock, summarise
from weft.errors import UsageError

ROOT = Path(__file__).resolve().parents[3]


def told(lines: Iterable[Line]) -> tuple[MembershipChange, ...]:
    return changes(parse_event(line, "here") for line in lines)


def agreed(t: float, view: int, members: tuple[str, ...], cause: str = "") -> Line:
    return event(t, "a", "agreed", view, cause=cause, members=members)


def detected(t: float, view: int, kind: str, *who: str, cause: str = "") -> Line:
    return event(t, "a", "detected", view, kind=kind, who=list(who), cause=cause)


def test_a_story_has_one_row_per_view(tmp_path: Path) -> None:
    start, death, join, host = changes(read_events(story(tmp_path)))
    assert (start.kind, start.before, start.after) == ("start", (), FOUR)
    assert start.agreed_s == pytest.approx(0.0165)  # the earliest of two
    assert start.grouped_s == pytest.approx(1.15)  # the latest of four
    assert (death.kind, death.who, death.cause) == ("death", ("a/1.0",), "killed by SIGKILL")
    # Another host noticed first, by a sum that broke.
    assert death.detected_t == pytest.approx(START + 2.487, abs=1e-4)
    assert (death.left, death.joined, death.step) == (("a/1.0",), (), 12)
    assert death.total_s == pytest.approx(0.323)
    assert death.healed_s is None
    assert (join.kind, join.who, join.healed_bytes) == ("join", ("a/1.1",), 44_700_000)
    assert join.healed_s == pytest.approx(0.32)
    # The others went on until the new view was agreed on.
    assert join.total_s == pytest.approx(0.40)
    assert join.pause_s == pytest.approx(0.31)
    assert (host.kind, host.who, host.left) == ("host", ("b",), ("b/0.0", "b/1.0"))


def test_offsets_are_never_negative() -> None:
    (change,) = told(
        [
            detected(5.0, 0, "start"),
            agreed(4.99, 1, TWO),
            event(4.98, "b", "grouped", 1, worker="b/0.0"),
            event(4.97, "b", "stepped", 1, worker="b/0.0", step=0),
        ]
    )
    assert (change.agreed_s, change.grouped_s, change.stepped_s, change.pause_s) == (0.0, 0.0, 0.0, 0.0)


def test_a_change_nobody_noted_a_reason_for_begins_when_it_is_agreed() -> None:
    (change,) = told([agreed(1.0, 1, TWO, cause="an operator's wish")])
    assert (change.kind, change.cause, change.agreed_s) == ("unknown", "an operator's wish", 0.0)
    assert change.detected_t == START + 1.0


def test_a_slow_member_that_was_only_reported_is_not_why_another_died() -> None:
    *_, change = told(
        [
            agreed(0.0, 1, FOUR),
            detected(1.0, 1, "slow", "a/0.0", cause="1.6x slower"),
            detected(9.0, 1, "death", "a/1.0", cause="killed by SIGKILL"),
            agreed(9.1, 2, THREE, cause="a/1.0 was killed by SIGKILL"),
        ]
    )
    assert (change.kind, change.who, change.detected_t) == ("death", ("a/1.0",), START + 9.0)


def test_a_slow_member_may_be_why_shares_change() -> None:
    *_, change = told(
        [
            agreed(0.0, 1, FOUR),
            detected(1.0, 1, "slow", "a/0.0", cause="1.6x slower"),
            agreed(1.1, 2, FOUR, cause="1.6x slower"),
        ]
    )
    assert (change.kind, change.who, change.joined, change.left) == ("slow", ("a/0.0",), (), ())


def test_a_newcomer_may_wait_while_others_go_first() -> None:
    _, death, join = told(
        [
            agreed(0.0, 1, FOUR),
            detected(1.0, 1, "join", "c/0.0"),
            detected(2.0, 1, "death", "a/1.0"),
            agreed(2.1, 2, THREE),
            agreed(4.0, 3, (*THREE, "c/0.0")),
        ]
    )
    assert (death.kind, death.detected_t) == ("death", START + 2.0)
    assert (join.kind, join.who, join.detected_t) == ("join", ("c/0.0",), START + 1.0)


def test_two_deaths_in_one_view_belong_to_the_changes_that_answer_them() -> None:
    _, first, second = told(
        [
            agreed(0.0, 1, FOUR),
            detected(2.0, 1, "death", "a/1.0", cause="killed by SIGKILL"),
            detected(2.05, 1, "death", "b/1.0", cause="killed by SIGKILL"),
            agreed(2.1, 2, THREE, cause="killed by SIGKILL"),
            agreed(2.2, 3, ("a/0.0", "b/0.0"), cause="killed by SIGKILL"),
        ]
    )
    assert (first.who, first.detected_t) == (("a/1.0",), START + 2.0)
    assert (second.who, second.detected_t) == (("b/1.0",), START + 2.05)


def test_two_deaths_answered_at_once_are_one_change() -> None:
    *_, change = told(
        [
            agreed(0.0, 1, FOUR),
            detected(2.0, 1, "death", "b/1.0"),
            detected(2.05, 1, "death", "a/1.0"),
            agreed(2.1, 2, ("a/0.0", "b/0.0")),
        ]
    )
    assert change.who == ("b/1.0", "a/1.0")
    assert change.agreed_s == pytest.approx(0.1)


def test_a_view_that_gave_way_is_part_of_one_standstill() -> None:
    lines = [
        agreed(0.0, 1, FOUR),
        event(0.1, "a", "stepped", 1, step=0),
        detected(2.0, 1, "death", "a/1.0"),
        agreed(2.1, 2, THREE),
        detected(2.2, 2, "death", "b/1.0"),
        agreed(2.3, 3, ("a/0.0", "b/0.0")),
        event(2.5, "a", "stepped", 3, step=7),
    ]
    found = told(lines)
    assert found[1].total_s is None
    ((since, until),) = standstills(found)
    assert since == START + 2.0
    assert until == pytest.approx(START + 2.5, abs=1e-4)
    assert complete(told(lines[:4])) == found[:1]
    assert complete(told(lines[:6])) == found[:2]
    assert complete(found) == found


def test_events_of_other_versions_are_kept(tmp_path: Path) -> None:
    (moon,) = (e for e in read_events(story(tmp_path)) if e.event == "moon")
    assert moon.to_json() == event(4.3, "a", "moon", 3, phase="full")


def test_lines_that_are_no_events_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "a.events.jsonl", [event(0, "a", "finished", 1), {"t": "noon", "event": "agreed"}])
    with pytest.raises(UsageError, match=r"a\.events\.jsonl:2 must be an event with its time `t`"):
        read_events(tmp_path)
    with pytest.raises(UsageError, match=r"must hold elastic/HOST\.events\.jsonl, got none"):
        read_events(tmp_path / "nothing")


def test_a_torn_line_is_left_out(tmp_path: Path) -> None:
    story(tmp_path)
    assert len(read_events(tmp_path)) == len(events())


def test_the_summary_counts_what_stood_still(tmp_path: Path) -> None:
    seen = read_events(story(tmp_path))
    summary = summarise(changes(seen), seen)
    assert (summary.changes, summary.workers, summary.saved, summary.finished) == (3, 2, 1, True)
    assert summary.still_s == pytest.approx(0.323 + 0.31 + 0.33)
    assert summary.longest_s == pytest.approx(0.33)
    cut = seen[:-3]  # no step in the last view
    assert "no step since the last change" in str(summarise(changes(cut), cut))
    assert str(summarise((), ())).startswith("no change in 0:00:00.0")


def test_times_read_well() -> None:
    assert [format_clock(s) for s in (-0.001, 0.06, 65.25, 3599.97)] == [
        "0:00:00.0",
        "0:00:00.1",
        "0:01:05.2",
        "1:00:00.0",
    ]


def test_a_worker_has_its_place_from_its_first_view_to_its_last(tmp_path: Path) -> None:
    found = changes(read_events(story(tmp_path)))
    ((since, until),) = spans_of("a/1.0", found, START + 9)
    assert since == pytest.approx(START + 0.0165, abs=1e-4)
    assert until == pytest.approx(START + 2.487, abs=1e-4)
    ((since, until),) = spans_of("a/1.1", found, START + 9)
    assert since == pytest.approx(START + 3.61, abs=1e-4)
    assert until == START + 9


def test_phases_fill_the_time_to_the_first_step(tmp_path: Path) -> None:
    for change in changes(read_events(story(tmp_path))):
        parts = list(phases(change))
        assert parts[0][1] == 0.0
        assert parts[-1][2] == change.total_s
        assert all(one[2] == other[1] for one, other in pairwise(parts))


def test_the_picture_shows_every_worker_and_change(tmp_path: Path) -> None:
    seen = read_events(story(tmp_path))
    picture = render_svg(changes(seen), seen, title="<digits> & co")
    root = ET.fromstring(picture)
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == "<digits> & co"
    assert {*FOUR, *AGAIN} <= set(texts)
    assert {"2 death", "3 join", "4 host", "323 ms", "standing still", "state healed"} <= set(texts)
    lanes = [text for text in texts if text in (*FOUR, "a/1.1")]
    assert lanes == ["a/0.0", "a/1.0", "a/1.1", "b/0.0", "b/1.0"]


def test_a_picture_of_nothing_can_be_drawn() -> None:
    ET.fromstring(render_svg((), (), title="nothing"))


def test_crowded_names_make_room() -> None:
    lines = [agreed(n / 100, n, FOUR, cause="again") for n in range(1, 300)]
    seen = [parse_event(line, "here") for line in lines]
    texts = [e.text for e in ET.fromstring(render_svg(changes(seen), seen, title="")).iter() if e.text]
    assert 10 < sum(text.endswith(" unknown") for text in texts) - 299 < 100


def weft(*args: str) -> Result:
    return CliRunner().invoke(group, ["timeline", *args])


def test_the_command_prints_a_table(tmp_path: Path) -> None:
    result = weft(str(story(tmp_path)))
    assert result.exit_code == 0
    rows = [re.split(r"\s{2,}", line.strip()) for line in result.stdout.splitlines()]
    assert rows[2] == [
        "2",
        "0:00:02.5",
        "death a/1.0: killed by SIGKILL",
        "4 -> 3",
        "9",
        "193",
        "-",
        "323",
        "323",
    ]
    assert rows[3][-3:] == ["320 (44.7 MB)", "400", "310"]
    assert rows[-1][0].endswith("1 checkpoint; finished with 2 workers")


def test_the_command_gives_data_and_a_picture(tmp_path: Path) -> None:
    story(tmp_path)
    result = weft(str(tmp_path), "--json", "--plot", str(tmp_path / "run.svg"))
    data = json.loads(result.stdout)
    assert [change["view"] for change in data["changes"]] == [1, 2, 3, 4]
    assert data["changes"][1]["total_s"] == pytest.approx(0.323)
    assert data["summary"]["changes"] == 3
    assert len(data["events"]) == len(events())
    ET.parse(tmp_path / "run.svg")
    refused = weft(str(tmp_path), "--plot", str(tmp_path / "no" / "run.svg"))
    assert "run.svg (its folder does not exist)" in str(refused.exception)


def test_following_a_run_that_is_over_prints_all(tmp_path: Path) -> None:
    lines = weft(str(story(tmp_path)), "--follow").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["view", "1", "2", "3", "4", "3"]


def test_following_prints_rows_when_they_are_complete(tmp_path: Path) -> None:
    lines = [line for line in events() if line["host"] == "a"]

    def agent() -> None:
        for count in (3, 9, 14, len(lines)):
            time.sleep(0.25)
            write(tmp_path, "a.events.jsonl", lines[:count], torn='{"t": 173')

    writer = threading.Thread(target=agent)
    writer.start()
    shown = weft(str(tmp_path), "--follow", "--json").stdout.splitlines()
    writer.join()
    assert [json.loads(line)["view"] for line in shown] == [1, 2, 3, 4]
    assert json.loads(shown[0])["stepped_s"] is not None


def test_following_ends_with_a_run_that_was_killed(tmp_path: Path) -> None:
    write(tmp_path, "a.events.jsonl", [line for line in events() if line["host"] == "a"][:-2])
    (tmp_path / "outcome.json").write_text("{}")
    lines = weft(str(tmp_path), "--follow").stdout.splitlines()
    assert [line.split()[0] for line in lines[:5]] == ["view", "1", "2", "3", "4"]
    assert "no end noted" in lines[-1]


def test_the_page_shows_what_the_commands_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    story(tmp_path / "weft-runs" / "20261115-101500-digits")
    page = (ROOT / "docs" / "reference" / "ledger-and-timeline.md").read_text()
    blocks = re.findall(r"```console\n\$ weft ([^\n]*)\n(.*?)```", page, re.DOTALL)
    assert len(blocks) >= 3
    for typed, shown in blocks:
        assert CliRunner().invoke(group, typed.split()).stdout == shown, typed


@pytest.mark.parametrize(
    "change", [{"members": [1]}, {"who": "a/0"}, {"step": []}, {"t": 10**400}, {"view": "1"}]
)
def test_an_event_of_wrong_types_is_refused(change: dict[str, Any]) -> None:
    event = {"t": 1.0, "host": "a", "event": "agreed", "view": 1} | change
    with pytest.raises(UsageError, match="must be an event with its time"):
        parse_event(event, "a.events.jsonl:3")
