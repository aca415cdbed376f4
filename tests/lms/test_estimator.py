"""Before anything runs: does it fit, and at what cost?"""

from __future__ import annotations

import pytest
import torch
from testing.families import FAMILIES, GptBlock, Transformer
from tests.lms.stage import Stage

from weft import lms
from weft.errors import UsageError


def test_a_model_far_too_large_for_this_machine() -> None:
    with torch.device("meta"):
        model = Transformer(6, lambda: GptBlock(2048, 16), 2048).bfloat16()
        batch = torch.empty(16, 2048, 2048, dtype=torch.bfloat16)
    found = lms.estimate(model, batch, limit=8 << 30)
    # With 24 blocks 51.75 GiB were measured on an H200: 2.1 GiB for each, parameters among them.
    assert found.peak / 2**30 == pytest.approx(6 * 51.75 / 24, rel=0.1)
    assert found.fits
    assert found.plan is not None
    assert 1.0 < found.plan.slowdown < 1.2
    assert "fits: budget" in str(found)
    assert "does not fit: limit must hold" in str(lms.estimate(model, batch, limit="1GB"))


def test_it_agrees_with_a_step_that_ran() -> None:
    torch.manual_seed(0)
    made = Stage(Transformer(3, lambda: GptBlock(64, 4), 64), torch.randn(4, 64, 64))
    found = lms.estimate(made.model, made.x, limit="1GB")
    assert found.plan is not None
    assert found.plan.keeps_all
    assert found.peak == pytest.approx(made.native.native.peak, rel=0.15)


def test_the_least_that_works_works_and_less_does_not() -> None:
    torch.manual_seed(0)
    model, x = Transformer(4, lambda: GptBlock(64, 4), 64), torch.randn(4, 64, 64)
    least = lms.estimate(model, x).least
    assert lms.estimate(model, x, limit=int(1.01 * least)).fits
    assert not lms.estimate(model, x, limit=int(0.97 * least)).fits


def test_optimizer_state_counts() -> None:
    make, data = FAMILIES["resnet"]
    model = make()
    lean, fat = (lms.estimate(model, data(), state=state) for state in (0, 2))
    assert fat.peak - lean.peak == 2 * lean.parameters


def test_what_would_be_paged_is_as_much_as_activations_need() -> None:
    model, x = Transformer(4, lambda: GptBlock(64, 4), 64), torch.randn(32, 64, 64)
    native = lms.estimate(model, x, state=2)
    limits = int(1.1 * native.peak), int(0.9 * native.least)
    found = [lms.estimate(model, x, limit, state=2, page="auto") for limit in limits]
    assert [each.residence is not None and each.residence.away > 0 for each in found] == [False, True]
    assert all(each.fits for each in found)
    assert not lms.estimate(model, x, limits[1], state=2).fits


@pytest.mark.long
def test_a_model_that_holds_itself_takes_no_more() -> None:
    plain, cyclic = (Transformer(4, lambda: GptBlock(64, 4), 64) for _ in range(2))
    vars(cyclic)["me"] = cyclic
    x = torch.randn(32, 64, 64)
    limit = int(0.9 * lms.estimate(plain, x, state=2).least)
    found = [lms.estimate(model, x, limit, state=2, page="auto") for model in (plain, cyclic)]
    assert found[0].least == found[1].least
    assert found[0].residence == found[1].residence


def test_a_model_that_needs_values() -> None:
    make, data = FAMILIES["experts"]  # which expert gets which token depends on the data
    with pytest.raises(UsageError, match="on shapes alone"):
        lms.estimate(make(), data())
