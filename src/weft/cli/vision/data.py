"""`weft vision data`: data sets of pictures and films, in a library of this machine or on a jobs service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from weft.cli.jobs.options import confirm, print_data, print_removed, yes_option
from weft.cli.jobs.printing import moment, plain
from weft.cli.paths import ExistingPath
from weft.cli.values import NameValue, Real, Text, ValueType, Whole
from weft.cli.vision.chosen_files import copy, files, move
from weft.cli.vision.options import NAME, place_options, progress
from weft.cli.vision.places import open_place
from weft.errors import UsageError
from weft.text import format_table, plural
from weft.vision.views import VisionDataset

REFERENCE = Text(
    "a data set, or one version of it", "flowers@3", like=r"[^@/\\\x00-\x1f]{1,64}(@[0-9]{1,9})?"
)
LINE = Text("a line of text", "with labels of May", like=r"[^\x00]{1,10000}")
FORMATS = ("coco", "yolo", "voc", "ibm", "folders")
SHOWN_PROBLEMS = 10


class StepValue(NameValue):
    """One way to change pictures, and its level: `rotate=0.5`."""

    def __init__(self) -> None:
        super().__init__("KIND=LEVEL", "rotate=0.5", empty=False)

    def parse(self, text: str, param: click.Parameter | None) -> Any:
        kind, level = super().parse(text if "=" in text else f"{text}=0.5", param)
        try:
            value = float(level)
        except ValueError:
            self.refuse(text, param)
        if not 0 <= value <= 1:
            self.refuse(text, param)
        return kind, value


class ExportPath(ValueType):
    """A folder or a zip that is not there yet."""

    name = "path"
    must = "a folder or a .zip to make"
    example = "flowers.zip"

    def parse(self, text: str, param: click.Parameter | None) -> Path:
        if not text or "\0" in text:
            self.refuse(text, param)
        return Path(text)


@click.group("data")
def command() -> None:
    """Keep data sets of pictures and films: import, label counts, versions, health, export, augmentation.

    Without --url they are in a library on this machine.
    """


for verb in (files, copy, move):
    command.add_command(verb)


@command.command("list")
@place_options
def list_datasets(library: Path | None, url: str | None, as_json: bool) -> None:
    """Print all data sets."""
    with open_place(library, url) as place:
        found = place.datasets()
    if as_json:
        print_data(found)
        return
    if not found:
        click.echo("no data sets; make one with weft vision data create NAME")
        return
    rows: list[tuple[str, ...]] = [
        ("data set", "pictures", "films", "labelled", "auto", "unlabelled", "version", "changed", "labels")
    ]
    for one in found:
        counts = one.counts
        labels = ", ".join(label.name for label in (*one.labels, *one.categories)[:6])
        numbers = (counts.pictures, counts.films, counts.labelled, counts.auto, counts.unlabelled)
        rows.append(
            (
                plain(one.name),
                *map(str, numbers),
                str(one.newest_version or "-"),
                moment(one.updated_ms),
                plain(labels),
            )
        )
    click.echo("\n".join(format_table(rows, left=("data set", "changed", "labels"))))


@command.command("create")
@click.argument("name", type=NAME)
@click.option("--description", type=LINE, help="What the data set is.")
@place_options
def create(name: str, description: str | None, library: Path | None, url: str | None, as_json: bool) -> None:
    """Make an empty data set."""
    with open_place(library, url) as place:
        made = place.create(name, description or "")
    _print_dataset(made, as_json)


@command.command("import")
@click.argument("name", type=NAME)
@click.argument("source", type=ExistingPath())
@click.option(
    "--skip-duplicates", is_flag=True, help="Leave out pictures that are there already, byte for byte."
)
@click.option("--create", "creates", is_flag=True, help="Make the data set if it is not there.")
@place_options
def import_data(
    name: str,
    source: Path,
    skip_duplicates: bool,
    creates: bool,
    library: Path | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Import a folder, a zip, a picture, a film, a file of labels, or a .txt with the URL of a picture in each line.

    Class folders, COCO, YOLO, Pascal VOC, LabelMe, CVAT, Label Studio, VIA, Create ML, tables of labels, masks and the
    zip of IBM's PowerAI Vision are told apart by what is in them. An import that was interrupted goes on when it is
    started again.
    """
    with open_place(library, url) as place:
        if creates and name not in [one.name for one in place.datasets()]:
            place.create(name, "")
        done = place.bring_in(name, source, skip_duplicates, progress(as_json))
    if as_json:
        print_data(done)
        return
    there = f", {done['there']} there already" if done["there"] else ""
    left = f", {done['left_out']} left out" if done["left_out"] else ""
    click.echo(f"{plain(name)}: {plural(done['added'], 'file')} added{there}{left}")
    for problem in done["problems"][:SHOWN_PROBLEMS]:
        click.echo(f"  {plain(problem)}", err=True)
    if len(done["problems"]) > SHOWN_PROBLEMS:
        click.echo(f"  and {len(done['problems']) - SHOWN_PROBLEMS} more; --json has them", err=True)


@command.command("export")
@click.argument("reference", type=REFERENCE, metavar="NAME[@VERSION]")
@click.argument("path", type=ExportPath())
@click.option(
    "--format", "kind", type=click.Choice(FORMATS), default="coco", show_default=True, help="The format."
)
@place_options
def export(
    reference: str, path: Path, kind: str, library: Path | None, url: str | None, as_json: bool
) -> None:
    """Write a data set into a new folder or a .zip, as it is now or as a version was."""
    with open_place(library, url) as place:
        written = place.export(reference, path, kind)
    print_data({"path": str(written), "format": kind}) if as_json else click.echo(f"written to {written}")


@command.command("show")
@click.argument("name", type=NAME)
@place_options
def show(name: str, library: Path | None, url: str | None, as_json: bool) -> None:
    """Print one data set: counts, labels, categories."""
    with open_place(library, url) as place:
        found = place.dataset(name)
    _print_dataset(found, as_json)


def _print_dataset(found: VisionDataset, as_json: bool) -> None:
    if as_json:
        print_data(found)
        return
    counts = found.counts
    click.echo(
        f"{plain(found.name)}: {plural(counts.pictures, 'picture')}, {plural(counts.films, 'film')}; "
        f"{counts.labelled} labelled, {counts.auto} by a model, {counts.unlabelled} unlabelled"
    )
    if found.description:
        click.echo(plain(found.description))
    rows = [("label", "kind", "pictures", "colour")]
    rows += [(plain(one.name), "objects", str(one.pictures), one.colour) for one in found.labels]
    rows += [(plain(one.name), "pictures", str(one.pictures), one.colour) for one in found.categories]
    if len(rows) > 1:
        click.echo("\n".join(format_table(rows, left=("label", "kind", "colour"))))


@command.command("health")
@click.argument("name", type=NAME)
@click.option("--near", is_flag=True, help="Look for near duplicates, too: every picture is looked at once.")
@place_options
def health(name: str, near: bool, library: Path | None, url: str | None, as_json: bool) -> None:
    """Print what is wrong with a data set: balance, sizes, odd shapes, duplicates, doubtful labels."""
    with open_place(library, url) as place:
        found = place.health(name, near, progress(as_json))
    if as_json:
        print_data(found)
        return
    rows: list[tuple[str, ...]] = [("class", "pictures", "shapes", "train", "validation", "test")]
    for one in (*found.labels, *found.categories):
        splits = [str(one.splits.get(split, 0)) for split in ("train", "validation", "test")]
        rows.append((plain(one.name), str(one.pictures), str(one.shapes), *splits))
    click.echo("\n".join(format_table(rows, left=("class",))))
    for issue in found.issues:
        click.echo(f"{issue.level}: {plain(issue.text)} ({issue.count})")
    if not found.issues:
        click.echo("nothing is wrong")


@command.command("versions")
@click.argument("name", type=NAME)
@click.option("--freeze", is_flag=True, help="Freeze a version first, if anything has changed.")
@click.option("--note", type=LINE, help="What is new in it.")
@place_options
def versions(
    name: str, freeze: bool, note: str | None, library: Path | None, url: str | None, as_json: bool
) -> None:
    """Print the versions of a data set, newest first."""
    if note and not freeze:
        raise UsageError("--note must be given with --freeze, got it alone; add --freeze")
    with open_place(library, url) as place:
        if freeze:
            place.freeze(name, note or "")
        found = place.versions(name)
    if as_json:
        print_data(found)
        return
    if not found:
        click.echo(f"no versions; freeze one with weft vision data versions {plain(name)} --freeze")
        return
    rows = [("version", "pictures", "shapes", "digest", "frozen", "note")]
    rows += [
        (
            str(one.number),
            str(one.pictures),
            str(one.shapes),
            one.digest[:12],
            moment(one.created_ms),
            plain(one.note),
        )
        for one in found
    ]
    click.echo("\n".join(format_table(rows, left=("digest", "frozen", "note"))))


@command.command("augment")
@click.argument("name", type=NAME)
@click.argument("made", type=NAME)
@click.option(
    "--step",
    "steps",
    type=StepValue(),
    multiple=True,
    required=True,
    metavar="KIND[=LEVEL]",
    help="blur, sharpen, colour, crop, flip_left_right, flip_top_bottom, rotate or noise; level 0 to 1.",
)
@click.option("--without-originals", is_flag=True, help="Only the changed pictures.")
@click.option("--seed", type=Whole(0, 2**31), default=0, show_default=True, help="What chance depends on.")
@place_options
def augment(
    name: str,
    made: str,
    steps: tuple[tuple[str, float], ...],
    without_originals: bool,
    seed: int,
    library: Path | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Make a data set MADE of the pictures of NAME, changed in each of the given ways; shapes move along."""
    with open_place(library, url) as place:
        found = place.augment(name, made, steps, not without_originals, seed, progress(as_json))
    _print_dataset(found, as_json)


@command.command("frames")
@click.argument("name", type=NAME)
@click.argument("film", type=Text("the name or id of a film", "drive.mp4", like=r"[^\x00-\x1f]{1,500}"))
@click.option(
    "--every", "every_s", type=Real(0.001, 86400.0), metavar="SECONDS", help="A frame every so often."
)
@click.option(
    "--at", "times_s", type=Real(0.0, 1e6), multiple=True, metavar="SECONDS", help="A frame at this time."
)
@place_options
def frames(
    name: str,
    film: str,
    every_s: float | None,
    times_s: tuple[float, ...],
    library: Path | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Capture frames of a film of a data set as pictures of it."""
    if (every_s is None) == (not times_s):
        raise UsageError(
            "frames must be captured --every so many seconds or --at times, got both or none; give one"
        )
    with open_place(library, url) as place:
        count = place.frames(name, film, times_s, every_s, progress(as_json))
    print_data({"frames": count}) if as_json else click.echo(f"{plural(count, 'frame')} captured")


@command.command("clone")
@click.argument("name", type=NAME)
@click.argument("made", type=NAME)
@place_options
def clone(name: str, made: str, library: Path | None, url: str | None, as_json: bool) -> None:
    """Copy a data set NAME with its labels as MADE; pictures are kept once."""
    with open_place(library, url) as place:
        found = place.clone(name, made)
    _print_dataset(found, as_json)


@command.command("rm")
@click.argument("name", type=NAME)
@yes_option
@place_options
def remove(name: str, yes: bool, library: Path | None, url: str | None, as_json: bool) -> None:
    """Remove a data set with its labels, versions and pictures."""
    confirm(f"Remove {name} with its pictures?", yes)
    with open_place(library, url) as place:
        place.remove(name)
    print_removed(name, as_json)
