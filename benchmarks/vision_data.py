"""Data sets of pictures: how fast JPEGs are imported, and how long a page of their list takes.

    python benchmarks/vision_data.py [--pictures 10000] [--rounds 1]

The pictures are made first, 640 x 480 with texture, about 60 kB each, all different. An import reads, checks,
hashes and keeps every one of them with a row in the database. The rival copies the same files and decodes each
with OpenCV, which is the least that a program does that checks a picture by decoding it.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import claims

from weft.vision.library import FileFilter, Library

PAGES = 20  # pages whose median is told


def make_pictures(folder: Path, count: int) -> None:
    """Write JPEGs that all differ."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    texture = rng.integers(0, 256, (480 + 64, 640 + 64, 3), dtype=np.uint8)
    texture = np.asarray(cv2.GaussianBlur(texture, (0, 0), 2.0))
    for number in range(count):
        top, left = rng.integers(0, 64, 2)
        pixels = texture[top : top + 480, left : left + 640].copy()
        cv2.putText(pixels, str(number), (40, 240), cv2.FONT_HERSHEY_SIMPLEX, 3, (255, 255, 255), 4)
        cv2.imwrite(str(folder / f"{number:06}.jpg"), pixels, [cv2.IMWRITE_JPEG_QUALITY, 90])


def imported(source: Path, home: Path) -> tuple[float, float, list[float]]:
    """Return pictures per second, processor seconds for each thousand, and seconds of pages."""
    with Library(home) as library:
        library.create("all")
        start, used = time.perf_counter(), time.process_time()
        done = library.import_from("all", source)
        seconds, used = time.perf_counter() - start, time.process_time() - used
        pages = []
        after = None
        for _ in range(PAGES):
            begin = time.perf_counter()
            library.dataset("all")
            page = library.files("all", FileFilter(), after=after, limit=100)
            pages.append(time.perf_counter() - begin)
            after = page.next
    return done.added / seconds, 1000 * used / done.added, pages


def copied(source: Path, home: Path) -> float:
    """Return pictures per second of a copy that decodes every picture."""
    home.mkdir()

    def take(path: Path) -> None:
        data = path.read_bytes()
        assert cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR) is not None
        (home / path.name).write_bytes(data)

    paths = sorted(source.iterdir())
    start = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(take, paths))
    return len(paths) / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pictures", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        make_pictures(home / "source", options.pictures)
        speeds, rivals, costs, pages = [], [], [], []
        for _ in range(options.rounds):
            speed, cost, seconds = imported(home / "source", home / "library")
            speeds.append(speed)
            costs.append(cost)
            pages += seconds
            rivals.append(copied(home / "source", home / "copy"))
            for made in ("library", "copy"):
                shutil.rmtree(home / made)
    speed, rival = statistics.median(speeds), statistics.median(rivals)
    print(
        f"imported {speed:.0f} pictures/s, copied and decoded {rival:.0f}/s; {statistics.median(costs):.2f} s of"
    )
    print(f"processor time for 1000 pictures; a page of 100 takes {1000 * statistics.median(pages):.0f} ms")
    measured = {"import": speed, "import_ratio": speed / rival, "page": 1000 * statistics.median(pages)}
    claims.report("vision_data", measured)


if __name__ == "__main__":
    main()
