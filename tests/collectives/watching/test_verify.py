"""What a reduction must give, and how far rounding may take it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from weft.collectives.modes.wires.wire import BlockInt8
from weft.collectives.reduction import Reduction
from weft.collectives.watching.verify import Lightness, VerifyFinding, compare


def inputs_of(ranks: int, count: int = 1000, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [(torch.randn(count, generator=generator) * 5).to(dtype) for _ in range(ranks)]


def reduced(inputs: list[Tensor], reduction: Reduction, order: list[int]) -> Tensor:
    total = inputs[order[0]].clone()
    for rank in order[1:]:
        reduction.combine(total, inputs[rank], total)
    reduction.after(total, len(inputs))
    return total


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.uint8]
)
@pytest.mark.parametrize("operator", ["SUM", "AVG", "PRODUCT", "MIN", "MAX"])
@pytest.mark.parametrize("ranks", [2, 9])
def test_any_order_is_right_and_one_bit_too_many_is_not(
    dtype: torch.dtype, operator: str, ranks: int
) -> None:
    inputs, reduction = inputs_of(ranks, dtype=dtype), Reduction(operator)
    if operator == "PRODUCT" and dtype is torch.float16:
        inputs = [values / 8 for values in inputs]  # so that they do not grow out of the type
    for order in (list(range(ranks)), list(reversed(range(ranks)))):
        assert compare(reduced(inputs, reduction, order), inputs, reduction, world=ranks).wrong == 0
    result = reduced(inputs, reduction, list(range(ranks)))
    place = int(result.double().abs().nan_to_num(0, 0, 0).argmax())
    result[place] = result[place] * 2 + 1 if dtype.is_floating_point else result[place] ^ 1
    found = compare(result, inputs, reduction, world=ranks)
    assert (found.wrong, found.index) == (1, place)


def test_a_factor_before_the_sum() -> None:
    inputs, reduction = inputs_of(3), Reduction("PREMUL_SUM", 0.3)
    result = sum((values * 0.3 for values in inputs[1:]), inputs[0] * 0.3)
    assert compare(result, inputs, reduction, world=3).wrong == 0
    assert compare(result * 1.001, inputs, reduction, world=3).wrong > 900


def test_a_sum_beyond_the_type_is_taken_as_it_comes() -> None:
    inputs = [torch.full((4,), 60000.0, dtype=torch.float16)] * 2
    assert compare(inputs[0] + inputs[1], inputs, Reduction("SUM"), world=2).wrong == 0


def test_what_is_no_number_must_show() -> None:
    inputs = [torch.tensor([1.0, torch.nan, torch.inf]), torch.ones(3)]
    right = inputs[0] + inputs[1]
    assert compare(right, inputs, Reduction("SUM"), world=2).wrong == 0
    found = compare(torch.tensor([2.0, 2.0, 2.0]), inputs, Reduction("SUM"), world=2)
    assert (found.wrong, found.index) == (2, 1)
    found = compare(torch.tensor([torch.nan, torch.nan, torch.inf]), inputs, Reduction("SUM"), world=2)
    assert (found.wrong, found.index) == (1, 0)


@pytest.mark.parametrize("wire", ["bf16", "fp16", "int8"])
def test_a_light_wire_explains_its_own_rounding_and_no_more(wire: str) -> None:
    inputs, lightness = inputs_of(3, 9000), Lightness(wire=wire, hosts=3)
    if wire == "int8":
        codec, came = BlockInt8(), []
        for values in inputs:
            came.append(torch.empty_like(values))
            codec.decode(codec.encode(values), came[-1])
        result = came[0] + came[1] + came[2]
    else:
        short = torch.bfloat16 if wire == "bf16" else torch.float16
        result = sum((values.to(short) for values in inputs[1:]), inputs[0].to(short)).float()
    light = lightness.of(inputs[0], Reduction("SUM"))
    assert compare(result, inputs, Reduction("SUM"), world=3).wrong > 0  # more than float32 explains
    assert compare(result, inputs, Reduction("SUM"), world=3, lightness=light).wrong == 0
    assert compare(result + 10, inputs, Reduction("SUM"), world=3, lightness=light).wrong > 8000


def test_what_does_not_take_the_light_wire_has_no_allowance() -> None:
    lightness = Lightness(wire="bf16", hosts=2)
    assert lightness.of(torch.ones(9000), Reduction("SUM")).wire == "bf16"
    assert lightness.of(torch.ones(100), Reduction("SUM")).wire == "fp32"
    assert lightness.of(torch.ones(9000, dtype=torch.float64), Reduction("SUM")).wire == "fp32"
    assert lightness.of(torch.ones(9000), Reduction("MAX")).wire == "fp32"
    assert Lightness(wire="bf16", hosts=1).of(torch.ones(9000), Reduction("SUM")).wire == "fp32"


def test_only_the_inner_elements_are_judged() -> None:
    inputs = [torch.zeros(10), torch.zeros(10)]
    result = torch.zeros(10)
    result[[1, 5]] = 1.0
    found = compare(result, inputs, Reduction("SUM"), world=2, inner=slice(3, 9))
    assert (found.wrong, found.index, found.got, found.expected) == (1, 5, 1.0, 0.0)


def test_pieces_add_up_to_the_first_that_is_wrong() -> None:
    pieces = [
        VerifyFinding(worst=0.1),
        VerifyFinding(wrong=2, index=3, got=1.0, worst=0.5),
        VerifyFinding(wrong=1, index=0),
    ]
    whole = VerifyFinding()
    for number, piece in enumerate(pieces):
        whole = whole.and_then(piece, 100 * number)
    assert (whole.wrong, whole.index, whole.got, whole.worst) == (3, 103, 1.0, 0.5)
