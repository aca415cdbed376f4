"""Damaged files: the good ones of the scratch folder, cut short, of another encoding, of wrong types or kind."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

DEEP = 20_000  # brackets: more than any parser of ours may follow


@dataclass(frozen=True)
class FileUse:
    """A command line that reads a file of the scratch folder; {} stands for its damaged copy, or the folder of it."""

    argv: tuple[str, ...]
    good: str  # the file to damage
    folder: str = ""  # the folder that is copied with it, where the command reads a folder
    text: bool = False  # it is read as text: another encoding must be refused
    free: bool = (
        False  # any text is good, or the last line may be torn: only another encoding must be refused
    )


_SERVE = ("serve", "model.onnx", "--port", "0", "--no-grpc")
_EXPORT = ("export", "nets.py:net", "-o", "new.onnx")
USES = (
    FileUse(("run", "--dry-run", "--skip-checks", "--hostfile", "{}", "train.py"), "hosts", text=True),
    FileUse(("run", "--dry-run", "--rankfile", "{}", "train.py"), "ranks", text=True),
    FileUse(("scale", "{}"), "run/elastic/control.json", folder="run", text=True),
    FileUse(("ledger", "{}"), "run/elastic/a.ledger.jsonl", folder="run", free=True),
    FileUse(("timeline", "{}"), "run/elastic/a.events.jsonl", folder="run", free=True),
    FileUse(("timeline", "{}", "--json"), "run/elastic/a.events.jsonl", folder="run", free=True),
    FileUse(("submit", "--dry-run", "{}.yaml"), "job.yaml", text=True),
    FileUse(("serve", "keys", "list", "--keys", "{}"), "keys.json", text=True),
    FileUse(("serve", "keys", "revoke", "ann", "--keys", "{}"), "keys.json", text=True),
    FileUse(("learn", "fit", "{}.yaml"), "fit.yaml", text=True),
    FileUse(("learn", "fit", "{}.csv", "--target", "y"), "table.csv", text=True),
    FileUse(("learn", "fit", "{}.svm"), "table.svm"),
    FileUse(("learn", "fit", "{}.parquet", "--target", "y"), "table.parquet"),
    FileUse(("learn", "fit", "{}", "--target", "y"), "stored/table.json", folder="stored", text=True),
    FileUse(("learn", "explain", "{}"), "model.pkl"),
    FileUse(("data", "convert", "{}.csv", "made", "--target", "y"), "table.csv", text=True),
    FileUse(("data", "convert", "{}.arrow", "made", "--target", "y"), "table.arrow"),
    FileUse(("model", "show", "{}.onnx", "--runs", "1"), "model.onnx"),
    FileUse(("model", "list", "--store", "{}"), "store/m/catalogue.json", folder="store", free=True),
    FileUse(("model", "verify", "--store", "{}"), "store/m/catalogue.json", folder="store", text=True),
    FileUse(("model", "show", "m", "--store", "{}"), "store/m/catalogue.json", folder="store", text=True),
    FileUse(("model", "push", "{}.onnx", "n", "--store", "store2"), "model.onnx"),
    FileUse((*_EXPORT, "--shape", "3", "--labels", "{}"), "labels.txt", text=True, free=True),
    FileUse((*_EXPORT, "--sample", "{}.npy"), "rows.npy"),
    FileUse((*_EXPORT, "--sample", "{}.npz"), "rows.npz"),
    FileUse((*_EXPORT, "--shape", "3", "--weights", "{}.pt"), "weights.pt"),
    FileUse(
        (*_EXPORT, "--shape", "3", "--weights", "{}.safetensors"),
        "weights.safetensors",
    ),
    FileUse((*_SERVE, "--keys", "{}"), "keys.json", text=True),
    FileUse((*_SERVE, "--tls-cert", "{}", "--tls-key", "notes.txt"), "notes.txt"),
    FileUse(("client", "status", "https://127.0.0.1:1", "--ca", "{}"), "notes.txt"),
)  # fmt: skip

OTHER_VALUES: tuple[object, ...] = (
    None,
    True,
    -1,
    0,
    10**400,
    1e308,
    "",
    "x",
    "\udcff",
    [],
    [1],
    {},
    {"x": 1},
    [[]],
)


@dataclass(frozen=True)
class Damage:
    """Bytes in place of the good ones, and whether they must be refused."""

    kind: str
    data: bytes
    refused: bool


def damages(use: FileUse, good: bytes) -> st.SearchStrategy[Damage]:
    """Return every way to damage a file."""
    certain = [
        Damage("empty", b"", not use.free),
        Damage("binary", bytes(range(256)) * 4, not use.free),
        Damage("nothing but zeros", bytes(4096), not use.free),
        Damage("deeply nested", b"[" * DEEP, not use.free),
        Damage("a deep mapping", b'{"a":' * DEEP, not use.free),
    ]
    if use.text:
        text = good.decode()
        certain.append(Damage("UTF-16", text.encode("utf-16"), True))
        certain.append(Damage("Latin-1", f"\xe9{text}".encode("latin-1"), True))
    numbers = re.sub(rb"\d+", b"9" * 400, good)
    loose = [
        Damage("huge numbers", numbers, False),
        Damage("twice", good + good, False),
        Damage("a byte order mark", b"\xef\xbb\xbf" + good, False),
        Damage("other line ends", good.replace(b"\n", b"\r"), False),
        Damage("negative numbers", re.sub(rb"(?<![\w.-])\d+", lambda found: b"-" + found[0], good), False),
    ]
    cut = st.integers(0, max(0, len(good) - 1)).map(lambda size: Damage(f"cut at {size}", good[:size], False))
    flipped = st.tuples(st.integers(0, max(0, len(good) - 1)), st.integers(0, 255)).map(
        lambda flip: Damage(
            f"byte {flip[0]} is {flip[1]}", good[: flip[0]] + bytes([flip[1]]) + good[flip[0] + 1 :], False
        )
    )
    ways = [st.sampled_from(certain), st.sampled_from(loose), cut, flipped]
    if use.good.endswith((".json", ".jsonl", ".yaml")):
        ways.append(_retyped(good, use.good))
    return st.one_of(ways)


def _retyped(good: bytes, name: str) -> st.SearchStrategy[Damage]:
    """Return the document with one of its values replaced by another type, or taken out, or an unknown one added."""
    text = good.decode()
    lines = text.splitlines() if name.endswith(".jsonl") else [text]
    documents = [_parse(line, name) for line in lines]
    places = [(n, path) for n, document in enumerate(documents) for path in _paths(document)]

    def damage(choice: tuple[tuple[int, tuple[str | int, ...]], object]) -> Damage:
        (number, path), value = choice
        changed = [json.loads(json.dumps(document)) for document in documents]
        changed[number] = _set(changed[number], path, value)
        data = "\n".join(json.dumps(document) for document in changed).encode()  # JSON is YAML too
        return Damage(f"{'.'.join(map(str, path))} = {value!r:.20}", data, False)

    return st.tuples(st.sampled_from(places), st.sampled_from(OTHER_VALUES)).map(damage)


def _parse(text: str, name: str) -> object:
    if name.endswith(".yaml"):
        import yaml

        return yaml.safe_load(text)
    return json.loads(text)


def _paths(document: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    items: list[tuple[str | int, object]] = []
    if isinstance(document, dict):
        items = [*document.items(), ("unknown", None)]
    elif isinstance(document, list):
        items = list(enumerate(document))
    return [path, *(found for key, value in items for found in _paths(value, (*path, key)))]


def _set(document: object, path: tuple[str | int, ...], value: object) -> object:
    if not path:
        return value
    inner = document
    for key in path[:-1]:
        inner = inner[key]  # type: ignore[index]
    inner[path[-1]] = value  # type: ignore[index]
    return document


def place(use: FileUse, damage: Damage, scratch: Path) -> tuple[str, ...]:
    """Write the damaged copy and return the command line that reads it."""
    copy = scratch / "damaged"
    shutil.rmtree(copy, ignore_errors=True)
    ending = next((word.removeprefix("{}") for word in use.argv if word.startswith("{}")), "")
    if use.folder:
        shutil.copytree(scratch / use.folder, copy)
        (copy / Path(use.good).relative_to(use.folder)).write_bytes(damage.data)
    else:
        copy.mkdir()
        copy = copy / f"file{ending}"
        copy.write_bytes(damage.data)
    name = str(copy.relative_to(scratch))
    return tuple(name if word.startswith("{}") else word for word in use.argv)
