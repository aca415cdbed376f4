"""Measures the labelling page in chromium, on the made-up service: python -m benchmarks.vision_harness.label_page

Prints the time from the key for the next picture to its drawing, and the time between drawings while one of 1,000
shapes is dragged.
"""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING

from testing.console.browser import chromium, made_up_service, open_page

if TYPE_CHECKING:
    from playwright.sync_api import Page

PICTURES, SHAPES, MOVES = 15, 1000, 60

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


def drag_frames_ms(page: Page, url: str) -> list[float]:
    """Return the times between frames while a shape among many is dragged."""
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
    box = stage.locator("[data-shape=s500]").bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.evaluate(FRAMES)
    for step in range(MOVES):
        page.mouse.move(x + step, y + step / 2)
    page.mouse.up()
    found: list[float] = page.evaluate("window.frames_ms")
    return found


def main() -> None:
    with made_up_service(3) as url, chromium() as browser, open_page(browser) as page:
        pictures, frames = next_picture_ms(page, url), drag_frames_ms(page, url)
    figures = {
        "next_picture_median_ms": round(statistics.median(pictures), 1),
        "next_picture_p90_ms": round(sorted(pictures)[int(0.9 * len(pictures))], 1),
        "drag_of_1000_median_frame_ms": round(statistics.median(frames), 1),
        "drag_of_1000_p95_frame_ms": round(sorted(frames)[int(0.95 * len(frames))], 1),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
