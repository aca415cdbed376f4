"""The library of data sets with its tables in PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest
from testing.vision.made_pictures import encoded, picture_file

from weft.vision.library import FileFilter, Library
from weft.vision.records import LabelledShape
from weft.vision.refusals import LabelsChangedError


def test_a_library_in_postgresql_does_what_one_in_sqlite_does(postgres: str | None, tmp_path: Path) -> None:
    if postgres is None:
        pytest.skip("PostgreSQL is not installed")
    for seed in range(5):
        picture_file(tmp_path / "source" / ("rose" if seed % 2 else "tulip"), f"{seed}.jpg", seed=seed)
    with Library(tmp_path / "library", postgres) as library:
        library.create("flowers", user="ann")
        assert library.import_from("flowers", tmp_path / "source", user="ann").added == 5
        assert library.import_from("flowers", tmp_path / "source", user="ann").there == 5
        one = library.add("flowers", encoded(seed=9), "x.jpg", user="ann")
        library.save_labels(
            one.id, 0, [LabelledShape(label="petal", box=(0, 0, 5, 5), confidence=0.5)], user="ann"
        )
        with pytest.raises(LabelsChangedError):
            library.save_labels(one.id, 0, [], user="ann")
        library.save_metadata(one.id, {"iso": "400"}, "ann")
        for query, count in (("iso >= 400", 1), ("not label", 5), ('category == "rose" and width > 30', 2)):
            assert library.files("flowers", FileFilter(query=query), user="ann").total == count
        for sort in ("name", "-confidence", "updated"):
            page = library.files("flowers", FileFilter(sort=sort), limit=4, user="ann")
            rest = library.files("flowers", FileFilter(sort=sort), after=page.next, limit=4, user="ann")
            assert len({file.id for file in (*page.files, *rest.files)}) == 6
        assert library.version("flowers", "ann").number == 1
        assert library.health("flowers", near=True, user="ann").counts.auto == 1
        assert library.change_files("flowers", "accept", ids=[one.id], user="ann") == (1, 0)
        assert library.clone("flowers", "copy", "ann").counts.pictures == 6
        library.remove("flowers", "ann")
    with Library(tmp_path / "library", postgres) as library:
        assert [view.name for view in library.datasets("ann")] == ["copy"]
