"""`weft client`: ask a server, from a terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from weft.cli.paths import ExistingFile
from weft.cli.values import Url, Whole
from weft.errors import UsageError


@click.group("client")
def command() -> None:
    """Ask a server that speaks the open inference protocol V2."""


@command.command("infer")
@click.argument("url", type=Url())
@click.argument("model")
@click.argument("given", metavar="INPUT", type=ExistingFile())
@click.option("--version", metavar="V", help="A version of the model.")
@click.option("--key", envvar="WEFT_KEY", help="An API key; also WEFT_KEY.")
@click.option("--ca", type=ExistingFile(), help="Certificates to trust, PEM.")
@click.option(
    "--top", type=Whole(1, 10_000), default=5, show_default=True, help="Classes to show of a picture."
)
@click.option("--json", "as_json", is_flag=True, help="Print the answer as data.")
def infer(
    url: str,
    model: str,
    given: Path,
    version: str | None,
    key: str | None,
    ca: Path | None,
    top: int,
    as_json: bool,
) -> None:
    """Ask the MODEL of the server at URL about INPUT: a JPEG or PNG, or a JSON file.

    The JSON is a V2 request, an object of arrays by input name, or an array for the only input.
    """
    from weft.serve.client import Client

    with Client(url, key=key, ca=ca) as client:
        data = given.read_bytes()
        if data.startswith((b"\xff\xd8\xff", b"\x89PNG")):
            answer = client.picture(model, data, top=top)
        else:
            metadata = client.metadata(model, version)
            inputs = _inputs(_parsed(data, given), metadata["inputs"])
            outputs = client.infer(model, inputs, version=version)
            answer = {name: array.tolist() for name, array in outputs.items()}
            if not as_json and (lines := _classes(outputs, metadata, top)):
                click.echo("\n".join(lines))
                return
    if as_json:
        click.echo(json.dumps(answer))
        return
    for line in (
        answer if isinstance(answer, list) else [{"output": k, "values": v} for k, v in answer.items()]
    ):
        click.echo("  ".join(f"{name} {_shown(value)}" for name, value in line.items()))


@command.command("status")
@click.argument("url", type=Url())
@click.option("--key", envvar="WEFT_KEY", help="An API key; also WEFT_KEY.")
@click.option("--ca", type=ExistingFile(), help="Certificates to trust, PEM.")
@click.option("--json", "as_json", is_flag=True, help="Print it as data.")
def status(url: str, key: str | None, ca: Path | None, as_json: bool) -> None:
    """List the models of a server, and whether they are ready."""
    from weft.serve.client import Client

    with Client(url, key=key, ca=ca) as client:
        found = client.index()
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for entry in found:
        click.echo(f"{entry['name']:20} {entry['version'] or '-':8} {entry['state']:12} {entry['reason']}")


def _parsed(data: bytes, path: Path) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise UsageError(f"{path} must be a JPEG, a PNG or JSON: {error}") from None


def _inputs(given: Any, specs: list[dict[str, Any]]) -> dict[str, Any]:
    import numpy as np

    from weft.serve.server.protocols.tensors import NUMPY

    kinds = {spec["name"]: NUMPY[spec["datatype"]] for spec in specs}
    if isinstance(given, list):
        if len(specs) != 1:
            raise UsageError(f"the JSON must name the inputs {', '.join(kinds)}, got an array")
        given = {specs[0]["name"]: given}
    elif isinstance(given, dict) and isinstance(given.get("inputs"), list):
        given = {
            tensor["name"]: np.array(tensor["data"], kinds.get(tensor["name"])).reshape(tensor["shape"])
            for tensor in given["inputs"]
        }
    if not isinstance(given, dict) or not set(given) <= set(kinds):
        raise UsageError(f"the JSON must be an object of the inputs {', '.join(kinds)}")
    try:
        return {name: np.array(value, kinds[name]) for name, value in given.items()}
    except (ValueError, TypeError) as error:
        raise UsageError(f"the inputs must be arrays of numbers: {error}") from None


def _classes(outputs: dict[str, Any], metadata: dict[str, Any], top: int) -> list[str]:
    """Return a line a row with its best classes, if the server says that the model classifies."""
    from weft.serve.card import Card
    from weft.serve.server.pictures.answers import classes

    parameters = metadata.get("parameters")
    if not isinstance(parameters, dict) or parameters.get("task") != "classify":
        return []
    card = Card(task="classify", labels=tuple(map(str, parameters.get("labels", ()))))
    count = min(len(array) if array.ndim else 0 for array in outputs.values())
    lines: list[str] = []
    for row in range(count):
        found = classes({name: array[row : row + 1] for name, array in outputs.items()}, card, top)
        best = "  ".join(f"{one['label']} {one['confidence']:.4f}" for one in found)
        lines.append(f"row {row}: {best}" if count > 1 else best)
    return lines


def _shown(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
