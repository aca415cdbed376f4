"""`weft serve`: models behind the open inference protocol; `weft serve keys`: who may call."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weft.cli.paths import ExistingFile, ExistingFolder, OutputFile
from weft.cli.values import (
    COUNT,
    PORT_OR_ANY,
    THREADS,
    Cidr,
    NameValue,
    Real,
    Seconds,
    Size,
    ValueType,
    Whole,
)
from weft.errors import UsageError
from weft.text import suggestion

if TYPE_CHECKING:
    from weft.serve.server.options import ModelOptions, Traffic
    from weft.serve.store import Store


KEYS = ExistingFile("a file of keys", advice="`weft serve keys add` makes one")


class Canary(ValueType):
    """A model's name, the alias of another version, and that version's share of the requests in per cent."""

    name = "canary"
    must = "of the form NAME=ALIAS:PERCENT"
    example = "digits=staging:10"

    def parse(self, text: str, param: click.Parameter | None) -> tuple[str, str, float]:
        name, _, rest = text.partition("=")
        alias, _, percent = rest.rpartition(":")
        if not name or not alias:
            self.refuse(text, param)
        return name, alias, Real(0, 100, example=10).parse(percent, param)


class Serve(click.Command):
    """A command whose first word may be `keys`, which has commands of its own."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args[:1] == ["keys"]:
            return keys.make_context(f"{info_name} keys", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command("serve", cls=Serve)
@click.argument("models", nargs=-1)
@click.option(
    "--store",
    type=ExistingFolder(),
    metavar="DIR",
    help="A store of models: serve all of it, or the names that are given.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", type=PORT_OR_ANY, default=8000, show_default=True, help="For REST; 0: any that is free."
)
@click.option(
    "--grpc-port", type=PORT_OR_ANY, default=8001, show_default=True, help="For gRPC; 0: any that is free."
)
@click.option("--no-grpc", is_flag=True, help="REST only.")
@click.option(
    "--max-batch",
    type=Whole(1, 65_536),
    help="Most rows in one run; 1: no batching. By default 16 where that pays.",
)
@click.option(
    "--delay-ms",
    type=Real(0, 60_000),
    default=0.0,
    show_default=True,
    help="How long a request may wait for others to join its batch.",
)
@click.option(
    "--replicas",
    type=Whole(1, 1024),
    default=1,
    show_default=True,
    help="Copies of each model that run side by side.",
)
@click.option(
    "--queue", type=COUNT, default=256, show_default=True, help="Requests that may wait; one more gets 429."
)
@click.option(
    "--timeout-s",
    type=Seconds(above=0),
    default=30.0,
    show_default=True,
    help="The longest that a request may take.",
)
@click.option(
    "--threads",
    type=THREADS,
    default=0,
    show_default=True,
    help="Threads of a replica; 0: its share of the cores.",
)
@click.option("--device", default="auto", show_default=True, help="auto, cpu or cuda.")
@click.option(
    "--set",
    "settings",
    type=NameValue("NAME:K=V", "digits:max_batch=8", separator=":"),
    multiple=True,
    metavar="NAME:K=V,...",
    help="Other options for one model: digits:max_batch=8,delay_ms=5.",
)
@click.option(
    "--canary",
    type=Canary(),
    multiple=True,
    metavar="NAME=ALIAS:PERCENT",
    help="A share of the requests for another version.",
)
@click.option(
    "--shadow",
    type=NameValue("NAME=ALIAS", "digits=staging"),
    multiple=True,
    metavar="NAME=ALIAS",
    help="A copy of each request for another version.",
)
@click.option(
    "--keys",
    "key_file",
    type=KEYS,
    help="Ask for keys; `weft serve keys add` makes them.",
)
@click.option(
    "--insecure", is_flag=True, help="Listen beyond this machine without keys, or with keys but without TLS."
)
@click.option(
    "--allow-host",
    "allow_hosts",
    multiple=True,
    metavar="NAME",
    help="A name besides localhost that a server on a loopback address answers to, such as a proxy's.",
)
@click.option("--tls-cert", type=ExistingFile(), help="A certificate chain, PEM.")
@click.option("--tls-key", type=ExistingFile(), help="Its private key, PEM.")
@click.option(
    "--max-body",
    type=Size("64MiB"),
    default="64MiB",
    show_default=True,
    metavar="SIZE",
    help="Largest request.",
)
@click.option(
    "--max-json",
    type=Size("8MiB"),
    default="8MiB",
    show_default=True,
    metavar="SIZE",
    help="Largest JSON of a request, unpacked.",
)
@click.option("--max-pixels", type=COUNT, default=50_000_000, show_default=True, help="Largest picture.")
@click.option("--detect-url", is_flag=True, help="Let callers name pictures by URL; the server fetches them.")
@click.option(
    "--fetch-from",
    type=Cidr(),
    multiple=True,
    metavar="CIDR",
    help="A private network that URLs may point into after all.",
)
@click.option("--state", type=OutputFile(), help="Keep loads, unloads and traffic there, over restarts.")
@click.option("--log-requests", is_flag=True, help="A log line for every request, not only those that fail.")
@click.option(
    "--drain-s",
    type=Seconds(),
    default=30.0,
    show_default=True,
    help="How long SIGTERM waits for what was taken.",
)
@click.option(
    "--upload-s",
    type=Seconds(above=0),
    default=60.0,
    show_default=True,
    help="The longest that a request may take to arrive.",
)
@click.option(
    "--keep-alive-s",
    type=Seconds(above=0),
    default=60.0,
    show_default=True,
    help="How long a connection may be idle.",
)
@click.option(
    "--poll-s",
    type=Seconds(above=0),
    default=1.0,
    show_default=True,
    help="How often the store is asked for changes.",
)
@click.option(
    "--ready-file", type=OutputFile(), help="Write the addresses there, as JSON, once requests are welcome."
)
def command(models: tuple[str, ...], **options: Any) -> None:
    """Serve MODELS: model.onnx, name=model.onnx, name@alias of a store, or module:factory of a torch module.

    `weft serve keys add|list|revoke` looks after API keys.
    """
    from weft.serve.server.models.repository import Repository
    from weft.serve.server.models.sources import source_of
    from weft.serve.server.options import ModelOptions, ServerOptions
    from weft.serve.server.process import run
    from weft.serve.store import Store

    if not models and not options["store"]:
        raise UsageError("weft serve needs a model, got none; name model.onnx, name@alias or --store DIR")
    store = Store(options["store"]) if options["store"] else None
    sources = [source_of(text, store) for text in models]
    shared = ModelOptions(
        **{name: options[name] for name in ("delay_ms", "replicas", "queue", "timeout_s")},
        max_batch=16 if options["max_batch"] is None else options["max_batch"],
        adapts=options["max_batch"] is None and not options["delay_ms"],
        threads=options["threads"],
        device=options["device"],
    )
    traffic = _traffic(options["canary"], options["shadow"])
    for flag, given in (("--set", dict(options["settings"])), ("--canary or --shadow", traffic)):
        _check_names(flag, given, {source.name for source in sources}, store)
    server = ServerOptions(
        host=options["host"],
        http_port=options["port"],
        grpc_port=None if options["no_grpc"] else options["grpc_port"],
        keys=options["key_file"],
        fetch=options["detect_url"],
        **{
            name: options[name]
            for name in ("max_body", "max_json", "allow_hosts", "upload_s", "keep_alive_s")
        },
        fetch_from=tuple(map(str, options["fetch_from"])),
        **{name: options[name] for name in ("insecure", "tls_cert", "tls_key", "max_pixels", "state")},
        **{name: options[name] for name in ("log_requests", "drain_s", "poll_s", "ready_file")},
    )
    run(
        lambda: Repository(
            sources,
            # Names that were given are all there is; without any the whole store is served.
            store=store if not models else None,
            options=_settings(shared, options["settings"]),
            traffic=traffic,
            state=server.state,
        ),
        server,
        click.echo,
    )


def _check_names(flag: str, given: Iterable[str], served: Collection[str], store: Store | None) -> None:
    """Refuse an option for a model that is not served; of a whole store, it may be pushed later, so warn."""
    known = served or {entry.name for entry in (store.list() if store else ())}
    for name in given:
        if name in known:
            continue
        if served:
            raise UsageError(
                f"{flag} must name a model that is served, got {name!r}; {suggestion(name, known)}"
            )
        click.echo(f"weft: {flag} names {name!r}, which is not in the store yet", err=True)


def _settings(shared: ModelOptions, given: Sequence[tuple[str, str]]) -> Callable[[str], ModelOptions]:
    found: dict[str, ModelOptions] = {}
    for name, rest in given:
        found[name] = found.get(name, shared).changed(rest)
    return lambda name: found.get(name, shared)


def _traffic(
    canaries: Sequence[tuple[str, str, float]], shadows: Sequence[tuple[str, str]]
) -> dict[str, Traffic]:
    from dataclasses import replace

    from weft.serve.server.options import Traffic

    found = {name: Traffic(canary=alias, percent=percent) for name, alias, percent in canaries}
    for name, alias in shadows:
        found[name] = replace(found.get(name, Traffic()), shadow=alias)
    return found


@click.group("keys")
def keys() -> None:
    """API keys: hashed in a file, revoked while servers run."""


def _key_file(kind: ValueType) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option("--keys", "path", type=kind, default=Path("keys.json"), show_default=True)


@keys.command("add")
@click.argument("name")
@_key_file(OutputFile())
@click.option(
    "--role",
    type=click.Choice(["infer", "admin"]),
    default="infer",
    show_default=True,
    help="admin may also load and unload models and set their traffic.",
)
def add(name: str, path: Path, role: str) -> None:
    """Make a key for NAME and print it: it is not kept anywhere else."""
    from weft.serve.server.keys import add_key

    record, text = add_key(path, name, role)
    click.echo(
        f"key {record.id} for {record.name} ({role}), in {path} as a hash; the key itself, shown once:",
        err=True,
    )
    click.echo(text)


@keys.command("list")
@_key_file(KEYS)
@click.option("--json", "as_json", is_flag=True, help="Print them as data.")
def list_(path: Path, as_json: bool) -> None:
    """List the names that have a key."""
    from weft.serve.server.keys import read_keys

    records = read_keys(path)
    if as_json:
        shown = [
            {
                "id": one.id,
                "name": one.name,
                "role": one.role,
                "created": one.created,
                "revoked": one.revoked,
            }
            for one in records
        ]
        click.echo(json.dumps(shown, indent=2))
        return
    for record in records:
        end = f"revoked {record.revoked}" if record.revoked else "valid"
        click.echo(f"{record.id}  {record.name:20} {record.role:6} {record.created}  {end}")


@keys.command("revoke")
@click.argument("which")
@_key_file(KEYS)
def revoke(which: str, path: Path) -> None:
    """Take a key back, by its id or name; running servers follow within a second."""
    from weft.serve.server.keys import revoke_key

    record = revoke_key(path, which)
    click.echo(f"key {record.id} for {record.name} is revoked")
