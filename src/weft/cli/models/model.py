"""`weft model`: look into a model file, and keep models in a store."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weft.cli.paths import ExistingFile, OutputFolder, PossibleFolder
from weft.cli.values import NAME, THREADS, Shape, ValueType, Whole
from weft.errors import ModelError
from weft.text import suggestion

if TYPE_CHECKING:
    from weft.serve.describe import Latency, ModelDescription
    from weft.serve.store import Entry, Store


def _store_option(kind: ValueType) -> Callable[[Callable[..., None]], Callable[..., None]]:
    text = "The store ($WEFT_STORE, or a folder of the user's own)."
    return click.option("--store", type=kind, metavar="DIR", help=text)


def _json_option(function: Callable[..., None]) -> Callable[..., None]:
    return click.option("--json", "as_json", is_flag=True, help="Print it as data.")(function)


@click.group("model")
def command() -> None:
    """Look into models, and keep them in a store: NAME, NAME@VERSION or NAME@ALIAS."""


@command.command("show")
@click.argument("model", type=NAME, metavar="FILE.onnx|NAME[@VERSION]")
@click.option(
    "--runs",
    type=Whole(0, 1_000_000),
    default=20,
    show_default=True,
    help="Runs that latency is the median of; 0: do not run it.",
)
@click.option("--threads", type=THREADS, default=0, help="Threads to run it on (all cores we may use).")
@click.option(
    "--shape",
    "shapes",
    type=Shape(),
    multiple=True,
    metavar="[NAME=]3,224,224",
    help="One row, where axes are open.",
)
@_store_option(PossibleFolder())
@_json_option
def show(
    model: str,
    runs: int,
    threads: int,
    shapes: Sequence[tuple[str, tuple[int, ...]]],
    store: Path | None,
    as_json: bool,
) -> None:
    """Print a model's card, inputs, outputs, size, parameters, operations and latency."""
    from weft.serve.describe import describe, measure

    entry = None
    path = Path(model)
    if not (path.suffix == ".onnx" or path.is_file()):
        entry = _store(store).verify(model)
        path = entry.path
    found = describe(path)
    if shapes:
        found = describe(path, _sizes(shapes, found))
    latency, why = None, ""
    try:
        latency = measure(path, found, runs, threads) if runs > 0 else None
    except ModelError as error:  # all else can be told
        why = str(error)
    if as_json:
        data = asdict(found) | {"path": str(found.path), "card": found.card.to_json()}
        data["latency"] = asdict(latency) if latency else None
        data["entry"] = entry.to_json() if entry else None
        click.echo(json.dumps(data))
        return
    for name, value in _facts(found, latency or why, entry):
        click.echo(f"{name:12} {value}")


@command.command("push")
@click.argument("file", type=ExistingFile(), metavar="FILE.onnx")
@click.argument("name", type=NAME, required=False)
@click.option(
    "--alias", "aliases", multiple=True, help="Let this alias mean the new version; may be repeated."
)
@_store_option(OutputFolder())
@_json_option
def push(file: Path, name: str | None, aliases: Sequence[str], store: Path | None, as_json: bool) -> None:
    """Keep a copy of FILE as the next version of NAME, by default the name on its card."""
    _print([_store(store).push(file, name, aliases)], as_json)


@command.command("list")
@click.argument("name", type=NAME, required=False)
@_store_option(PossibleFolder())
@_json_option
def list_models(name: str | None, store: Path | None, as_json: bool) -> None:
    """Print what is in the store."""
    kept = _store(store)
    _print(kept.list(name), as_json, many=True)
    for error in kept.damaged().values() if name is None else ():
        click.echo(f"weft: left out: {error}", err=True)


@command.command("tag")
@click.argument("model", type=NAME, metavar="NAME[@VERSION]")
@click.argument("alias", type=NAME)
@_store_option(PossibleFolder())
@_json_option
def tag(model: str, alias: str, store: Path | None, as_json: bool) -> None:
    """Let ALIAS mean this version from now on."""
    _print([_store(store).tag(model, alias)], as_json)


@command.command("untag")
@click.argument("model", type=NAME, metavar="NAME@ALIAS")
@_store_option(PossibleFolder())
@_json_option
def untag(model: str, store: Path | None, as_json: bool) -> None:
    """Forget an alias; the version stays."""
    _print([_store(store).untag(model)], as_json)


@command.command("history")
@click.argument("model", type=NAME, metavar="NAME")
@_store_option(PossibleFolder())
@_json_option
def history(model: str, store: Path | None, as_json: bool) -> None:
    """Print which versions the aliases of NAME have meant, and since when."""
    changes = _store(store).history(model)
    if as_json:
        click.echo(json.dumps([asdict(change) for change in changes]))
        return
    for change in changes:
        meaning = f"version {change.version}" if change.version else "forgotten"
        click.echo(f"{change.at}  {change.alias:12} {meaning}")


@command.command("pull")
@click.argument("model", type=NAME, metavar="NAME[@VERSION]")
@click.option("-o", "--output", default=".", help="A file, or a folder that exists (here).")
@click.option("--force", is_flag=True, help="Replace what is there.")
@_store_option(PossibleFolder())
def pull(model: str, output: str, force: bool, store: Path | None) -> None:
    """Copy a version out of the store, its checksum verified; prints where it went."""
    click.echo(_store(store).pull(model, output, replace=force))


@command.command("rm")
@click.argument("model", type=NAME, metavar="NAME@VERSION")
@click.option("--all", "every", is_flag=True, help="Every version of NAME.")
@_store_option(PossibleFolder())
@_json_option
def rm(model: str, every: bool, store: Path | None, as_json: bool) -> None:
    """Remove a version that no alias means."""
    _print(_store(store).rm(model, every=every), as_json, many=True)


@command.command("verify")
@click.argument("model", type=NAME, metavar="NAME[@VERSION]", required=False)
@_store_option(PossibleFolder())
@_json_option
def verify(model: str | None, store: Path | None, as_json: bool) -> None:
    """Compare every byte of a version, or of all, with what was pushed."""
    kept = _store(store)
    entries = [kept.resolve(model)] if model else kept.list()
    faults = [] if model else list(kept.damaged().values())
    whole = []
    for entry in entries:
        try:
            whole.append(kept.verify(entry))
        except ModelError as error:
            faults.append(error)
    _print(whole, as_json, many=True)
    if faults:
        raise ModelError("\n".join(map(str, faults)))


def _store(folder: Path | None) -> Store:
    from weft.serve.store import Store

    return Store(folder)


def _print(entries: Sequence[Entry], as_json: bool, *, many: bool = False) -> None:
    from weft.text import format_size, format_table

    if as_json:
        data = [entry.to_json() for entry in entries]
        click.echo(json.dumps(data if many else data[0]))
        return
    if not entries:
        click.echo("no models; keep one with weft model push FILE.onnx", err=True)
        return
    rows = [("model", "aliases", "size", "sha256", "pushed")]
    rows += [
        (
            f"{entry.name}@{entry.version}",
            ", ".join(entry.aliases) or "-",
            format_size(entry.size),
            entry.sha256[:12],
            entry.created[:19].replace("T", " "),
        )
        for entry in entries
    ]
    click.echo("\n".join(format_table(rows, left=rows[0])))


def _sizes(
    shapes: Sequence[tuple[str, tuple[int, ...]]], found: ModelDescription
) -> dict[str, tuple[int, ...]]:
    sizes = {}
    known = [port.name for port in found.inputs]
    for place, (given, shape) in enumerate(shapes):
        name = given or known[min(place, len(known) - 1)]
        if name not in known:
            raise ModelError(
                f"--shape must be for an input of the model, got {name}; {suggestion(name, known)}"
            )
        sizes[name] = shape
    return sizes


def _facts(found: ModelDescription, latency: Latency | str, entry: Entry | None) -> list[tuple[str, str]]:
    from weft.text import format_seconds, format_size, plural

    card = found.card
    facts = [("name", card.name or found.path.stem)]
    if entry is not None:
        facts += [("version", f"{entry.version} ({', '.join(entry.aliases) or 'no alias'})")]
        facts += [("sha256", entry.sha256)]
    facts += [("task", card.task), ("file", f"{found.path}, {format_size(found.size)}, {card.precision}")]
    facts += [("input", str(port)) for port in found.inputs]
    facts += [("output", str(port)) for port in found.outputs]
    facts += [("parameters", f"{found.parameters:,}"), ("operations", _operations(found))]
    row = "one row"
    if found.row:
        row += " of " + ", ".join(f"{name} {list(sizes)}" for name, sizes in found.row.items())
    if isinstance(latency, str):
        facts += [("latency", latency and f"not measured: {latency}")]
    else:
        many = plural(latency.threads, "thread")
        facts += [
            (
                "latency",
                f"{format_seconds(latency.median_ms / 1e3)} for {row} (median of {latency.runs}, {many})",
            )
        ]
    if card.labels:
        more = f" ... ({len(card.labels)})" if len(card.labels) > 8 else ""
        facts += [("labels", ", ".join(card.labels[:8]) + more)]
    if card.features:
        facts += [("features", ", ".join(card.features))]
    for name, part in (("picture", card.picture), ("tokens", card.tokens)):
        if part is not None:
            facts += [(name, ", ".join(f"{key} {_plain(value)}" for key, value in asdict(part).items()))]
    if card.parity is not None:
        facts += [("parity", _parity(card.parity))]
    facts += [("run", card.run), ("notes", card.notes), ("exported", card.created)]
    facts += [("versions", ", ".join(f"{key} {value}" for key, value in card.versions.items()))]
    return [(name, value) for name, value in facts if value]


def _operations(found: ModelDescription) -> str:
    for unit, size in (("GFLOPs", 10**9), ("MFLOPs", 10**6), ("kFLOPs", 10**3)):
        if found.flops >= size:
            text = f"{found.flops / size:.3g} {unit}"
            break
    else:
        text = f"{found.flops} FLOPs"
    left = f", without {found.uncounted} of them of unknown shape" if found.uncounted else ""
    return f"{text} in Conv, Gemm and MatMul for one row{left}"


def _parity(parity: Any) -> str:
    text = f"largest difference {parity.largest:.2g} on {parity.samples} samples, batches {_plain(parity.batches)}"
    if parity.agreement is not None:
        text += f", same class {parity.agreement:.1%}"
    if parity.accuracy is not None:
        text += f", accuracy {parity.accuracy:.1%} (model {parity.accuracy_source:.1%})"
    return text


def _plain(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(_plain, value)) or "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
