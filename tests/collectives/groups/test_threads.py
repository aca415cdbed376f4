"""A collective uses one thread, and nobody else notices."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from weft.collectives.groups.threads import on_one_thread


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_one_for_the_caller_and_only_meanwhile() -> None:
    others: list[int] = []

    def work() -> int:
        thread = threading.Thread(target=lambda: others.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        return torch.get_num_threads()

    assert on_one_thread(work) == 1
    assert others == [2]
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_put_back_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError):
        on_one_thread(lambda: 1 / 0)
    assert torch.get_num_threads() == 2
