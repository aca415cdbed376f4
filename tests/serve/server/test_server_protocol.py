"""The V2 protocol as pure functions: bytes to arrays, and back."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from weft.serve.client import pack, unpack
from weft.serve.server.protocols.tensors import BF16, NUMPY, Array, TensorSpec
from weft.serve.server.protocols.v2 import Ask, check_feeds, format_infer, parse_infer
from weft.serve.server.refusal import RefusalError

SMALL = arrays.array_shapes(min_dims=1, max_dims=3, max_side=4)


@st.composite
def tensors(draw: st.DrawFn) -> Array:
    name = draw(st.sampled_from(list(NUMPY)))
    if name == "BYTES":
        values = draw(st.lists(st.text(), min_size=1, max_size=5))
        return np.array([*values, None], object)[:-1]
    if name == "BF16":
        narrow = st.floats(-(2.0**100), 2.0**100, width=32)
        return draw(arrays.arrays(np.float32, SMALL, elements=narrow)).astype(BF16)
    kind = NUMPY[name]
    finite = {"allow_nan": False, "allow_infinity": False} if kind.kind == "f" else {}
    return draw(arrays.arrays(kind, SMALL, elements=finite))


@given(array=tensors(), binary=st.booleans())
def test_what_a_client_packs_the_server_reads_and_its_answer_comes_back(array: Array, binary: bool) -> None:
    body, length = pack({"x": array}, binary=binary, request_id="one")
    ask = parse_infer(body, length)
    assert ask.id == "one"
    assert ask.feeds["x"].dtype == array.dtype
    np.testing.assert_array_equal(ask.feeds["x"], array)
    answer, length = format_infer("m", "1", ask, [("y", ask.feeds["x"])])
    assert (length is not None) == binary
    np.testing.assert_array_equal(unpack(answer, length)["y"], array)


@given(st.binary(max_size=200), st.none() | st.integers(-5, 300))
def test_no_body_does_more_than_be_refused(body: bytes, length: int | None) -> None:
    with suppress(RefusalError):
        parse_infer(body, length)


def request(**changes: Any) -> bytes:
    tensor = {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [1, 2, 3, 4], **changes}
    return json.dumps({"inputs": [tensor]}).encode()


def test_values_may_be_nested_as_their_shape_is() -> None:
    flat, nested = parse_infer(request()), parse_infer(request(data=[[1, 2], [3, 4]]))
    np.testing.assert_array_equal(flat.feeds["x"], nested.feeds["x"])


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"datatype": "FP33"}, "must be one of BOOL"),
        ({"datatype": "INT8", "data": [1, 2, 3, 300]}, "must be INT8"),
        ({"data": [1, 2, 3]}, "must have 4 values, got 3"),
        ({"data": [1, 2, 3, "4"]}, "must be a list of FP32"),
        ({"data": "1234"}, "must be a list"),
        ({"data": [[1, 2], 3, 4]}, "must be a list of FP32"),
        ({"data": None}, "must be a list"),
        ({"shape": [-2, -2]}, "no negative size"),
        ({"shape": "2"}, "must be JSON"),
        ({"parameters": {"binary_data_size": 16}}, "within the body's 0 bytes"),
        ({"parameters": {"binary_data_size": "16"}}, "within the body"),
    ],
)
def test_a_tensor_that_is_wrong_is_told_so(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(RefusalError, match=told) as caught:
        parse_infer(request(**changes))
    assert caught.value.status == 400


def test_binary_tensors_must_be_as_long_as_they_say() -> None:
    body, length = pack({"x": np.zeros((2, 2), np.float32)})
    assert length is not None
    with pytest.raises(RefusalError, match="within the body's 15 bytes"):
        parse_infer(body[:-1], length)
    with pytest.raises(RefusalError, match="got 1 bytes more"):
        parse_infer(body + b"!", length)
    with pytest.raises(RefusalError, match=f"must be 0 to {len(body)}"):
        parse_infer(body, len(body) + 1)
    shorter = body.replace(b"[2, 2]", b"[2, 1]")
    with pytest.raises(RefusalError, match="must be 8 bytes, got 16"):
        parse_infer(shorter, length)


def test_strings_that_are_cut_are_refused() -> None:
    body, length = pack({"x": np.array(["abc"], object)})
    broken = body.replace(b"\x03\x00\x00\x00", b"\x09\x00\x00\x00")
    with pytest.raises(RefusalError, match="end inside a string"):
        parse_infer(broken, length)


def test_a_request_chooses_which_outputs_come_as_bytes() -> None:
    data = {
        "inputs": [],
        "parameters": {"binary_data_output": True},
        "outputs": [{"name": "a"}, {"name": "b", "parameters": {"binary_data": False}}],
    }
    ask = parse_infer(json.dumps(data).encode())
    assert ask.binary == frozenset({"a"})
    answer, length = format_infer("m", "1", ask, [("a", np.ones(2)), ("b", np.ones(2))])
    assert length is not None
    head = json.loads(answer[:length])
    assert head["outputs"][0]["parameters"] == {"binary_data_size": 16}
    assert head["outputs"][1]["data"] == [1.0, 1.0]
    assert len(answer) == length + 16


def test_a_timeout_is_in_microseconds() -> None:
    body = json.dumps({"inputs": [], "parameters": {"timeout": 2_000_000}}).encode()
    assert parse_infer(body).timeout_s == 2
    with pytest.raises(RefusalError, match="timeout must be"):
        parse_infer(json.dumps({"inputs": [], "parameters": {"timeout": -1}}).encode())


def test_numbers_that_json_lacks_are_written_as_triton_does() -> None:
    answer, _ = format_infer("m", "1", Ask(feeds={}), [("y", np.array([np.nan, np.inf, 1.0]))])
    found = json.loads(answer)["outputs"][0]["data"]
    assert [str(value) for value in found] == ["nan", "inf", "1.0"]


@pytest.mark.parametrize(
    ("feeds", "told"),
    [
        ({"z": np.zeros((1, 4), np.float32)}, "inputs must be among x, got 'z'"),
        ({"x": np.zeros((1, 4), np.float64)}, "must be FP32, got FP64"),
        ({"x": np.zeros((1, 5), np.float32)}, r"must have the shape \[-1, 4\], got \[1, 5\]"),
        ({}, "got none for x"),
    ],
)
def test_feeds_must_fit_the_model(feeds: dict[str, Array], told: str) -> None:
    with pytest.raises(RefusalError, match=told):
        check_feeds(feeds, {"x": TensorSpec("x", "FP32", (-1, 4))})
