"""The library: imports that survive a kill, versions, queries, duplicates, health, many pictures."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from testing.vision.made_pictures import encoded, picture_file, with_exif

from weft.errors import PictureError
from weft.vision import open_data
from weft.vision.formats import write
from weft.vision.library import ClassEntry, FileFilter, Library
from weft.vision.library.health import HealthFile, judge, near_pairs
from weft.vision.library.importing import shown_name
from weft.vision.library.labelling import doubt_about
from weft.vision.library.marks.settings import read_setting, write_setting
from weft.vision.library.queries import Compared, Joined, parse_query
from weft.vision.library.rows import file_row
from weft.vision.library.tables import file
from weft.vision.pictures import encode_jpeg
from weft.vision.records import LabelledShape
from weft.vision.refusals import (
    LabelsChangedError,
    PicturesConflictError,
    PicturesForbiddenError,
    PicturesNotFoundError,
)
from weft.vision.splits import split_by_content

IMPORT = """
import os, signal, sys
from weft.vision.library import Library
from weft.vision.library.marks.settings import read_setting, write_setting
from weft.vision.library import importing
from weft.vision.library.marks.settings import read_setting, write_setting
importing.BATCH = 8
def report(done, total):
    pass
whole = importing._insert
calls = 0
def insert(*args):
    global calls
    whole(*args)
    calls += 1
    if calls == 3:
        print("now", flush=True)
        signal.pause()
importing._insert = insert
with Library(sys.argv[1]) as library:
    library.import_from("all", sys.argv[2])
"""


def _ids(library: Library, name: str, **wanted: Any) -> list[str]:
    return [one.name for one in library.files(name, FileFilter(**wanted), limit=1000).files]


def test_a_killed_import_leaves_whole_pictures_and_goes_on(tmp_path: Path) -> None:
    for seed in range(40):
        picture_file(tmp_path / "source" / ("rose" if seed % 2 else "tulip"), f"{seed:02}.jpg", seed=seed)
    with Library(tmp_path / "library") as library:
        library.create("all")
    process = subprocess.Popen(
        [sys.executable, "-c", IMPORT, str(tmp_path / "library"), str(tmp_path / "source")],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"now\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    with Library(tmp_path / "library") as library:
        assert library.dataset("all").counts.pictures == 24
        for one in library.files("all", limit=100).files:
            path, _ = library.picture_path(one.id)
            assert path.read_bytes() == encoded(seed=int(Path(one.name).stem))
            assert one.category in ("rose", "tulip")
        done = library.import_from("all", tmp_path / "source")
        assert (done.added, done.there, done.left_out) == (16, 24, 0)
        assert sorted(_ids(library, "all")) == [f"{seed:02}.jpg" for seed in range(40)]


def test_labels_are_saved_over_their_own_revision_alone(library: Library) -> None:
    library.create("cells")
    one = library.add("cells", encoded(), "a.jpg")
    shape = LabelledShape(label="wbc", box=(1, 1, 9, 9))
    first = library.save_labels(one.id, 0, [shape], "blood", review="review", by="ann")
    with pytest.raises(LabelsChangedError) as refused:
        library.save_labels(one.id, 0, [])
    assert refused.value.present.shapes == first.shapes
    assert refused.value.present.updated_by == "ann"
    again = library.save_labels(one.id, 1, first.shapes)
    assert again.shapes == first.shapes  # with the ids that they were given
    assert (again.category, again.review, again.revision) == (None, "review", 2)


def test_versions_are_frozen_once_and_never_change(library: Library, tmp_path: Path) -> None:
    library.create("cells")
    one = library.add("cells", encoded(), "a.jpg", category="x")
    first = library.version("cells")
    assert library.version("cells").number == first.number == 1
    library.save_labels(one.id, 0, [LabelledShape(label="a", box=(0, 0, 5, 5))])
    assert library.version("cells").number == 2
    library.remove_file(one.id)
    library.sweep()
    again = library.version("cells@1")
    assert again == first
    assert again.pictures[0].path.read_bytes() == encoded()
    with pytest.raises(PicturesNotFoundError, match="one of 2, 1"):
        library.version("cells@7")
    with pytest.raises(PictureError, match="must have pictures"):
        library.version("cells")
    assert open_data("cells@1", library.folder) == first
    path = next((library.folder / "versions").glob("*/1.jsonl.gz"))
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(PictureError, match="whole version"):
        library.version("cells@1")


def test_what_is_imported_and_exported_again_is_the_same(library: Library, tmp_path: Path) -> None:
    library.create("one")
    photo = with_exif(encoded(width=32, height=24), 6, camera="X100", maker="Y")
    one = library.add("one", photo, "a.jpg")
    library.save_labels(one.id, 0, [LabelledShape(label="a", box=(0, 0, 5, 5), confidence=0.5)], "c")
    library.save_metadata(one.id, {"place": "Bern"})
    before = library.version("one")
    for format in ("coco", "yolo", "voc", "ibm", "folders"):
        write(before, tmp_path / format, format)
        library.create(format)
        library.import_from(format, tmp_path / format)
        assert library.version(format).digest == before.digest, format


def test_users_see_what_is_theirs_or_shared(library: Library) -> None:
    library.create("hers", user="ann")
    library.create("hers", user="ben")  # names are each owner's own
    one = library.add("hers", encoded(), "a.jpg", user="ann")
    assert [view.owner for view in library.datasets("ben")] == ["ben"]
    with pytest.raises(PicturesNotFoundError):
        library.file(one.id, "ben")
    ann = library.dataset("hers", "ann")
    library.change(ann.id, shares=("*",), user="ann")
    assert library.file(one.id, "ben").name == "a.jpg"
    with pytest.raises(PicturesForbiddenError):
        library.remove(ann.id, "ben")
    with pytest.raises(PicturesConflictError):
        library.create("hers", user="ann")
    assert len(library.datasets(None)) == 2


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ('camera == "X1"', ["a.jpg"]),
        ("camera", ["a.jpg", "b.jpg"]),
        ("not camera", ["c.jpg"]),
        ("camera ~ x", ["a.jpg", "b.jpg"]),
        ('camera != "X1"', ["b.jpg", "c.jpg"]),
        ("width > 40", ["c.jpg"]),
        ("width <= 40 and (camera == X2 or name == 'a.jpg')", ["a.jpg", "b.jpg"]),
        ("score >= 2.5", ["b.jpg"]),
        ("score == 2", ["a.jpg"]),
        ('label == "cat"', ["c.jpg"]),
        ("label and not camera", ["c.jpg"]),
        ('name ~ "%"', []),
        ("", ["a.jpg", "b.jpg", "c.jpg"]),
    ],
)
def test_queries(library: Library, query: str, names: list[str]) -> None:
    library.create("all")
    for name, camera, score in (("a.jpg", "X1", "2"), ("b.jpg", "X2", "10")):
        one = library.add("all", with_exif(encoded(), camera=camera), name)
        library.save_metadata(one.id, {"score": score})
    other = library.add("all", encoded(width=64), "c.jpg")
    library.save_labels(other.id, 0, [LabelledShape(label="cat", box=(0, 0, 5, 5))])
    assert _ids(library, "all", query=query, sort="name") == names


@pytest.mark.parametrize(
    "query", ["width >", "and", "(a", "a)", "a == == b", "width > wide", "label < a", "a b", '"']
)
def test_queries_that_cannot_be_read_are_refused(library: Library, query: str) -> None:
    library.create("all")
    with pytest.raises(PictureError, match="a query must have"):
        library.files("all", FileFilter(query=query))


@given(st.text(max_size=40))
def test_any_text_is_a_query_or_is_refused(text: str) -> None:
    try:
        found = parse_query(text)
    except PictureError:
        return
    assert found is None or isinstance(found, Compared | Joined)


def test_pages_of_every_order_have_each_file_once(library: Library) -> None:
    library.create("all")
    for seed in range(7):
        one = library.add("all", encoded(seed=seed), f"{seed * 3 % 7}.jpg")
        if seed % 2:
            made = LabelledShape(label="a", box=(0, 0, 5, 5), confidence=seed / 10)
            library.save_labels(one.id, 0, [made])
    for sort in ("added", "-added", "name", "-name", "confidence", "-confidence", "updated", "-updated"):
        names: list[str] = []
        after = None
        while True:
            page = library.files("all", FileFilter(sort=sort), after=after, limit=3)
            assert page.total == 7
            names += [one.name for one in page.files]
            after = page.next
            if after is None:
                break
        assert sorted(names) == [f"{number}.jpg" for number in range(7)], sort
        if sort == "name":
            assert names == sorted(names)
    with pytest.raises(PictureError, match="page before"):
        library.files("all", after="nonsense")


def test_health_names_what_is_wrong() -> None:
    def one(identity: str, **given: Any) -> HealthFile:
        fields: dict[str, Any] = {
            "sha256": identity,
            "width": 100,
            "height": 100,
            "split": "train",
            "state": "labelled",
            "review": "",
            "category": None,
            "shapes": (),
        }
        return HealthFile(id=identity, **(fields | given))

    large = LabelledShape(label="a", box=(0, 0, 50, 50))
    files = [
        *(one(f"a{number}", shapes=(large,)) for number in range(60)),
        one("u", state="unlabelled"),
        one("out", shapes=(LabelledShape(label="b", box=(90, 90, 130, 99)),)),
        one("tiny", shapes=(LabelledShape(label="b", box=(0, 0, 2, 2)),)),
        one("d1", sha256="same", likeness=7, shapes=(large,), doubt=0.6),
        one("d2", sha256="same", likeness=7, shapes=(large,)),
        one("n", likeness=5, shapes=(large,), doubt=0.9),
    ]
    found = {issue.kind: issue for issue in judge(files, ("a", "b"), ()).issues}
    assert found["unlabelled"].files == ("u",)
    assert found["outside"].files == ("out",)
    assert found["tiny"].files == ("tiny",)
    assert found["duplicates"].files == ("d1", "d2")
    assert set(found["near_duplicates"].files) == {"d1", "d2", "n"}
    assert found["suspicious"].files == ("n", "d1")
    assert "b (2)" in found["few"].text
    assert found["imbalance"].level == "warning"


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=12), st.integers(0, 63), st.integers(0, 63))
def test_near_pairs_are_those_that_differ_in_few_bits(hashes: list[int], one: int, two: int) -> None:
    if hashes:
        hashes = [*hashes, hashes[0] ^ (1 << one % 63) ^ (1 << two % 63)]
    expected = [
        (a, b)
        for a in range(len(hashes))
        for b in range(a + 1, len(hashes))
        if ((hashes[a] ^ hashes[b]) & (1 << 64) - 1).bit_count() <= 3
    ]
    assert near_pairs(hashes) == expected


def test_duplicates_are_found_skipped_and_told(library: Library, tmp_path: Path) -> None:
    library.create("all")
    for name in ("a.jpg", "b.jpg"):
        library.add("all", encoded(width=200, height=150), name)
    texture = np.random.default_rng(1).integers(0, 256, (15, 20, 3), np.uint8).repeat(10, 0).repeat(10, 1)
    for quality in (95, 75):
        library.add("all", encode_jpeg(texture, quality), f"{quality}.jpg")
    library.add("all", encoded(seed=9), "other.jpg")
    found = {issue.kind: issue.count for issue in library.health("all", near=True).issues}
    assert found["duplicates"] == 2
    assert found["near_duplicates"] == 2
    again = library.add("all", encoded(width=200, height=150), "c.jpg", skip_duplicates=True)
    assert again.name == "a.jpg"
    picture_file(tmp_path / "more", "x.jpg", 200, 150)
    assert library.import_from("all", tmp_path / "more", skip_duplicates=True).there == 1


def test_a_model_that_disagrees_makes_labels_suspicious(library: Library) -> None:
    cat = LabelledShape(label="cat", box=(0, 0, 10, 10))
    dog = LabelledShape(label="dog", box=(0, 0, 10, 10), confidence=0.9)
    assert doubt_about([cat], [dog]) == (0.9, "cat looks like dog (0.90)")
    assert doubt_about([cat], [LabelledShape(label="cat", box=(0, 0, 10, 11), confidence=0.9)])[0] == 0
    assert doubt_about([], [dog])[0] == pytest.approx(0.72)
    assert doubt_about([cat], [])[0] == 0.5
    library.create("all")
    one = library.add("all", encoded(), "a.jpg")
    library.save_labels(one.id, 0, [cat])
    library.doubt("all", "m@1", {one.id: [dog]})
    assert [issue.files for issue in library.health("all").issues if issue.kind == "suspicious"] == [
        (one.id,)
    ]
    library.save_labels(one.id, 1, [LabelledShape(label="dog", box=(0, 0, 10, 10))])
    assert not [issue for issue in library.health("all").issues if issue.kind == "suspicious"]


def test_splits_stay_when_pictures_are_added() -> None:
    digests = [f"{number:064x}" for number in range(2000)]
    splits = [split_by_content(digest) for digest in digests]
    assert splits == [split_by_content(digest) for digest in digests]
    shares = [splits.count(name) / len(splits) for name in ("train", "validation", "test")]
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=0.03)


def test_a_hundred_thousand_pictures_are_paged(library: Library) -> None:
    made = library.create("many")
    rows = [
        file_row(
            dataset_id=made.id,
            name=f"{number:06}.jpg",
            kind="picture",
            media="JPEG",
            sha256=f"{number:064x}",
            bytes=1,
            width=10,
            height=10,
            split="train",
        )
        for number in range(100_000)
    ]
    with library.store.writing() as connection:
        connection.execute(sa.insert(file), rows)
    page = library.files("many", FileFilter(sort="-name"), limit=100)
    assert (page.total, page.files[0].name) == (100_000, "099999.jpg")
    following = library.files("many", FileFilter(sort="-name"), after=page.next, limit=100)
    assert following.files[0].name == "099899.jpg"
    assert library.dataset("many").counts.unlabelled == 100_000


def test_names_that_would_break_a_page_are_made_plain() -> None:
    assert shown_name("a\nb\x1b[31m.jpg") == "a\ufffdb\ufffd[31m.jpg"
    assert shown_name("<script>.jpg") == "<script>.jpg"  # pages show it as text


def test_removed_data_sets_leave_no_pictures(library: Library) -> None:
    library.create("gone")
    one = library.add("gone", encoded(), "a.jpg")
    path, _ = library.picture_path(one.id)
    library.thumbnail(one.id, 64)
    library.remove("gone")
    for blob in (path, *library.folder.glob("thumbnails/*/*")):
        os.utime(blob, (1, 1))
    assert library.sweep() == 2
    assert not path.exists()


def test_labels_are_renamed_by_swapping(library: Library) -> None:
    library.create("all")
    one = library.add("all", encoded(), "a.jpg")
    library.save_labels(one.id, 0, [LabelledShape(label=name, box=(0, 0, 5, 5)) for name in ("a", "b")])
    library.set_classes("all", labels=[ClassEntry("a", was="b"), ClassEntry("b", was="a")])
    assert [shape.label for shape in library.file(one.id).shapes] == ["b", "a"]


def test_a_library_of_a_newer_weft_is_refused(library: Library) -> None:
    with library.store.writing() as connection:
        connection.exec_driver_sql("INSERT INTO vision_schema VALUES (99)")
    with pytest.raises(PictureError, match="upgrade weft"):
        Library(library.folder)


def test_an_import_of_nothing_says_so(library: Library, tmp_path: Path) -> None:
    library.create("all")
    (tmp_path / "empty").mkdir()
    with pytest.raises(PictureError, match="must have pictures"):
        library.import_from("all", tmp_path / "empty")
    with pytest.raises(PicturesNotFoundError):
        library.import_from("none", tmp_path / "empty")
    shutil.rmtree(tmp_path / "empty")


def test_a_library_of_an_older_release_is_brought_to_todays_tables(tmp_path: Path) -> None:
    with Library(tmp_path / "library") as library:
        library.create("old")
        with library.store.writing() as connection:
            for table in ("vision_action", "vision_setting"):
                connection.exec_driver_sql(f"DROP TABLE {table}")
            connection.exec_driver_sql("UPDATE vision_schema SET number = 0")
    with Library(tmp_path / "library") as library:
        identity = library.dataset("old").id
        with library.store.writing() as connection:
            write_setting(connection, identity, "keys", {"a": 1})
        with library.store.reading() as connection:
            assert read_setting(connection, identity, "keys") == {"a": 1}
    with Library(tmp_path / "library") as library:  # a second time there is nothing to do
        assert library.dataset("old").name == "old"
