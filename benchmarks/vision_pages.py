"""Measures the labelling page in chromium, on the made-up service: python benchmarks/vision_pages.py

Prints the time from the key for the next picture to its drawing, and the times between drawings while one of 1,000
shapes is dragged, while the picture is panned, and while it is zoomed.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import claims
from testing.console.browser import chromium, made_up_service, open_page

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

PICTURES, SHAPES, MOVES = 30, 1000, 60

# From the key to the second frame after the next picture is there and decoded.
NEXT = """() => new Promise((done) => {
  const stage = document.querySelector('[role=application]');
  const before = stage.getAttribute('aria-label'), began = performance.now();
  window.dispatchEvent(new KeyboardEvent('keydown', {key: 'f', bubbles: true}));
  const look = () => {
    const image = stage.querySelector('img');
    if (stage.getAttribute('aria-label') === before || !image.complete) return requestAnimationFrame(look);
    const drawn = () => done(performance.now() - began);
    image.decode().then(() => requestAnimationFrame(() => requestAnimationFrame(drawn)));
  };
  look();
})"""
FRAMES = """() => { window.frames_ms = []; let last = performance.now();
  const tick = (now) => { window.frames_ms.push(now - last); last = now; requestAnimationFrame(tick); };
  requestAnimationFrame(tick); }"""


def next_picture_ms(page: Page, url: str) -> list[float]:
    page.goto(f"{url}/vision/label/cells/cells-0")
    page.get_by_role("application").wait_for()
    page.wait_for_timeout(1500)
    times = []
    for _ in range(PICTURES):
        times.append(float(page.evaluate(NEXT)))
        page.wait_for_timeout(600)  # a person looks at it; neighbours are read meanwhile
    return times


def many_shapes(page: Page, url: str) -> Locator:
    """Open a picture with many shapes and return its stage."""
    shapes = [
        {"id": f"s{number}", "label": "RBC", "box": [x, y, x + 12, y + 12]}
        for number in range(SHAPES)
        for x, y in [(number % 40 * 15 + 5, number // 40 * 18 + 5)]
    ]
    page.request.put(
        f"{url}/api/v1/vision/files/cells-2/labels",
        data={"revision": 1, "shapes": shapes},
        headers={"x-weft-csrf": "csrf-of-tests"},
    )
    page.goto(f"{url}/vision/label/cells/cells-2")
    stage = page.get_by_role("application")
    stage.locator("[data-shape=s999]").wait_for()
    page.keyboard.press("s")
    page.wait_for_timeout(1000)
    return stage


def frames_ms(page: Page, move: Callable[[int], None]) -> list[float]:
    """Return the times between frames during so many moves."""
    page.evaluate(FRAMES)
    for step in range(MOVES):
        move(step)
    found: list[float] = page.evaluate("window.frames_ms")
    return found[1:]


def moved_frames_ms(page: Page, stage: Locator) -> dict[str, list[float]]:
    """Return the times between frames while a shape among many is dragged, and the picture panned and zoomed."""
    box = stage.locator("[data-shape=s500]").bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    found = {}
    for name, button in (("drag", "left"), ("pan", "middle")):
        page.mouse.move(x, y)
        page.mouse.down(button=button)  # type: ignore[arg-type]
        found[name] = frames_ms(page, lambda step: page.mouse.move(x + step, y + step / 2))
        page.mouse.up(button=button)  # type: ignore[arg-type]
        page.wait_for_timeout(800)
    found["zoom"] = frames_ms(page, lambda step: page.mouse.wheel(0, -40 if step < MOVES / 2 else 40))
    return found


def spread(name: str, times: list[float]) -> dict[str, float]:
    """Return the median and the 95th percentile of times, by the names of claims, in milliseconds."""
    ordered = sorted(times)
    return {
        f"{name}-p50": round(statistics.median(ordered), 1),
        f"{name}-p95": round(ordered[int(0.95 * (len(ordered) - 1))], 1),
    }


def main() -> None:
    with made_up_service(3) as url, chromium() as browser, open_page(browser) as page:
        figures = spread("next-picture", next_picture_ms(page, url))
        for name, times in moved_frames_ms(page, many_shapes(page, url)).items():
            figures |= spread(name, times)
    print(json.dumps(figures))
    (known,) = claims.parts(["vision_pages"])
    names = {claim.name for claim in known.claims}
    print(claims.report("vision_pages", {name: figure for name, figure in figures.items() if name in names}))


if __name__ == "__main__":
    main()
