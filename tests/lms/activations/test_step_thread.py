"""Threads under one budget: one at a time, the others are told, and nobody leaves hooks behind."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from weft import lms
from weft.errors import UsageError
from weft.lms.device.simulated import SimulatedTransfer
from weft.lms.device.torch_private import number_of_dispatch_modes, top_saved_tensors_hooks

THREADS = 4


def hooks() -> tuple[bool, int]:
    return top_saved_tensors_hooks(True) is not None, number_of_dispatch_modes()


def test_four_threads_and_one_budget() -> None:
    transfer = SimulatedTransfer()
    models = [nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1)) for _ in range(THREADS)]
    inside, tried = threading.Event(), threading.Barrier(THREADS, timeout=60)

    def step(number: int) -> tuple[str, tuple[bool, int]]:
        told = "trained"
        try:
            if number:
                inside.wait(60)
            with lms.fit("50MB", transfer=transfer):
                inside.set()
                tried.wait()  # all others have been refused by now
                models[number](torch.ones(4, 8)).sum().backward()
        except UsageError as error:
            told = str(error)
            tried.wait()
        return told, hooks()

    with ThreadPoolExecutor(THREADS, thread_name_prefix="trainer") as pool:
        results = list(pool.map(step, range(THREADS)))
        first, *others = [told for told, _ in results]
        assert first == "trained"
        assert models[0][0].weight.grad is not None
        for told in others:
            assert told.startswith(
                "steps under one budget must run one after the other, got one of thread trainer_"
            )
        assert {left for _, left in results} == {(False, 0)}
        # One after the other, any thread may.
        inside.set()
        tried = threading.Barrier(1)
        for number in range(THREADS):
            assert pool.submit(step, number).result(60)[0] == "trained"
    assert lms.stats()["steps"] == 1 + THREADS


def test_a_thread_that_died_with_a_step_open_gives_way() -> None:
    transfer = SimulatedTransfer()
    session = lms.api.session_for("50MB", transfer=transfer)
    thread = threading.Thread(target=session.begin)
    thread.start()
    thread.join()
    with lms.fit("50MB", transfer=transfer) as again:
        assert again is session
        nn.Linear(8, 1)(torch.ones(4, 8)).sum().backward()
    assert hooks() == (False, 0)


def test_a_step_is_ended_by_its_own_thread() -> None:
    transfer = SimulatedTransfer()
    with lms.fit("50MB", transfer=transfer) as session, ThreadPoolExecutor(1) as pool:
        with pytest.raises(UsageError, match="while one of MainThread is open"):
            pool.submit(session.end).result(60)
        nn.Linear(8, 1)(torch.ones(4, 8)).sum().backward()
    assert session.steps == 1
