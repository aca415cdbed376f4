"""The advisor: evidence from the store, findings that are kept and told, acts where they are allowed."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from tests.jobs.reports.conftest import make_job

from weft.errors import UsageError
from weft.jobs.advice.advisor import AdvisedJob, Advisor
from weft.jobs.advice.evidence import gather_evidence
from weft.jobs.advice.model import Evidence, Finding, Thresholds
from weft.jobs.advice.rules import RULES, advise
from weft.jobs.advice.settings import RULE_NAMES, settings_of
from weft.jobs.lifecycle import StateError
from weft.jobs.metrics.batches import Report, encode_batch
from weft.jobs.spec.model import JobSpec
from weft.jobs.spec.read import SpecError, resolve
from weft.jobs.store import tables
from weft.jobs.store.database import Database
from weft.jobs.store.events import events_after, now_ms
from weft.jobs.store.metrics import add_batch

pytestmark = pytest.mark.xdist_group("databases")


@pytest.fixture
def advised_store(database: Database) -> Database:
    database.submit(make_job).result(60)
    return database


def keep(database: Database, name: str, values: Any, *, sequence: int = 0) -> None:
    at = now_ms()
    points: list[Report] = [(name, step, at, float(value)) for step, value in enumerate(values)]
    database.submit(lambda c: add_batch(c, 1, f"test {name}", sequence, encode_batch(points))).result(60)


class Acts:
    """Records what is asked for; refuses as a service would."""

    def __init__(self, refusal: Exception | None = None) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.refusal = refusal

    async def deliver(self, job_id: int, attempt: int, found: Finding, action: str) -> None:
        self.asked.append((f"script: {action}", {"rule": found.rule}))

    async def __call__(self, job_id: int, action: str, *, user_name: str, **arguments: Any) -> None:
        self.asked.append((action, arguments))
        if self.refusal is not None:
            raise self.refusal


def look(database: Database, acts: Acts, *times: JobSpec) -> list[tuple[Finding, ...]]:
    async def work() -> list[tuple[Finding, ...]]:
        advisor = Advisor(database, lambda: (), acts, acts.deliver)
        return [await advisor.look(AdvisedJob(1, 1, now_ms(), spec)) for spec in times]

    return asyncio.run(work())


def test_a_finding_is_kept_and_told_once(advised_store: Database) -> None:
    keep(advised_store, "train/loss", [1.0, 0.5, np.nan])
    spec, acts = JobSpec(run="x"), Acts()
    first, second = look(advised_store, acts, spec, spec)
    assert [one.rule for one in first] == ["not-a-number"] == [one.rule for one in second]
    (row,) = advised_store.ask(lambda c: c.execute(sa.select(tables.finding)).all())
    assert (row.rule, row.severity, row.action) == ("not-a-number", "problem", None)
    assert "train/loss is not a number since step 2" in row.text
    assert row.last_ms >= row.first_ms
    (event,) = advised_store.ask(lambda c: events_after(c, 0))
    assert (event.topic, event.kind, event.data["rule"]) == ("job:1", "finding", "not-a-number")
    assert acts.asked == []  # nobody allowed it


def test_the_advisor_acts_where_the_owner_allows_it(advised_store: Database) -> None:
    keep(advised_store, "loss", [1.0, np.inf])
    spec, acts = JobSpec(run="x", advice={"not-a-number": {"act": True}}), Acts()
    look(advised_store, acts, spec, spec)
    assert acts.asked == [("pause", {})]
    assert advised_store.ask(lambda c: c.scalar(sa.select(tables.finding.c.action))) == "pause"
    actions = [event.data["action"] for event in advised_store.ask(lambda c: events_after(c, 0))]
    assert actions == [None, "pause"]


def test_an_act_that_is_refused_is_told(advised_store: Database) -> None:
    keep(advised_store, "loss", [np.nan])
    spec = JobSpec(run="x", advice={"not-a-number": {"act": True}})
    look(advised_store, Acts(StateError("a job must have a checkpoint to pause, got none")), spec)
    events = advised_store.ask(lambda c: events_after(c, 0))
    assert [event.kind for event in events] == ["finding", "note"]
    assert "must have a checkpoint" in events[1].data["text"]
    assert advised_store.ask(lambda c: c.scalar(sa.select(tables.finding.c.action))) is None


def test_a_job_is_shrunk_to_half_of_its_workers(advised_store: Database) -> None:
    sized = sa.update(tables.job).values(workers=8, min_workers=2)
    advised_store.submit(lambda c: c.execute(sized)).result(60)
    keep(advised_store, "system/gpu", np.full(600, 0.05))
    spec, acts = JobSpec(run="x", advice={"idle-accelerator": {"act": True}}), Acts()
    look(advised_store, acts, spec)
    assert acts.asked == [("scale", {"workers": 4})]


def test_the_script_is_asked_where_the_owner_names_what_it_can_do(advised_store: Database) -> None:
    keep(advised_store, "grad_norm", [*[1.0] * 97, 1e6, 1e6, 1e6])
    spec, acts = JobSpec(run="x", advice={"exploding-gradients": {"act": True}}), Acts()
    look(advised_store, acts, spec, spec)
    assert acts.asked == [("script: clip", {"rule": "exploding-gradients"})]
    assert advised_store.ask(lambda c: c.scalar(sa.select(tables.finding.c.action))) == "clip"


def test_what_act_means() -> None:
    assert settings_of({"divergence": {"act": True}}).acting == {"divergence": "pause"}
    assert settings_of({"divergence": {"act": "halve-rate"}}).acting == {"divergence": "halve-rate"}
    assert settings_of({"stall": {"act": True}}).acting == {"stall": "retry"}
    assert settings_of({"stall": {"act": False}}).acting == {}


def test_a_rule_that_is_off_finds_nothing(advised_store: Database) -> None:
    keep(advised_store, "loss", [np.nan])
    assert look(advised_store, Acts(), JobSpec(run="x", advice={"not-a-number": {"off": True}})) == [()]


def test_evidence_comes_from_the_metrics_of_the_job(advised_store: Database) -> None:
    keep(advised_store, "loss", np.arange(3000.0))
    keep(advised_store, "val/loss", [2.0, 1.0])
    keep(advised_store, "system/cpu", [0.5, 0.7])
    keep(advised_store, "system/gpu_memory", [0.2, 0.9, 0.1])
    for name in ("step_s", "step_s@1", "step_s@x"):
        keep(advised_store, name, [0.1] * 10)
    evidence: Evidence = advised_store.ask(
        lambda c: gather_evidence(c, 1, since_ms=0, now_ms=now_ms() + 60_000)
    )
    assert evidence.loss == "loss"
    assert evidence.curves["loss"].values[[0, -1]].tolist() == [1000.0, 2999.0]  # the newest of them
    assert evidence.validation_loss == "val/loss"
    assert evidence.curves["val/loss"].values.tolist() == [2.0, 1.0]
    assert evidence.cpu_use.tolist() == [0.5, 0.7]
    assert evidence.device_peak == 0.9
    assert evidence.step_s.keys() == {0, 1}
    assert 59 <= evidence.idle_s <= 120
    fresh = advised_store.ask(lambda c: gather_evidence(c, 1, since_ms=now_ms(), now_ms=now_ms()))
    assert fresh.idle_s == 0  # this attempt has only begun


def test_a_job_that_began_again_is_judged_by_what_came_since(advised_store: Database) -> None:
    falling = [1 / (step + 1) for step in range(30)]
    keep(advised_store, "val_loss", falling)
    keep(advised_store, "val_loss", falling[:12], sequence=1)

    def evidence(restarted: bool) -> Evidence:
        return advised_store.ask(
            lambda c: gather_evidence(c, 1, since_ms=0, now_ms=now_ms(), restarted=restarted)
        )

    told = {restarted: evidence(restarted) for restarted in (False, True)}
    assert [len(told[which].curves["val_loss"]) for which in (False, True)] == [42, 12]
    rules = {which: {one.rule for one in advise(told[which], Thresholds())} for which in told}
    assert "plateau" in rules[False]
    assert "plateau" not in rules[True]


def test_a_job_that_reports_nothing_is_not_called_stalled(advised_store: Database) -> None:
    keep(advised_store, "system/cpu", [0.5])
    evidence = advised_store.ask(lambda c: gather_evidence(c, 1, since_ms=0, now_ms=now_ms() + 10**9))
    assert evidence.idle_s == 0


# -- settings -------------------------------------------------------------------------------------


def test_thresholds_are_read_by_their_names() -> None:
    settings = settings_of(
        {"overfitting": {"gap": 0.2, "reports": 5}, "slow-loader": {"share": 0.5}, "stall": {"s": 60}}
    )
    assert settings.thresholds.overfitting_gap == 0.2
    assert settings.thresholds.overfitting_reports == 5
    assert isinstance(settings.thresholds.overfitting_reports, int)
    assert settings.thresholds.loader_share == 0.5
    assert settings.thresholds.stall_s == 60
    assert settings.thresholds.plateau_gain == 0.01
    assert settings_of({}).acting == {}


def test_every_rule_is_known_by_the_name_it_gives_its_findings() -> None:
    assert len(RULE_NAMES) == len(RULES) == len(set(RULE_NAMES))
    for name in ("not-a-number", "tight-memory", "exposed-communication", "idle-accelerator"):
        assert name in RULE_NAMES


@pytest.mark.parametrize(
    ("advice", "why"),
    [
        (
            {"overfiting": {"gap": 0.2}},
            r"advice must name rules, got 'overfiting'; did you mean overfitting\?",
        ),
        ({"overfitting": {"gapp": 0.2}}, r"must have gap, reports, act, off, got 'gapp'; did you mean gap\?"),
        ({"plateau": {"act": "clip"}}, "act must be true or halve-rate or stop, got 'clip'"),
        ({"spare-memory": {"act": True}}, "must be left out, as the rule only tells"),
        ({"plateau": {"gain": "small"}}, "must be a number, got 'small'"),
        ({"plateau": {"overfitting_gap": 0.2}}, r"advice\.plateau must have gain, reports, act, off"),
    ],
)
def test_what_there_is_not_is_refused(advice: dict[str, dict[str, float | bool | str]], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        settings_of(advice)


def test_a_specification_with_a_wrong_rule_is_refused_when_it_is_submitted() -> None:
    with pytest.raises(SpecError, match="advice must name rules"):
        resolve(JobSpec(run="train.py", advice={"mood": {"act": True}}))
