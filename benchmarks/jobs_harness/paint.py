"""The console in chromium: the first paint of 10,000 jobs, and a zoom into a curve of a million points.

    python benchmarks/jobs.py paint [--jobs 10000] [--points 1000000] [--rounds 5]

`weft up` serves both from SQLite. The list is painted when its first row is; times are the browser's own, from the
start of the navigation, with the files of the console in its cache, as for all but the first visit. A zoom is a drag
over the chart: counted are the longest frame while the mouse moves, and the time from its end until the finer curve is
drawn.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from benchmarks import claims
from benchmarks.jobs_harness.service import service
from benchmarks.jobs_harness.web_list import fill
from testing.console.browser import chromium

from weft.jobs.metrics.batches import encode_batch
from weft.jobs.store.database import Database
from weft.jobs.store.metrics import add_batch, pack_job
from weft.jobs.store.tables import job

if TYPE_CHECKING:
    from playwright.sync_api import Page

BATCH = 5000
WANTED = ("/curves?", "first_step", "accuracy")  # in the address of the finer curve
FRAMES = """() => {
  window.frames_ms = [];
  let last = performance.now();
  const tick = (now) => {
    window.frames_ms.push(now - last);
    last = now;
    window.ticking = requestAnimationFrame(tick);
  };
  window.ticking = requestAnimationFrame(tick);
}"""
FIRST_ROW = """() => new Promise((done) => {
  const look = () => document.querySelector('[role=row][aria-rowindex="2"]')
    ? requestAnimationFrame(() => done(performance.now())) : requestAnimationFrame(look);
  look();
})"""


def prepare(data: Path, jobs: int, points: int) -> int:
    """Write jobs, the newest of which has a long curve; return its number."""
    data.mkdir()
    database = Database.open(f"sqlite:///{data}/weft.db")
    fill(database, jobs)
    long = database.ask(
        lambda c: c.scalar(sa.select(sa.func.max(job.c.id)).where(job.c.state == "completed"))
    )
    draw = random.Random(1)
    for first in range(0, points, BATCH):
        rows = encode_batch(
            ("accuracy", step, 1_700_000_000_000 + step, step / points + draw.gauss(0.0, 0.02))
            for step in range(first, first + BATCH)
        )
        database.submit(lambda c, rows=rows, first=first: add_batch(c, long, "paint", first, rows)).result()  # type: ignore[misc]
    database.submit(lambda c: pack_job(c, long)).result()
    database.submit(lambda c: c.execute(sa.text("ANALYZE"))).result()
    database.close()
    return int(long)


def paint_list(page: Page, url: str, rounds: int) -> list[float]:
    """Return the milliseconds from the navigation to the first row, warm."""
    found = []
    for number in range(rounds + 1):
        page.goto(f"{url}/jobs", wait_until="commit")
        at_ms = float(page.evaluate(FIRST_ROW))
        if number:
            found.append(at_ms)
    return found


def zoom(page: Page, url: str, number: int, rounds: int) -> tuple[list[float], list[float]]:
    """Return, for each zoom, the milliseconds until the finer curve is drawn, and the longest frame of the drag."""
    drawn, frames = [], []
    for _ in range(rounds):
        page.goto(f"{url}/jobs/{number}")
        chart = page.locator(".u-over").first
        chart.wait_for()
        page.wait_for_timeout(500)
        box: Any = chart.bounding_box()
        y = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + 0.45 * box["width"], y)
        page.mouse.down()
        page.evaluate(FRAMES)
        for part in range(20):
            page.mouse.move(box["x"] + (0.45 + 0.005 * part) * box["width"], y)
        longest = float(
            page.evaluate(
                "() => { cancelAnimationFrame(window.ticking); return Math.max(...window.frames_ms); }"
            )
        )
        with page.expect_response(lambda answer: all(part in answer.url for part in WANTED)):
            began = time.perf_counter()
            page.mouse.up()
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        drawn.append(1000 * (time.perf_counter() - began))
        frames.append(longest)
    return drawn, frames


def main(words: list[str]) -> None:
    """Print the figures beside the claims."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="weft-paint-") as folder:
        data = Path(folder) / "data"
        number = prepare(data, given.jobs, given.points)
        with service(data) as running, chromium() as browser:
            link = next(
                line.rpartition(" ")[2]
                for line in Path(f"{data}.log").read_text().splitlines()
                if "#link=" in line
            )
            page = browser.new_context(viewport={"width": 1360, "height": 850}).new_page()
            page.goto(link)
            page.get_by_role("heading", name="Overview").wait_for()
            painted = paint_list(page, running.url, given.rounds)
            drawn, frames = zoom(page, running.url, number, given.rounds)
    print(f"first row of {given.jobs} jobs: {', '.join(f'{one:.0f}' for one in painted)} ms")
    print(f"zoom into {given.points} points, drawn: {', '.join(f'{one:.0f}' for one in drawn)} ms")
    print(f"longest frame of each drag: {', '.join(f'{one:.0f}' for one in frames)} ms")
    measured = {
        "paint-s": statistics.median(painted) / 1000,
        "zoom-ms": statistics.median(drawn),
        "zoom-frame-ms": statistics.median(frames),
    }
    print(claims.report("jobs_web", measured), end="")
