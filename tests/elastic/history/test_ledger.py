"""Every way a ledger can be wrong is seen and said, and what is right is called right."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.elastic.made_up import FOUR, ORDER, Line, header, record, story, write

from weft.cli import group
from weft.elastic.history.ledger import LedgerReport, audit, check
from weft.elastic.history.ledger_table import verdict
from weft.elastic.history.lines import mend, read_lines
from weft.elastic.history.records import StepRecord, history, read_ledger
from weft.elastic.history.samples import position_of, tile, uses
from weft.errors import UsageError
from weft.launch.control.rundir import find_run

AB = ("a/0.0", "b/0.0")


def ledger_of(run_dir: Path, records: list[Line], **heads: Any) -> LedgerReport:
    write(run_dir, "a.ledger.jsonl", [header("a", **heads), *records])
    return check(run_dir)


def words(report: LedgerReport) -> str:
    assert not report.exact
    return verdict(report)


def test_a_whole_run_is_exact(tmp_path: Path) -> None:
    report = ledger_of(tmp_path, [record(step, 1, FOUR) for step in range(46)])
    assert report.exact
    assert [(row.steps, row.samples, row.missing, row.twice, row.finished) for row in report.epochs] == [
        (23, 1437, 0, 0, True),
        (23, 1437, 0, 0, True),
    ]
    assert verdict(report) == "exact: every sample consumed once, steps 0 to 45"
    assert sum(given.samples for given in report.contributions.values()) == 2 * 1437


def test_a_story_with_faults_is_exact_and_tells_them(tmp_path: Path) -> None:
    report = check(story(tmp_path))
    assert report.exact
    assert report.redone == (30,)
    assert "epoch 1 is not finished (1088 of 1437 samples)" in verdict(report)
    assert "1 step redone" in verdict(report)
    assert report.epochs[0].contributions["a/1.0"].steps == 12


def test_hosts_may_each_have_a_part(tmp_path: Path) -> None:
    write(tmp_path, "a.ledger.jsonl", [header("a"), *(record(step, 1, AB) for step in range(15))])
    later = [record(step, 2, AB) for step in range(10, 23)]
    write(tmp_path, "b.ledger.jsonl", [header("b"), *later[:4], header("b"), *later[4:]])
    report = check(tmp_path)
    assert report.exact
    assert report.redone == (10, 11, 12, 13, 14)


def test_a_ledger_may_begin_late(tmp_path: Path) -> None:
    report = ledger_of(tmp_path, [record(step, 7, ("a/0.0",)) for step in range(40, 60)])
    assert report.exact
    assert "the ledger begins at step 40" in verdict(report)


def test_an_empty_ledger_is_no_proof_and_no_fault(tmp_path: Path) -> None:
    assert verdict(ledger_of(tmp_path, [])) == "nothing to judge: no step has been committed"


def test_only_the_last_line_may_be_torn(tmp_path: Path) -> None:
    lines = [header("a"), *(record(step, 1, AB) for step in range(3))]
    path = write(tmp_path, "a.ledger.jsonl", lines, torn='{"step": 3, "epo')
    assert check(tmp_path).epochs[0].steps == 3
    with path.open("a") as file:
        file.write("\n" + json.dumps(record(3, 1, AB)) + "\n")
    with pytest.raises(
        UsageError, match=r"a\.ledger\.jsonl:5 must be a JSON object, got .*step.* only the last"
    ):
        check(tmp_path)


def test_a_torn_letter_is_a_torn_line(tmp_path: Path) -> None:
    path = write(tmp_path, "a.ledger.jsonl", [header("a")])
    path.write_bytes(path.read_bytes() + '{"parts": {"ä'.encode()[:-1])
    assert len(read_lines(path)) == 1


def test_mending_lets_a_new_life_go_on(tmp_path: Path) -> None:
    path = write(tmp_path, "a.ledger.jsonl", [header("a"), record(0, 1, AB)], torn='{"step": 1')
    for _ in range(2):
        mend(path)
        with path.open("a") as file:
            file.write(json.dumps(header("a")) + "\n")
    mend(tmp_path / "not-there")
    assert [where for where, _ in read_lines(path)] == [f"a.ledger.jsonl:{n}" for n in (1, 2, 3, 4)]


def test_a_lost_step_is_missed(tmp_path: Path) -> None:
    report = ledger_of(tmp_path, [record(step, 1, AB) for step in range(46) if step not in (12, 13, 30)])
    text = words(report)
    assert "192 samples missing, 0 twice" in text
    assert "steps 12-13 must be recorded, got no record" in text
    assert "step 30 must be recorded" in text
    samples = ORDER.samples(ORDER.step(12))
    assert f"128 samples missing at positions 768-895: {samples[0]}, {samples[1]}," in text
    assert [(row.missing, row.ok) for row in report.epochs] == [(128, False), (64, False)]
    assert "1 host took part whose files are not here: b" in text


def test_a_lost_micro_batch_is_missed(tmp_path: Path) -> None:
    lines = [record(step, 1, AB) for step in range(23)]
    lines[4]["parts"]["b/0.0"].remove(7)
    text = words(ledger_of(tmp_path, lines))
    assert "step 4 must have micro-batch 7 computed once, got it by nobody (a.ledger.jsonl:6)" in text
    assert "8 samples missing at positions 312-319" in text


def test_a_doubled_micro_batch_is_seen(tmp_path: Path) -> None:
    lines = [record(step, 1, AB) for step in range(23)]
    lines[22]["parts"]["a/0.0"].append(3)  # the last, of 29 - 24 samples
    text = words(ledger_of(tmp_path, lines))
    assert "step 22 must have micro-batch 3 computed once, got 2 times by a/0.0, b/0.0" in text
    assert "5 samples twice at positions 1432-1436" in text


def test_a_micro_batch_that_does_not_exist_is_seen(tmp_path: Path) -> None:
    lines = [record(0, 1, AB)]
    lines[0]["parts"]["a/0.0"].append(8)
    assert "step 0 must have micro-batches 0 to 7, got 8 by a/0.0" in words(ledger_of(tmp_path, lines))


def test_steps_that_overlap_are_seen(tmp_path: Path) -> None:
    lines = [record(step, 1, AB) for step in range(23)]
    lines[5] |= {"start": 256, "stop": 320, "digest": ORDER.digest(ORDER.step(4))}
    text = words(ledger_of(tmp_path, lines))
    assert "64 samples missing, 64 twice" in text
    assert "missing at positions 320-383" in text
    assert "twice at positions 256-319" in text


@pytest.mark.parametrize(("start", "stop"), [(3, 67), (0, 32), (0, 10**15), (64, 0), (1437, 1440)])
def test_a_step_that_is_no_batch_is_seen(tmp_path: Path, start: int, stop: int) -> None:
    text = words(ledger_of(tmp_path, [record(0, 1, AB, start=start, stop=stop)]))
    assert "step 0 must take one batch of 64 positions of 1437, got " in text


def test_a_wrong_digest_is_seen(tmp_path: Path) -> None:
    lines = [record(step, 1, AB) for step in range(23)]
    lines[9]["digest"] = "00000000"
    right = ORDER.digest(ORDER.step(9))
    text = words(ledger_of(tmp_path, lines))
    assert (
        f"step 9 must have digest {right} by the order of its epoch, got 00000000 (a.ledger.jsonl:11)" in text
    )


def test_another_seed_is_seen_by_the_digests(tmp_path: Path) -> None:
    text = words(ledger_of(tmp_path, [record(step, 1, AB) for step in range(23)], seed=1))
    assert "23 problems" in text
    assert "and 13 more; --json has all" in text


def test_a_step_redone_must_have_the_same_samples(tmp_path: Path) -> None:
    other = ORDER.step(6)
    again = record(5, 2, AB, start=other.start, stop=other.stop, digest=ORDER.digest(other))
    lines = [*(record(step, 1, AB) for step in range(6)), again]
    text = words(ledger_of(tmp_path, lines))
    assert "step 5 must have the same samples in every record, got epoch 0 positions 320-383 digest" in text
    assert "a.ledger.jsonl:8" in text


def test_one_view_divides_a_step_in_one_way(tmp_path: Path) -> None:
    write(tmp_path, "a.ledger.jsonl", [header("a"), record(0, 1, AB)])
    write(tmp_path, "b.ledger.jsonl", [header("b"), record(0, 1, ("b/0.0",))])
    text = words(check(tmp_path))
    assert "step 0 of view 1 must have one division of the work, got two, in a.ledger.jsonl:2 and b.l" in text


def test_an_epoch_that_was_left_early_misses_its_end(tmp_path: Path) -> None:
    lines = [record(step, 1, AB) for step in range(10)]
    lines += [record(step, 1, AB) | {"step": step - 13} for step in range(23, 26)]
    report = ledger_of(tmp_path, lines)
    assert "797 samples missing at positions 640-1436" in words(report)
    assert [row.ok for row in report.epochs] == [False, True]


def test_an_epoch_that_is_not_there_is_missed(tmp_path: Path) -> None:
    lines = [record(step, 1, AB) for step in (*range(23), *range(46, 69))]
    text = words(ledger_of(tmp_path, lines))
    assert "steps 23-45 must be recorded" in text
    assert "step 46 must be of epoch 0 or the next, got 2" in text


def test_steps_that_were_undone_do_not_count(tmp_path: Path) -> None:
    """After a full restart from step 8, so far to step 9; 10 and 11 were committed in a life that was given up."""
    before, after = (
        (record(step, 3, AB) for step in range(12)),
        (record(step, 5, AB) for step in range(8, 10)),
    )
    report = ledger_of(tmp_path, [*before, *after])
    assert report.exact
    assert (report.redone, report.undone, report.epochs[0].steps) == ((8, 9), (10, 11), 10)
    assert "undone and not redone yet: 10-11" in verdict(report)


def test_history_keeps_the_highest_view() -> None:
    base: dict[str, Any] = {"epoch": 0, "start": 0, "stop": 64, "parts": {}, "digest": "", "t": 0.0}
    records = [StepRecord(step=0, view=view, **base) for view in (2, 5, 3)]
    assert [kept.view for kept in history(records).records] == [5]


def test_what_is_dropped_is_told(tmp_path: Path) -> None:
    report = ledger_of(tmp_path, [record(step, 1, AB) for step in range(22)], drop_last=True)
    assert report.exact
    assert report.epochs[0].finished
    assert "drop_last leaves out 29 samples of each epoch" in verdict(report)


def stream(batches: list[tuple[int, int, int]]) -> list[Line]:
    return [
        record(step, 1, ("a/0.0",), epoch=epoch, start=start, stop=stop, digest="12345678")
        | {"parts": {"a/0.0": list(range(-(-(stop - start) // 8)))}}
        for step, (epoch, start, stop) in enumerate(batches)
    ]


def test_a_stream_is_judged_by_its_positions(tmp_path: Path) -> None:
    whole = [(0, 0, 64), (0, 64, 100), (1, 0, 64), (1, 64, 128)]
    report = ledger_of(tmp_path, stream(whole), length=None)
    assert report.exact
    assert [(row.samples, row.finished) for row in report.epochs] == [(100, True), (128, False)]
    holed = ledger_of(tmp_path, stream([(0, 0, 64), (0, 72, 100)]), length=None)
    assert "8 samples missing at positions 64-71: 64, 65" in words(holed)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"batch": 32}, "batch 64 in a.ledger.jsonl:1 and 32 in b.ledger.jsonl:1"),
        ({"length": 1438}, "length 1437 in a.ledger.jsonl:1 and 1438 in b.ledger.jsonl:1"),
        ({"run": "other"}, "run digits in a.ledger.jsonl:1 and other in b.ledger.jsonl:1"),
        ({"drop_last": True}, "drop_last False in a.ledger.jsonl:1 and True in b.ledger.jsonl:1"),
    ],
)
def test_headers_must_agree(tmp_path: Path, changed: dict[str, Any], told: str) -> None:
    write(tmp_path, "a.ledger.jsonl", [header("a")])
    write(tmp_path, "b.ledger.jsonl", [header("b", **changed)])
    with pytest.raises(UsageError, match=told):
        check(tmp_path)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([record(0, 1, AB)], "a.ledger.jsonl:1 must follow a header"),
        ([{"header": {"run": "x"}}], "must be a header with all its fields, got none named 'length'"),
        ([header("a", micro=0)], "must have batch and micro of at least 1"),
        (
            [header("a"), {"step": 1}],
            "a.ledger.jsonl:2 must be a step with all its fields, got none named 'epoch'",
        ),
        ([header("a"), record(0, 1, AB, parts=[])], "must be a step with all its fields"),
        ([], "must hold a ledger with a header"),
    ],
)
def test_lines_of_another_kind_are_refused(tmp_path: Path, lines: list[Line], told: str) -> None:
    write(tmp_path, "a.ledger.jsonl", lines)
    with pytest.raises(UsageError, match=told):
        read_ledger(tmp_path)


def test_a_run_without_a_ledger_says_so(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"must hold elastic/HOST\.ledger\.jsonl, got none; was it started with"
    ):
        check(tmp_path)


def test_spans_tile() -> None:
    assert tile([(0, 4), (4, 8)], 0, 8) == ([], [])
    assert tile([(1, 4), (3, 6), (3, 4)], 0, 8) == ([(0, 1), (6, 8)], [(3, 4)])
    assert tile([], 0, 3) == ([(0, 3)], [])
    assert tile([(0, 2)], 0, 0) == ([], [])


def test_a_sample_can_be_followed(tmp_path: Path) -> None:
    ledger = read_ledger(story(tmp_path))
    sample = int(ORDER.samples(ORDER.step(30))[9])
    first, given_up, again = uses(ledger, sample)
    assert first.epoch == 0
    assert position_of(sample, 0, ORDER) == first.position
    assert (given_up.step, given_up.view, given_up.worker, given_up.counts) == (30, 3, "a/1.1", False)
    assert (again.step, again.view, again.worker, again.counts) == (30, 4, "a/1.1", True)
    assert uses(ledger, sample, epoch=1) == (given_up, again)
    every = [position_of(number, 3, ORDER) for number in range(0, 1437, 97)]
    assert len(set(every)) == len(every)


def test_each_sample_has_one_use_that_counts(tmp_path: Path) -> None:
    ledger = read_ledger(story(tmp_path))
    for sample in range(0, 1437, 101):
        assert sum(use.counts for use in uses(ledger, sample, epoch=0)) == 1


def weft(*args: str) -> Result:
    return CliRunner().invoke(group, ["ledger", *args])


def test_the_command_prints_tables_and_a_verdict(tmp_path: Path) -> None:
    result = weft(str(story(tmp_path)))
    assert result.exit_code == 0
    assert (
        "    0     23     1437        0      0  yes\n    1     17     1088        0      0  so far\n"
        in result.stdout
    )
    assert result.stdout.splitlines()[-1].startswith("exact: ")


def test_the_command_fails_when_samples_are_lost(tmp_path: Path) -> None:
    write(
        tmp_path, "a.ledger.jsonl", [header("a"), *(record(step, 1, AB) for step in range(46) if step != 30)]
    )
    result = weft(str(tmp_path))
    assert result.exit_code == 1
    assert "not exact: 64 samples missing" in result.stdout
    assert weft(str(tmp_path), "--epoch", "0").exit_code == 0
    assert weft(str(tmp_path), "--epoch", "1").exit_code == 1
    refused = weft(str(tmp_path), "--epoch", "2")
    assert "--epoch must be one that has steps, got 2; there are 0 to 1" in str(refused.exception)


def test_the_command_gives_data(tmp_path: Path) -> None:
    data = json.loads(weft(str(story(tmp_path)), "--json").stdout)
    assert data["exact"] is True
    assert data["redone"] == [30]
    assert data["epochs"][0]["samples"] == 1437
    assert data["header"]["batch"] == 64
    assert data["contributions"]["a/1.0"] == {"steps": 12, "micro_batches": 24, "samples": 192}


def test_the_command_follows_a_sample(tmp_path: Path) -> None:
    story(tmp_path)
    sample = int(ORDER.samples(ORDER.step(30))[9])
    result = weft(str(tmp_path), "--sample", str(sample), "--epoch", "1")
    assert "   30     3  a/1.1             1       457  no, redone\n" in result.stdout
    data = json.loads(weft(str(tmp_path), "--sample", str(sample), "--json").stdout)
    assert [use["view"] for use in data["uses"]][-2:] == [3, 4]
    late = int(ORDER.samples(ORDER.step(45))[0])
    missed = weft(str(tmp_path), "--sample", str(late), "--epoch", "1")
    assert missed.exit_code == 1
    assert f"sample {late} was not consumed in epoch 1" in missed.stdout
    assert "must be from 0 to 1436, got 1437" in str(weft(str(tmp_path), "--sample", "1437").exception)


def test_runs_are_found_by_path_name_and_as_the_latest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"or `latest`, got 'latest'; .*weft-runs holds none"):
        find_run("latest")
    names = [f"20261115-10000{n}-digits" for n in range(6)] + ["mine"]
    for age, name in enumerate(names):
        plan = tmp_path / "weft-runs" / name / "plan.json"
        plan.parent.mkdir(parents=True)
        plan.write_text("{}")
        os.utime(plan, (1000 + age, 1000 + age))
    (tmp_path / "weft-runs" / ".gitignore").write_text("*\n")
    assert find_run("latest") == Path("weft-runs/mine")
    assert find_run(names[2]) == Path("weft-runs", names[2])
    assert find_run(str(tmp_path)) == tmp_path
    with pytest.raises(
        UsageError, match=r"got 'other'; .* holds mine, 20261115-100005-digits, .* and 2 older"
    ):
        find_run("other")


def test_the_audit_is_pure(tmp_path: Path) -> None:
    ledger = read_ledger(story(tmp_path))
    assert audit(ledger) == audit(ledger)
