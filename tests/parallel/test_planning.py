"""The choice of a way, the plan file, and scaling."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.parallel.test_prediction import GIGABIT, MB, cluster, step

from weft.errors import UsageError
from weft.parallel.planning import plan_file
from weft.parallel.planning.candidates import PLAIN_DDP, candidates
from weft.parallel.planning.choice import choose
from weft.parallel.planning.plan_file import make_plan
from weft.parallel.planning.table import choice_data, render_choice
from weft.parallel.prediction.way import Way
from weft.parallel.simulated.constants import parse_hosts_by_workers, parse_rate, simulated_cluster
from weft.parallel.simulated.models import MODELS, transformer_step
from weft.parallel.simulated.picture import render_svg
from weft.parallel.simulated.scaling import scaling, takeovers


def test_plain_ddp_is_kept_where_nothing_is_better() -> None:
    quick = choose(step(), cluster(card_bps=1000 * GIGABIT))
    assert quick.best.way == PLAIN_DDP
    assert choose(step(), cluster(1, 2)).best.way == PLAIN_DDP


def test_a_slow_network_takes_lighter_gradients_and_fewer_reductions() -> None:
    chosen = choose(step(passes=8), cluster())
    assert chosen.best.computing_share >= 0.9
    assert chosen.best.changes in ("nothing", "rounding")
    fsdp = chosen.of(Way(kind="fsdp", sync_every_pass=True))
    assert fsdp is not None
    assert fsdp.step_s > 1.5 * chosen.best.step_s
    assert "FSDP2 over all workers takes" in chosen.reason


def test_what_changes_more_is_chosen_only_if_allowed() -> None:
    slow = cluster(card_bps=GIGABIT / 100)
    assert choose(step(), slow).best.changes == "rounding"
    assert choose(step(), slow, allow="nothing").best.changes == "nothing"
    assert choose(step(), slow, allow="more").best.changes == "more"
    shown = render_choice(choose(step(), slow), step(), slow)
    plain, apart = shown.split("apart, since they change what is computed:")
    assert "int8" not in plain
    assert "averaged every" in apart


def test_what_does_not_fit_is_not_chosen() -> None:
    owned = step(optimizer_bytes=200 * MB)
    tight = choose(owned, cluster(device_bytes=300 * MB))
    assert tight.best.way.shards or tight.best.way.kind == "zero1"
    assert "plain DDP does not fit" in tight.reason
    with pytest.raises(UsageError, match="must fit into"):
        choose(owned, cluster(device_bytes=10 * MB))


def test_large_model_support_wins_over_sharding_where_links_are_slow_and_copies_quick() -> None:
    owned = step(layers=12, layer_bytes=4 * MB, passes=2, optimizer_bytes=400 * MB)
    slow = cluster(card_bps=GIGABIT / 10, workers=1, device_bytes=420 * MB, copy_bps=10_000 * MB)
    assert choose(owned, slow).best.way.kind == "lms"
    sharded = choose(owned, replace(slow, copy_bps=0.0))
    assert sharded.best.step_s > choose(owned, slow).best.step_s


def test_racks_are_used_where_uplinks_are_slow() -> None:
    racked = cluster(8, 1, racks=2, uplink_bps=GIGABIT / 4)
    assert choose(step(), racked).best.way.racks


def test_kinds_may_be_limited() -> None:
    assert choose(step(), cluster(), kinds=("fsdp",)).best.way.kind == "fsdp"
    with pytest.raises(UsageError, match="kinds must be among"):
        choose(step(), cluster(), kinds=("tensor",))


def test_candidates_are_unique() -> None:
    ways = candidates(step(passes=4), cluster(racks=2))
    assert len(ways) == len(set(ways))
    assert {way.kind for way in ways} == {"ddp", "zero1", "zero2", "fsdp", "fsdp-keep", "hsdp"}
    assert {way.wire for way in candidates(replace(step(), gradient_type="bfloat16"), cluster())} == {"fp32"}


def test_a_plan_comes_back_from_its_file(tmp_path: Path) -> None:
    record, facts = step(passes=2), cluster()
    plan = make_plan(record, facts, choose(record, facts), "rounding")
    path = tmp_path / "plan.json"
    plan_file.write_plan(plan, path)
    assert plan_file.read_plan(path) == plan
    assert path.read_text() == plan.to_text()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"format": 9}, "format 1"),
        ({"wey": 1}, "did you mean way"),
        ({"way": {"kind": "tp"}}, "way.kind"),
        ({"way": {"wire": "fp8"}}, "must be one of fp32"),
        ({"step": {"name": "x", "layers": []}}, "layers with parameters"),
        ({"reason": 3}, "reason must be text"),
    ],
)
def test_a_damaged_plan_is_refused(tmp_path: Path, change: dict[str, object], says: str) -> None:
    plan = make_plan(step(), cluster(), choose(step(), cluster()), "rounding")
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan_file.plan_data(plan) | change))
    with pytest.raises(UsageError, match=says):
        plan_file.read_plan(path)


def test_a_plan_for_other_hosts_is_refused() -> None:
    plan = make_plan(step(), cluster(), choose(step(), cluster()), "rounding")
    plan_file.check_for(plan, ("a", "b", "c", "d"), 8)
    with pytest.raises(UsageError, match="made for the hosts of the run"):
        plan_file.check_for(plan, ("a", "b"), 4)


def test_another_network_is_planned_anew_and_an_elastic_run_keeps_its_kind() -> None:
    record = step(passes=4, optimizer_bytes=200 * MB)
    plan = make_plan(record, cluster(), choose(record, cluster(), kinds=("hsdp",)), "rounding")
    assert not plan_file.network_changed(plan, GIGABIT * 1.1)
    assert plan_file.network_changed(plan, GIGABIT / 2)
    slower = replace(plan.cluster, card_bps=GIGABIT / 2)
    assert plan_file.replan(plan, slower, kinds=(plan.way.kind,)).predicted.step_s > plan.predicted.step_s
    fewer = plan_file.for_hosts(plan, ("h0", "h1", "h3"), 2)
    assert fewer.way.kind == "hsdp"
    assert fewer.cluster.host_count == 3
    alone = plan_file.for_hosts(plan, ("h0",), 2)  # nothing is replicated across hosts any more
    assert alone.way.kind == "hsdp"
    assert alone.predicted.card_bytes == 0


def test_predictions_are_data() -> None:
    rows = list(choice_data(choose(step(), cluster())))
    assert sum(row["best"] for row in rows) == 1
    json.dumps(rows)


def test_a_large_model_is_planned_on_many_hosts() -> None:
    record = transformer_step("7b", "h100", passes=8)
    assert MODELS["7b"].parameters == pytest.approx(6.74e9, rel=0.01)
    chosen = choose(record, simulated_cluster(64, 8, "h100", parse_rate("100Gb")))
    assert chosen.best.computing_share > 0.9


def test_another_way_takes_over_as_hosts_are_added() -> None:
    record = transformer_step("13b", "h100", passes=4)
    points = scaling(record, simulated_cluster(4, 8, "h100", parse_rate("100Gb")), hosts=(1, 2, 4))
    assert [point.hosts for point in points] == [1, 2, 4]
    assert all(before != after for _, before, after in takeovers(points))
    picture = render_svg(points, "scaling", "of a model")
    assert picture.count("<polyline") == len({kind for point in points for kind, _ in point.by_kind})


def test_rates_and_shapes_are_read() -> None:
    assert parse_rate("100Gb") == 12.5e9
    assert parse_rate("2.5Gbit/s") == 2.5e9 / 8
    assert parse_hosts_by_workers("64x8") == (64, 8)
    for wrong in ("100", "0Gb", "Gb", "1Tb"):
        with pytest.raises(UsageError, match="--link must be a rate"):
            parse_rate(wrong)
    for wrong in ("64", "0x8", "x8"):
        with pytest.raises(UsageError, match="--simulate must be"):
            parse_hosts_by_workers(wrong)
