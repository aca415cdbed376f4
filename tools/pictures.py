"""Makes the pictures of the documentation from real runs: `make pictures`.

    timeline.svg   an elastic run on the virtual cluster, in which a worker is killed and then a host is lost
    bench.svg      `weft bench` on two local workers beside Gloo
    serve.png      the page of `weft serve` in a browser, with a digit that was dropped on it
    console-*.png  pages of the jobs service, with the jobs of the made-up team of testing/console
    vision-*.png   its pages of pictures: labelling, a training, a model that is tried

Needs root for the virtual cluster, and chromium; `tools/setup.sh system` and `browser` install what is missing.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from testing.cluster.cluster import VirtualCluster
from testing.console.browser import chromium, made_up_service, open_page
from testing.console.vision_world import picture
from testing.elastic.watched import Watched

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
WEFT = str(Path(sys.executable).with_name("weft"))


def timeline(folder: Path) -> None:
    """Draw a run of four workers on two hosts that loses a worker, takes in another, and loses a host."""
    with VirtualCluster(2) as cluster:
        run = Watched(cluster, folder)
        run.start("--elastic", "2:4", "-H", "h1,h2", "--per-host", "2")
        run.steps("h1", 25)
        run.kill(run.workers("h1")[-1])
        run.stands("h1/0", "h1/1", "h2/0", "h2/1", after=time.time())
        run.steps("h1", run.committed("h1") + 30)
        cluster.kill("h2")
        run.steps("h1", run.committed("h1") + 25)
        run.ends()
        subprocess.run(
            [WEFT, "timeline", str(run.run_dir), "--plot", str(PICTURES / "timeline.svg")], check=True
        )


def bench(folder: Path) -> None:
    """Draw the bandwidth of all_reduce on two workers, ours beside Gloo's."""
    command = [
        WEFT,
        "bench",
        "-n",
        "2",
        "--against",
        "gloo",
        "--min",
        "1KiB",
        "--max",
        "64MiB",
        "--factor",
        "4",
    ]
    subprocess.run([*command, "--plot", str(PICTURES / "bench.svg")], check=True, cwd=folder)


def serve(folder: Path) -> None:
    """Photograph the page of a server that was given a picture."""
    for script in ("export_digits.py", "digits_rows.py"):
        subprocess.run([sys.executable, str(ROOT / "examples" / script)], check=True, cwd=folder)
    command = [WEFT, "serve", "--store", "digits/store", "digits@production", "--port", "0", "--no-grpc"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as server:
        assert server.stdout is not None
        listening = next(found for line in server.stdout if (found := re.search(r"http://\S+", line)))
        try:
            _photograph(listening[0], folder / "seven.png")
        finally:
            server.terminate()


def _photograph(url: str, picture: Path) -> None:
    from playwright.sync_api import expect

    with chromium() as browser:
        page = browser.new_page(viewport={"width": 900, "height": 620}, device_scale_factor=2)
        page.goto(url)
        page.set_input_files("#file", str(picture))
        expect(page.locator("#answer .bar").first).to_contain_text("7", timeout=60_000)
        page.screenshot(path=str(PICTURES / "serve.png"))


def console(folder: Path) -> None:
    """Photograph the pages of the jobs service, some of them in the dark."""
    views = {
        "jobs": ("/jobs", "row", False),
        "job": ("/jobs/9989?smooth=0.6", "figure", True),
        "workers": ("/jobs/9989/workers", "group", False),
        "hosts": ("/hosts", "article", False),
        "study": ("/studies/3/parallel?state=completed&brush=lr=0.001..0.01", "group", False),
    }
    with made_up_service(10_000) as url, chromium() as browser:
        for name, (path, role, dark) in views.items():
            with open_page(browser, size=(1180, 720), dark=dark) as page:
                page.goto(url + path)
                page.get_by_role(role).nth(2 if role != "group" else 0).wait_for()  # type: ignore[arg-type]
                page.wait_for_timeout(1500)
                page.screenshot(path=str(PICTURES / f"console-{name}.png"))


def vision(folder: Path) -> None:
    """Photograph labelling, a training in the dark, and a deployed model that is shown a picture."""
    with made_up_service(400) as url, chromium() as browser:
        with open_page(browser, size=(1180, 720)) as page:
            page.goto(f"{url}/vision/label/cells/cells-1")
            page.get_by_role("region", name="Auto labels").wait_for()
            page.get_by_role("group", name="Shapes").get_by_role("img").first.wait_for()
            page.wait_for_timeout(1500)
            page.screenshot(path=str(PICTURES / "vision-label.png"))
        with open_page(browser, size=(1180, 900), dark=True) as page:
            page.goto(f"{url}/vision/trainings/389")
            page.get_by_role("link", name=re.compile("BloodImage_00001.jpg: .* found")).wait_for()
            page.wait_for_timeout(1500)
            page.screenshot(path=str(PICTURES / "vision-training.png"))
        with open_page(browser, size=(1180, 900)) as page:
            page.goto(f"{url}/vision/models/cells@2")
            page.get_by_role("button", name="Deploy", exact=True).click()
            tried = page.get_by_role("region", name="Try it")
            page.get_by_label("Picture to try").set_input_files(
                {"name": "blood.jpg", "mimeType": "image/jpeg", "buffer": picture(3)}
            )
            tried.get_by_role("group", name="What it found").get_by_role("img").first.wait_for()
            page.get_by_text("is being started").wait_for(state="detached")
            page.screenshot(path=str(PICTURES / "vision-try.png"))


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    wanted = sys.argv[1:] or ["timeline", "bench", "serve", "console", "vision"]
    for make in (timeline, bench, serve, console, vision):
        if make.__name__ in wanted:
            with tempfile.TemporaryDirectory() as folder:
                make(Path(folder))
            print(f"docs/pictures: {make.__name__} is made")


if __name__ == "__main__":
    main()
