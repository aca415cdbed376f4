"""Wrong values for the parameters of `weft`, by the type that each parameter has in its parser."""

from __future__ import annotations

import click
from hypothesis import strategies as st

from weft.cli import paths, values

LONG = "9" * 5000
JUNK = ("", " ", "x", "nan", "-nan", "inf", "-inf", "1e400", "-1e400", LONG, "-" + LONG,
        "0x10", "1_000", "\u0663", "\xbd",
        "1,5", "1 2", "None", "true", "[]", "{}", "--", "-", "$(x)", "%s%n", "\udcff", "\u202e", "\U0001f4a5",
        "../..", "x" * 5000)  # fmt: skip
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=30)
NO_FILE = ("no/such/file", "x" * 300, "notes.txt/x", "a/" * 3000, "\udcff/\udcff")

# Values that a parameter of free text must refuse, by name.
FREE: dict[str, tuple[str, ...]] = {
    "hosts": ("", ",", "a,,b", "a:0", "a:x", "a:99999999", "a,a", "-oProxyCommand=x", "a b", "a;b", "[::",
              "[fe80::1]:x", "node[1-", "node[5-1]", "node[1-99999999]", "$(x)", "a/b", "\udcff", "é", "a:" + LONG),
    "add": ("", ",", "a:0", "-x", "a b", "\udcff"),
    "remove": (",", "b", "a", "-x", "\udcff"),
    "mode": ("", "x", "shm,,", "ring:x", "\udcff", "1"),
    "wire": ("", "x", "fp8", "FP32 ", "\udcff"),
    "nnodes": ("", "x", "0", "-1", "2", "1:", ":1", "4:1", "1:4", LONG, "nan", "\u0663"),
    "elastic": ("", "x", "0", "-1:2", "3:2", "1:x", ":", "1:2:3", "nan:2", LONG, f"1:{LONG}",
              "1:99999999", "\u0663:\u0663"),
    "workers": ("", "x", "0", "-1:2", "3:2", "1:x", ":", "1:2:3", "nan:2", LONG, "1:99999999", "\u0663:\u0663"),
    "max_time": ("", "x", "-1", "nan", "inf", "4 parsecs", LONG, "11y", "\u0663h"),
    "database": ("", "x", "postgresql", "postgresql:/x", "://", "\udcff"),
    "allow_hosts": ("", "a b", "\udcff", "http://a"),
    "secrets": ("", "a b", "1A", "A-B", "\udcff", "x" * 300),
    "labels": ("", "a b", ",", "\udcff", "x" * 300),
    "project": ("", "a b", "../x", "\udcff", "x" * 300),
    "queue": ("", "a b", "../x", "\udcff", "x" * 300),
    "user": ("", "a b", "../x", "\udcff", "x" * 300),
    "grep": ("", "(", "[", "*", "x" * 5000, "(?P<"),
    "env": ("", "=x", "WEFT_FUZZ_NOT_SET", "=", "A B=1", "1A=2", "A-B=2"),
    "discover": ("",),
    "witness": ("", "a b", "-x", "\udcff"),
    "checkpoint": ("",),
    "trace": ("", "empty", "notes.txt/x"),
    "interface": ("", "nocard", "-x", "eth0 x", "\udcff"),
    "python": ("", "/no/such/python", "empty"),
    "operations": ("", "x", "all_reduce,x", ",", "\udcff"),
    "sizes": ("", ",", "0", "x", "1XB", "1", "-4KiB", "nan", "inf", LONG, "4KiB,x"),
    "dtype": ("", "x", "float", "float32 ", "\udcff"),
    "against": ("x", "gloo,gloo", "weft:", "weft:mode=", "weft:mode=x", "weft:wire=x", "weft:x=1", "\udcff"),
    "device": ("", "tpu", "cuda:x", "\udcff"),
    "host": ("", "0.0.0.0", "a b", "\udcff"),
    "params": ("", "x", "=1", "nope=1"),
    "target": ("nope", "\udcff"),
    "columns": ("nope", "a,a", "\udcff"),
    "test": ("", "nope.csv", "empty", "notes.txt"),
    "out": ("", "empty", "no/such/file", "notes.txt/x"),
    "shapes": ("", "x", "0", "-1", "3,,x", "3:float99", "3:int64:0", "3:int64:2:2", LONG, "99999999999,99999999999",
               "nope=3"),
    "picture": ("", "x", "size=x", "size=0", "size=-1", "mean=1", "size=nan", "size=1e9",
              "speed=9", "size=224,mean=x",
                "size=224,scale=1/0", "size=99999999999", "size=224,mean=nan,nan,nan"),
    "dynamic": ("nope", "x.y=z", "x.99=z", "\udcff"),
    "aliases": ("", "a b", "../x", "1", "latest", "\udcff"),
    "alias": ("", "a b", "../x", "1", "latest", "\udcff"),
    "memory": ("", "x", "0", "-1", "1", "nan", "inf", "4XB", LONG, "1e99"),
    "output": ("no/such/folder/", "notes.txt", "no/such/file.onnx"),
}  # fmt: skip
# The same for arguments: verb, then the name of the argument.
FREE_ARGUMENTS: dict[tuple[str, str], tuple[str, ...]] = {
    ("run", "command"): ("", "nope.py", "empty", "no/such/file.py", "\udcff", "x" * 300),
    ("learn fit", "table"): ("", "nope.csv", "empty", "notes.txt", "no/*.csv", "nope.yaml", "empty/x.yaml", "\udcff"),
    ("learn explain", "table"): ("", "nope.csv", "empty", "notes.txt", "\udcff"),
    ("data convert", "sources"): ("", "nope.csv", "empty", "notes.txt", "no/*.csv", "\udcff", "x" * 300),
    ("serve", "models"): ("nope.onnx", "notes.txt", "m@9", "=model.onnx", "a b=model.onnx", "\udcff.onnx"),
    ("export", "model"): ("", "nope", "nope:net", "nets.py", "nets.py:", "nets.py:nope",
              "nope.py:net", "notes.txt", ":",
                          "\udcff:x"),
    ("model list", "name"): ("", "../x", "a b", "\udcff"),
    ("model push", "name"): ("", "../x", "a b", "a@1", "\udcff", "x" * 300, "."),
    ("scale", "run"): ("", "nope", "empty", "notes.txt", "\udcff", "latest"),
    ("kubernetes attach", "run"): ("", "nope", "empty", "notes.txt", "\udcff", "latest"),
    ("kubernetes delete", "run"): ("", "nope", "empty", "notes.txt", "\udcff", "latest"),
    ("pause", "run"): ("", "nope", "empty", "notes.txt", "\udcff", "latest"),
    ("ledger", "run"): ("", "nope", "empty", "notes.txt", "\udcff", "latest"),
    ("timeline", "run"): ("", "nope", "empty", "notes.txt", "\udcff", "latest"),
    ("serve keys revoke", "which"): ("", "nope", "\udcff"),
    ("submit", "command"): ("", "nope.py", "no/such/file.py", "nope.yaml", "empty/x.yaml", "fit.yaml", "\udcff.py",
                            "x" * 300 + ".py", "x" * 300 + ".yaml"),
    **{(f"user {verb}", "name"): ("", "a b", "../x", "\udcff", "x" * 300)
       for verb in ("add", "link", "role", "disable", "enable", "rm")},
    **{(f"hosts {verb}", name): ("", "a b", "-x", "a;b", "$(x)", "\udcff", "x" * 300)
       for verb, name in (("add", "names"), ("drain", "names"), ("undrain", "names"), ("rm", "names"),
                          ("label", "name"), ("label", "labels"))},
    **{(f"secret {verb}", "name"): ("", "a b", "1A", "A-B", "\udcff", "x" * 300) for verb in ("set", "rm")},
    ("dataset add", "name"): ("", "a b", "../x", "a@1", "\udcff", "x" * 300),
    ("dataset add", "source"): ("", "a\nb", "x" * 5000),
    **{(f"dataset {verb}", "reference"): ("", "a b", "../x", "a@", "a@x", "@1", "a@1@1", "\udcff", "a@" + LONG)
       for verb in ("show", "rm")},
    **{(f"model {verb}", "model"): ("", "nope", "m@", "m@9", "m@nope", "@1", "../m", "m@1@1", "a b", "\udcff",
                                    "m@" + LONG)
       for verb in ("show", "pull", "rm", "tag", "untag", "verify")},
}  # fmt: skip


def wrong_values(verb: str, param: click.Parameter) -> st.SearchStrategy[str] | None:
    """Return texts that a parameter must refuse; None where any text may be right."""
    kind = param.type
    if isinstance(kind, (values.WorkersPerHost, values.Whole)):
        return _wrong_integers(kind.least, kind.most)
    if isinstance(kind, values.Real):
        low = kind.least if kind.above is None else kind.above
        below = st.floats(max_value=low, exclude_max=kind.above is None, allow_infinity=False)
        above = st.floats(min_value=kind.most, exclude_min=True, allow_infinity=False)
        return st.one_of(st.sampled_from(_not("-", JUNK)), below.map(repr), above.map(repr))
    if isinstance(kind, paths.PathType):
        return st.sampled_from(_wrong_paths(kind))
    if isinstance(kind, click.Choice):
        return st.one_of(st.sampled_from(JUNK), TEXT).filter(lambda text: text not in kind.choices)
    fixed = _BY_TYPE.get(type(kind))
    if fixed is not None:
        return st.sampled_from(fixed)
    known = FREE.get(param.name or "") if isinstance(param, click.Option) else None
    known = known or FREE_ARGUMENTS.get((verb, param.name or ""))
    if verb in ("check", "learn fit") and param.name in ("interface", "python"):
        known = ("",)  # the rest may be right where workers run
    return st.sampled_from(known) if known else None


def any_text() -> st.SearchStrategy[str]:
    """Return texts that a parameter may take or refuse, but never by a traceback."""
    return st.one_of(st.sampled_from(JUNK), TEXT)


_BY_TYPE: dict[type, tuple[str, ...]] = {
    values.Size: ("", "x", "0", "-1", "nan", "inf", "4XB", "1e99", LONG, "4 4", "\udcff", "\u0663"),
    values.DeviceMemory: ("", "x", "0", "-1", "nan", "inf", "4XB", "1e99", LONG, "4 4", "\udcff", "\u0663"),
    values.Words: ("", ",", "x", "\udcff", LONG),
    values.Numbers: ("", ",", "1,", "1,,2", "0", "1,x", "nan", LONG, "\udcff", "1;2"),
    values.NameValue: ("", "=", "x", "=x", ":", ":x", "\udcff"),
    values.Cidr: ("", "abc", "10.0.0.0/99", "1.2.3", "::/200", LONG, "\udcff", "10.0.0.0/8/8"),
    values.Url: ("", "http://", "http://[::1", "http://a:99999", "ftp://a", "http://a b",
              "http://a:x", "\n", "\udcff",
                 "http://:8000", "://", "http://[x]"),
}  # fmt: skip


def _wrong_integers(least: int, most: int) -> st.SearchStrategy[str]:
    below, above = st.integers(max_value=least - 1), st.integers(min_value=most + 1)
    return st.one_of(st.sampled_from(JUNK), below.map(str), above.map(str), st.floats().map(repr))


def _wrong_paths(kind: paths.PathType) -> tuple[str, ...]:
    if isinstance(kind, paths.ExistingFile):
        return ("", "empty", "empty/", *NO_FILE)
    if isinstance(kind, paths.ExistingFolder):
        return ("", "notes.txt", *NO_FILE)
    if isinstance(kind, paths.PossibleFolder):
        return ("", "notes.txt", *NO_FILE[1:4])
    if isinstance(kind, paths.OutputFile):
        return ("", "empty", "new/", *NO_FILE[:4])
    if isinstance(kind, paths.OutputFolder):
        return ("", "notes.txt", *NO_FILE[1:4])
    return ("", *NO_FILE)


def _not(unwanted: str, texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(text for text in texts if text != unwanted)
