"""The same text is the same number of bytes in every flag and every argument that takes a size."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2  # noqa: F401 (sets LD_LIBRARY_PATH when it is imported: before a test, not in it)
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import nn

from weft import cli, lms
from weft.errors import DataError
from weft.learn import LogisticRegression
from weft.lms.autoload import disable
from weft.lms.device.simulated import SimulatedTransfer
from weft.text import parse_size

TEXTS = ("40kB", "40 KB", "0.04MB", "4e4", "40000", "39.0625KiB", "39.0625K")  # 40,000 bytes, all of them
COLUMNS = 100  # of a table whose fit needs more than 40 kB


def lms_fit(text: str, folder: Path) -> int:
    with lms.fit(text, transfer=SimulatedTransfer()) as session:
        return session.limit


def lms_enable(text: str, folder: Path) -> int:
    transfer = SimulatedTransfer()
    lms.enable(text, transfer=transfer)
    disable()
    return lms_fit_limit(transfer, text)


def lms_fit_limit(transfer: SimulatedTransfer, text: str) -> int:
    """Return the limit of the session that a transfer has for a text."""
    with lms.fit(text, transfer=transfer) as session:
        return session.limit


def lms_wrap(text: str, folder: Path) -> int:
    transfer = SimulatedTransfer()
    lms.wrap(nn.Linear(4, 4), limit=text, page="never", transfer=transfer)
    return lms_fit_limit(transfer, text)


def lms_estimate(text: str, folder: Path) -> int:
    read, known = (lms.estimate(nn.Linear(4, 4), torch.ones(2, 4), limit).plan for limit in (text, 40_000))
    assert read is not None
    assert known is not None
    return 40_000 * read.limit // known.limit  # a plan keeps a margin below the limit


def weft_run_lms(text: str, folder: Path) -> int:
    script = folder / "train.py"
    script.touch()
    result = invoke("run", "-n", "1", "--lms", text, "--dry-run", "--json", str(script))
    found = re.search(r'"WEFT_LMS": "([^"]+)"', result)
    assert found is not None, result
    return lms_fit(found[1], folder)


def learn_fit(text: str, folder: Path) -> int:
    with pytest.raises(DataError) as caught:
        LogisticRegression().fit(table(folder), "y", memory=text)
    return refused(str(caught.value))


def weft_learn_fit(text: str, folder: Path) -> int:
    return refused(invoke("learn", "fit", str(table(folder)), "--target", "y", "--memory", text))


def weft_data_convert(text: str, folder: Path) -> int:
    where = str(folder / "fast")
    return refused(invoke("data", "convert", str(table(folder)), where, "--target", "y", "--memory", text))


def weft_bench_sizes(text: str, folder: Path) -> int:
    return bench_sizes("--sizes", text)


def weft_bench_range(text: str, folder: Path) -> int:
    return bench_sizes("--min", text, "--max", text)


def bench_sizes(*given: str) -> int:
    from weft.cli.training.bench import command, make_plan

    (size,) = make_plan(command.make_context("bench", list(given)).params).sizes
    return size


def weft_serve_max_body(text: str, folder: Path) -> int:
    bodies = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "weft.serve.server.process.run", lambda make, options, say: bodies.append(options.max_body)
        )
        invoke("serve", "module:factory", "--max-body", text)
    (size,) = bodies
    return int(size)


def table(folder: Path) -> Path:
    path = folder / "table.csv"
    heads = ",".join([*(f"c{column}" for column in range(COLUMNS)), "y"])
    np.savetxt(path, np.eye(COLUMNS + 1), "%d", delimiter=",", header=heads, comments="")
    return path


def refused(message: str) -> int:
    found = re.search(r"memory must be at least .* got ([^;]+);", message)
    assert found is not None, message
    return parse_size(found[1])


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(cli.group, arguments)
    return f"{result.output}{result.exception or ''}"


@pytest.mark.parametrize(
    "reader",
    [
        lms_fit,
        lms_enable,
        lms_wrap,
        lms_estimate,
        weft_run_lms,
        learn_fit,
        weft_learn_fit,
        weft_data_convert,
        weft_bench_sizes,
        weft_bench_range,
        weft_serve_max_body,
    ],
)
def test_every_reader_of_sizes_reads_the_same(reader: Callable[[str, Path], Any], tmp_path: Path) -> None:
    assert {text: reader(text, tmp_path) for text in TEXTS} == dict.fromkeys(TEXTS, 40_000)
