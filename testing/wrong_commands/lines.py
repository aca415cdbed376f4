"""Wrong command lines, made up from the parsers of `weft` themselves: every verb, every option, every argument."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import click
from hypothesis import strategies as st
from testing.wrong_commands.values import any_text, wrong_values

from weft.cli import group
from weft.cli.models.serve import keys


@dataclass(frozen=True)
class CommandLine:
    """A command line, what is wrong with it, and whether it must be refused."""

    argv: tuple[str, ...]
    wrong: str
    refused: bool


@dataclass(frozen=True)
class Verb:
    """A verb, its parser, and a right command line of it: options, then arguments by name."""

    name: str
    command: click.Command
    options: tuple[str, ...]
    arguments: tuple[str, ...]


# verb: the options and the arguments that make a right command line
RIGHT: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "run": (("--dry-run",), ("train.py",)),
    "plan": (("--simulate", "2x2", "--gpu", "h100", "--link", "1Gb", "--model", "125m"), ()),
    "bench": ((), ()),
    "check": (("-H", "a,b"), ()),
    "topology": ((), ()),
    "rankfile": ((), ()),
    "learn fit": (("--target", "y"), ("table.csv",)),
    "learn explain": ((), ("model.pkl",)),
    "learn compile": ((), ()),
    "auto": (("--target", "y", "--minutes", "0.01", "--trials", "1", "--out", "auto"), ("table.csv",)),
    "data convert": (("--target", "y"), ("table.csv", "made")),
    "vision train": (("--data", "empty", "--dry-run"), ()),
    "vision evaluate": ((), ("empty", "empty")),
    "vision predict": ((), ("empty", "notes.txt")),
    "vision autolabel": (("--out", "labelled"), ("empty", "empty")),
    "vision export": (("-o", "vision.zip"), ("empty",)),
    "vision architectures": ((), ()),
    "vision deploy": (("--port", "0"), ("empty",)),
    "serve": (("--port", "0", "--grpc-port", "0"), ("model.onnx",)),
    "serve keys add": ((), ("bob",)),
    "serve keys list": ((), ()),
    "serve keys revoke": ((), ("ann",)),
    "client infer": ((), ("http://127.0.0.1:1", "m", "request.json")),
    "client status": ((), ("http://127.0.0.1:1",)),
    "export": (("-o", "new.onnx", "--shape", "3"), ("nets.py:net",)),
    "model show": (("--store", "store", "--runs", "0"), ("m",)),
    "model push": (("--store", "store2"), ("model.onnx", "n")),
    "model list": (("--store", "store"), ()),
    "model tag": (("--store", "store"), ("m@9", "canary")),
    "model untag": (("--store", "store"), ("m@canary",)),
    "model history": (("--store", "store"), ("m",)),
    "model pull": (("--store", "store", "-o", "pulled.onnx"), ("m",)),
    "model rm": (("--store", "store"), ("m@1",)),
    "model verify": (("--store", "store"), ("m",)),
    "scale": ((), ("run",)),
    "pause": ((), ("run",)),
    "kubernetes attach": ((), ("run",)),
    "kubernetes delete": ((), ("run",)),
    "kubernetes role": ((), ()),
    "kubernetes runtime": ((), ()),
    "kubernetes check": ((), ()),
    "ledger": ((), ("run",)),
    "timeline": ((), ("run",)),
    "up": (("--data", "service"), ()),
    "submit": (("--dry-run",), ("train.py",)),
    "jobs": ((), ()),
    "job show": ((), ("7",)),
    **{
        f"job {verb}": ((), ("7",))
        for verb in ("stop", "pause", "resume", "retry", "hold", "release", "clone")
    },
    "job scale": ((), ("7", "4")),
    "job priority": ((), ("7", "80")),
    "job pin": ((), ("7",)),
    "job unpin": ((), ("7",)),
    "job rm": (("--yes",), ("7",)),
    "job pull": ((), ("7", "outputs")),
    "job events": ((), ("7",)),
    "job diff": ((), ("7", "8")),
    "logs": ((), ("7",)),
    "hosts list": ((), ()),
    "hosts add": ((), ("gpu1",)),
    "hosts drain": ((), ("gpu1",)),
    "hosts undrain": ((), ("gpu1",)),
    "hosts label": ((), ("gpu1", "a100")),
    "hosts rm": ((), ("gpu1",)),
    "login": (("--token-stdin",), ("http://127.0.0.1:1",)),
    "user list": ((), ()),
    "user add": ((), ("ann",)),
    **{f"user {verb}": ((), ("ann",)) for verb in ("link", "disable", "enable")},
    "user role": ((), ("ann", "member")),
    "user system": ((), ("ann", "bob")),
    "user quota": (("--cpus", "8"), ("ann",)),
    "user rm": (("--yes",), ("ann",)),
    "audit": ((), ()),
    "token list": ((), ()),
    "token add": ((), ("ci",)),
    "token rm": ((), ("3",)),
    "retention": (("--days", "90"), ()),
    "backup": (("--data", "empty"), ("new.tar.gz",)),
    "restore": (("--data", "restored"), ("notes.txt",)),
    "secret list": ((), ()),
    "secret set": ((), ("HF_TOKEN",)),
    "secret rm": ((), ("HF_TOKEN",)),
    "ffdl init": ((), ("new-manifest.yml",)),
    "ffdl train": ((), ("notes.txt", "empty")),
    "ffdl list": ((), ()),
    **{
        f"ffdl {verb}": ((), ("training-7",))
        for verb in ("show", "delete", "halt", "logs", "loglines", "emetrics", "download")
    },
    "ffdl version": ((), ()),
    "webhook list": ((), ()),
    "webhook add": ((), ("https://example.org/hook",)),
    **{f"webhook {verb}": ((), ("3",)) for verb in ("show", "test", "pause", "resume")},
    "webhook rm": (("--yes",), ("3",)),
    "models list": ((), ()),
    "models show": ((), ("digits@3",)),
    "models add": ((), ("7", "digits")),
    "models tag": ((), ("digits@3", "candidate")),
    "models untag": ((), ("digits", "candidate")),
    "models rm": (("--yes",), ("digits@3",)),
    "deployment list": ((), ()),
    "deployment deploy": ((), ("live", "digits@3")),
    **{f"deployment {verb}": ((), ("live",)) for verb in ("show", "undeploy", "rollback")},
    "deployment canary": ((), ("live", "5")),
    "deployment rm": (("--yes",), ("live",)),
    "tune": (
        (
            "--local",
            "--dry-run",
            "--space",
            "lr=1,2",
            "--minimize",
            "loss",
            "--search",
            "random",
            "--trials",
            "2",
        ),
        ("train.py", "{lr}"),
    ),
    "studies": (("--local",), ()),
    **{f"study {verb}": ((), ("digits",)) for verb in ("show", "best", "stop", "pause", "resume", "export")},
    "study extend": (("--trials", "9"), ("digits",)),
    "study add": ((), ("digits", "lr=1")),
    "study promote": ((), ("digits", "3")),
    "study model": ((), ("digits", "net")),
    "study clone": ((), ("digits", "copy")),
    "study remove": (("--yes",), ("digits",)),
    "vision data list": ((), ()),
    "vision data create": ((), ("flowers",)),
    "vision data import": ((), ("flowers", ".")),
    "vision data export": ((), ("flowers@1", "no-such-folder-yet")),
    "vision data show": ((), ("flowers",)),
    "vision data health": ((), ("flowers",)),
    "vision data versions": ((), ("flowers",)),
    "vision data augment": (("--step", "rotate=0.5"), ("flowers", "turned")),
    "vision data frames": (("--every", "2"), ("flowers", "drive.mp4")),
    "vision data clone": ((), ("flowers", "copy")),
    "vision data files": ((), ("flowers",)),
    "vision data copy": ((), ("flowers", "others")),
    "vision data move": ((), ("flowers", "others")),
    "vision data rm": (("--yes",), ("flowers",)),
    "dataset list": ((), ()),
    "dataset add": ((), ("digits", "s3://bucket/digits")),
    "dataset show": ((), ("digits@3",)),
    "dataset rm": (("--yes",), ("digits",)),
}
# Options that are read only beside others, or that are the only ones of their kind.
BESIDE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            "detect_within",
            "start_within",
            "alone",
            "slow",
            "witness",
            "checkpoint",
            "checkpoint_every",
            "discover",
            "bar_hosts",
        ),
        ("--elastic", "1:2"),
    ),
    "calibration": ("--precision", "int8"),
    "tls_cert": ("--tls-key", "notes.txt"),
    "tls_key": ("--tls-cert", "notes.txt"),
    "fetch_from": ("--detect-url",),
}


def verbs() -> list[Verb]:
    """Return every verb of the command line; one without a right command line above is an error."""
    found = [*_walk(group, ()), *_walk(keys, ("serve", "keys"))]
    return [Verb(name, command, *RIGHT[name]) for name, command in found]


def _walk(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _walk(inner, (*path, name))
    else:
        yield " ".join(path), command


def wrong_lines(verb: Verb) -> st.SearchStrategy[CommandLine]:
    """Return command lines of a verb that are wrong in one place."""
    ways = [st.sampled_from(_misspelt(verb))]
    for param in verb.command.params:
        if isinstance(param, click.Argument):
            ways.append(_wrong_argument(verb, param))
        elif isinstance(param, click.Option) and not param.is_flag:
            ways.append(_wrong_option(verb, param))
        elif isinstance(param, click.Option) and not param.secondary_opts:
            ways.append(
                st.just(_line(verb, (f"{param.opts[-1]}=1",), f"{param.opts[-1]} with a value", True))
            )
    return st.one_of(ways)


def _line(verb: Verb, more: tuple[str, ...], wrong: str, refused: bool) -> CommandLine:
    options = verb.options
    if "--sample" in more or "--shape" in more:  # one of the two is enough
        options = tuple(word for word in options if word not in ("--shape", "3"))
    return CommandLine((*verb.name.split(), *options, *more, *verb.arguments), wrong, refused)


def _misspelt(verb: Verb) -> list[CommandLine]:
    name = verb.name.split()
    lines = [
        _line(verb, ("--no-such-option",), "an unknown option", True),
        _line(verb, ("--no-such-option=3",), "an unknown option with a value", True),
        _line(verb, ("-£",), "an unknown letter", True),
        CommandLine((*name[:-1], name[-1] + "x", *verb.arguments), "an unknown verb", True),
    ]
    # `weft run` hands on everything after the script, and some verbs take any number of arguments.
    if not any(param.nargs == -1 for param in verb.command.params):
        lines.append(CommandLine((*name, *verb.arguments, *("more",) * 3), "arguments too many", True))
    if any(param.required for param in verb.command.params):
        lines.append(CommandLine(tuple(name), "nothing given", True))
    return lines


def _wrong_option(verb: Verb, param: click.Option) -> st.SearchStrategy[CommandLine]:
    flag = max(param.opts, key=len)
    beside = BESIDE.get(param.name or "", ())
    wrong = wrong_values(verb.name, param)

    def line(value: str, refused: bool) -> CommandLine:
        return _line(verb, (*beside, flag, value), f"{flag} {value!r:.40}", refused)

    if wrong is None:
        return any_text().map(lambda value: line(value, False))
    return wrong.map(lambda value: line(value, True))


def _wrong_argument(verb: Verb, param: click.Argument) -> st.SearchStrategy[CommandLine]:
    arguments = [each for each in verb.command.params if isinstance(each, click.Argument)]
    place = arguments.index(param)
    wrong = wrong_values(verb.name, param)

    def line(value: str, refused: bool) -> CommandLine:
        given = [*verb.arguments]
        given[place : place + 1] = [value]
        dashes = () if verb.name == "run" else ("--",)  # to run, it would say that any command follows
        argv = (*verb.name.split(), *verb.options, *dashes, *given)
        return CommandLine(argv, f"{param.name} {value!r:.40}", refused)

    if wrong is None:
        return any_text().map(lambda value: line(value, False))
    return wrong.map(lambda value: line(value, True))
