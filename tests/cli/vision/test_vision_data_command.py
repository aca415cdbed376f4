"""`weft vision data` on a library in a folder."""

from __future__ import annotations

import json
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from testing.vision.made_films import film_bytes
from testing.vision.made_pictures import picture_file

from weft.cli import call
from weft.errors import PictureError
from weft.vision.fetching import read_url_list


def test_a_data_set_from_import_to_removal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in range(4):
        picture_file(tmp_path / "source" / ("rose" if seed % 2 else "tulip"), f"{seed}.jpg", seed=seed)
    (tmp_path / "source/broken.jpg").write_text("text")
    (tmp_path / "drive.mp4").write_bytes(film_bytes())

    def weft(*line: str, code: int = 0) -> Any:
        given = ["vision", "data", *line, "--library", str(tmp_path / "library"), "--json"]
        assert call(given) == code
        told = capsys.readouterr()
        return json.loads(told.out) if code == 0 else told.err

    done = weft("import", "flowers", str(tmp_path / "source"), "--create")
    assert (done["added"], done["left_out"]) == (4, 1)
    assert [one["name"] for one in weft("list")] == ["flowers"]
    assert weft("show", "flowers")["counts"]["labelled"] == 4
    assert weft("versions", "flowers", "--freeze", "--note", "first")[0]["number"] == 1
    assert weft("export", "flowers@1", str(tmp_path / "out.zip"), "--format", "voc")["format"] == "voc"
    assert "not be there yet" in weft("export", "flowers", str(tmp_path / "out.zip"), code=2)
    assert weft("import", "again", str(tmp_path / "out.zip"), "--create")["added"] == 4
    assert weft("versions", "again", "--freeze")[0]["digest"] == weft("versions", "flowers")[0]["digest"]
    assert weft("health", "flowers", "--near")["counts"]["pictures"] == 4
    assert (
        weft("augment", "flowers", "more", "--step", "blur", "--step", "rotate=0.2")["counts"]["pictures"]
        == 12
    )
    assert weft("import", "flowers", str(tmp_path / "drive.mp4"))["added"] == 1
    assert weft("frames", "flowers", "drive.mp4", "--every", "1")["frames"] == 2
    assert weft("files", "flowers", "--query", "category == 'rose'", "--sort", "name")["total"] == 2
    assert "must" in weft("files", "flowers", "--query", "width >=", code=2)
    weft("create", "roses")
    assert weft("copy", "flowers", "roses", "--query", "category == 'rose'")["changed"] == 2
    assert weft("move", "roses", "again", "--query", "name ~ '1'")["changed"] == 1
    assert (weft("show", "roses")["counts"]["pictures"], weft("files", "flowers")["total"]) == (1, 7)
    assert weft("clone", "flowers", "copy")["counts"]["films"] == 1
    weft("rm", "copy", "--yes")
    assert "must exist" in weft("show", "copy", code=2)
    assert "taken" in weft("create", "flowers", code=2)
    assert "did you mean" in weft("augment", "flowers", "x", "--step", "blurr", code=2)


def test_a_list_of_urls_is_fetched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture_file(tmp_path / "web", "a rose.jpg")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "web"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        serving = Thread(target=server.serve_forever, daemon=True)
        serving.start()
        home = f"http://127.0.0.1:{server.server_port}"
        (tmp_path / "urls.txt").write_text(f"# roses\n{home}/a%20rose.jpg\n\n{home}/none.jpg\n")
        line = ["vision", "data", "import", "flowers", str(tmp_path / "urls.txt"), "--create", "--json"]
        assert call([*line, "--library", str(tmp_path / "library")]) == 0
        server.shutdown()
        serving.join()
    done = json.loads(capsys.readouterr().out)
    assert (done["added"], done["left_out"]) == (1, 1)
    assert "none.jpg" in done["problems"][0]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"ftp://host/a.jpg", "line 1 of urls.txt"),
        (b"# none\n", "got none"),
        (b"\xff\xfe\x00", "other bytes"),
    ],
)
def test_what_is_no_list_of_urls_is_refused(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "urls.txt").write_bytes(data)
    with pytest.raises(PictureError, match=said):
        read_url_list(tmp_path / "urls.txt")


def test_tables_are_printed_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = ["--library", str(tmp_path / "library")]
    assert call(["vision", "data", "list", *place]) == 0
    assert "no data sets" in capsys.readouterr().out
    picture_file(tmp_path / "source/rose", "a.jpg")
    assert call(["vision", "data", "import", "flowers", str(tmp_path / "source"), "--create", *place]) == 0
    for verb in ("list", "show", "health", "versions", "files"):
        assert call(["vision", "data", verb, *(["flowers"] if verb != "list" else []), *place]) == 0
    told = capsys.readouterr().out
    assert "1 file added" in told
    assert "each category must be on 5 pictures" in told
    assert call(["vision", "data", "list", *place, "--url", "http://127.0.0.1:1"]) == 2
