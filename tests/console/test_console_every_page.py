"""Every page in a real browser: light, dark and on a telephone, with many jobs and none; axe finds nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from testing.console.browser import (
    NARROW,
    OF_COLOURS,
    accessibility_problems,
    needs_browser,
    open_page,
    overflow,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [*needs_browser, pytest.mark.xdist_group("console-pages")]

MANY = 400  # jobs of the fixture
RUNNING, FAILED, QUEUED = MANY - 11, 3, MANY
OVER = MANY - 28  # completed
PAGES = {
    "overview": ("/", "Running"),
    "jobs": ("/jobs", "Active"),
    "queue": ("/jobs?view=queue", "Priority"),
    "new job": ("/new", "It would run"),
    "studies": ("/studies", "digits-3"),
    "new tuning": ("/studies?new=1", "It would begin with"),
    "study": ("/studies/3", "Best parameters"),
    "study curves": ("/studies/3/curves", "1\u202f000 curves"),
    "study parallel": ("/studies/3/parallel?brush=lr=0.001..0.01", "lr 0.001 to 0.01"),
    "study importance": ("/studies/3/importance", "55 % to 70 %"),
    "study slices": ("/studies/3/slices", "over two parameters"),
    "study timeline": ("/studies/3/timeline", "slots were busy"),
    "study trials": ("/studies/3/trials?trial=12&q=lr<0.01", "Logs"),
    "study settings": ("/studies/2/settings", "Extend"),
    "new study": ("/studies/1", "No trial yet"),
    "hosts": ("/hosts", "gx01"),
    "host": ("/hosts?host=gx01", "Socket 0"),
    "compare curves": ("/compare?jobs=300,301,302", "val_loss"),
    "compare fields": ("/compare?jobs=300,301&tab=fields", "Only differences"),
    "compare lines": ("/compare?jobs=300,301,302&tab=parallel", "best"),
    "compare code": ("/compare?jobs=300,301&tab=code", "train.py"),
    "tables": ("/tables", "orders@2/orders.parquet"),
    "new search": ("/tables?new=1", "Drop a table here"),
    "search": (f"/tables/{RUNNING}", "Leaderboard"),
    "search that is over": (f"/tables/{OVER}", "What matters"),
    "data sets": ("/datasets?open=digits@2", "train/3.png"),
    "models": ("/models?open=digits@2", "digits-cosine"),
    "deployments": ("/deployments", "Try it"),
    "vision": ("/vision", "Blood cells under a microscope"),
    "pictures": ("/vision/data/cells", "BloodImage_00001.jpg"),
    "picture labels": ("/vision/data/cells/labels", "Categories of pictures"),
    "films": ("/vision/data/cells/films", "flow.mp4"),
    "picture versions": ("/vision/data/cells/versions", "cells@2"),
    "picture health": ("/vision/data/cells/health", "Objects by label"),
    "augment": ("/vision/data/cells?do=augment", "Flip left and right"),
    "more of pictures": ("/vision/data/cells?do=more", "Class folders"),
    "film": ("/vision/film/cells-3002", "Take this frame"),
    "label": ("/vision/label/cells/cells-1", "Auto labels"),
    "label pictures": ("/vision/label/cells/cells-0?mode=pictures", "Category"),
    "train": ("/vision/data/cells?do=train", "What it learns"),
    "auto-label": ("/vision/data/cells?do=autolabel", "Confidence from"),
    "trainings": ("/vision/trainings", "cells@2"),
    "training": (f"/vision/trainings/{RUNNING}", "What it finds now"),
    "trained models": ("/vision/models", "mAP@.5"),
    "trained model": ("/vision/models/cells@2", "Worst mistakes"),
    "tokens": ("/settings", "laptop"),
    "secrets": ("/settings/secrets", "HF_TOKEN"),
    "canary": ("/deployments", "Percent of the requests"),
    "webhooks": ("/settings/webhooks", "chat.example.org"),
    "users": ("/settings/users", "jonas"),
    "audit": ("/settings/audit", "drain host"),
    "account": ("/settings/account", "Colours"),
    "log-in": ("/login", "Log in to Weft"),
    "curves": (f"/jobs/{RUNNING}", "val_loss"),
    "logs": (f"/jobs/{RUNNING}/logs", "lines"),
    "workers": (f"/jobs/{RUNNING}/workers", "slower"),
    "events": (f"/jobs/{RUNNING}/events", "Attempts"),
    "system": (f"/jobs/{RUNNING}/system", "Processors"),
    "files": (f"/jobs/{RUNNING}/files?path=outputs&file=outputs/history.csv", "accuracy"),
    "code": (f"/jobs/{RUNNING}/code", "train.py"),
    "findings": ("/jobs/300/findings", "straggler"),
    "spec": (f"/jobs/{RUNNING}/spec", "Specification"),
    "waiting job": (f"/jobs/{QUEUED}", "Place 1."),
    "no such job": ("/jobs/999999", "There is no job"),
}
EMPTY = {
    "overview": ("/", "weft submit"),
    "jobs": ("/jobs", "weft submit"),
    "queue": ("/jobs?view=queue", "weft submit"),
    "studies": ("/studies", "weft tune study.yaml"),
    "hosts": ("/hosts", "weft hosts add"),
    "compare": ("/compare", "x selects"),
    "tables": ("/tables", "weft auto orders.csv"),
    "data sets": ("/datasets", "weft dataset add"),
    "models": ("/models", "export:"),
    "deployments": ("/deployments", "press Deploy"),
    "vision": ("/vision", "weft vision data import"),
    "trainings": ("/vision/trainings", "weft vision train"),
    "trained models": ("/vision/models", "weft vision train"),
    "tokens": ("/settings", "There is none"),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_readable_by_all(browser: Browser, many: str, name: str) -> None:
    path, expected = PAGES[name]
    missing = name == "no such job"  # the browser itself notes the 404
    with open_page(browser, quiet=not missing) as page:
        page.goto(many + path)
        page.get_by_text(expected).first.wait_for(state="attached")
        problems = {"light": accessibility_problems(page)}
        page.emulate_media(color_scheme="dark")
        problems["dark"] = accessibility_problems(page, OF_COLOURS)  # nothing else has changed
        page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
        problems["telephone"] = accessibility_problems(page)
        assert problems == {"light": [], "dark": [], "telephone": []}
        assert overflow(page) == 0


@pytest.mark.parametrize("name", EMPTY)
def test_an_empty_page_teaches_what_fills_it(browser: Browser, nothing: str, name: str) -> None:
    path, expected = EMPTY[name]
    with open_page(browser) as page:
        page.goto(nothing + path)
        page.get_by_text(expected).first.wait_for()
        assert accessibility_problems(page) == []
