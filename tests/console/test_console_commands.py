"""Commands that pages tell people to type are commands that there are."""

from __future__ import annotations

import re

import click
from testing.console.browser import WEB

from weft.cli import group

_COMMAND = re.compile(r"""[`"'](weft [a-z][^`"'\n]*)[`"']""")
# places.tsx puts the rest around these.
_OF_VISION = re.compile(r"""visionCommand\([`"']([a-z][^`"'\n]*)[`"']\)""")


def told() -> dict[str, str]:
    """Return every command of the pages' source, with the file that tells it."""
    files = [path for path in (WEB / "src").rglob("*.ts*") if ".test." not in path.name]
    found: dict[str, str] = {}
    for path in files:
        text = path.read_text()
        found |= dict.fromkeys(_COMMAND.findall(text), path.name)
        found |= {f"weft vision {words} --url x": path.name for words in _OF_VISION.findall(text)}
    return {line: name for line, name in found.items() if not line.startswith("weft vision ${words}")}


def problem(line: str) -> str | None:
    """Return what is wrong with a command, as far as its words and options go."""
    command: click.Command = group
    context = click.Context(group, info_name="weft")
    words = line.split(" -- ")[0].split()[1:]  # what comes after belongs to a script
    while words and isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        if found is None:
            return f"{command.name} has no {words[0]}"
        command, context = found, click.Context(found, info_name=words.pop(0), parent=context)
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    script = next((place for place, word in enumerate(words) if word.endswith(".py")), len(words))
    wrong = [word for word in words[:script] if word.startswith("--") and word.split("=")[0] not in known]
    return f"{command.name} has no {wrong[0]}" if wrong and not isinstance(command, click.Group) else None


def test_every_command_of_a_page_exists() -> None:
    lines = told()
    assert len(lines) > 10
    assert "weft vision data import cells ./pictures --create --url x" in lines
    assert {line: (file, problem(line)) for line, file in lines.items() if problem(line)} == {}


def test_a_command_that_is_none_is_found() -> None:
    assert problem("weft vision data version cells") == "data has no version"
    assert problem("weft vision data versions cells --frozen") == "versions has no --frozen"
