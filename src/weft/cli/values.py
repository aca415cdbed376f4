"""Types of the values on the command line: numbers in ranges, sizes, networks, URLs, names with values.

    @click.option("--port", type=PORT)
    @click.option("--grace", type=Seconds(least=0))

A type turns the text into the value that the library takes, or refuses the text with exit code 2:

    --port must be a whole number between 1 and 65535, got '99999'; write --port 8000

Every verb takes its values by one of these types, or of those of `paths.py`, so no verb meets NaN, a port of 99999 or a
folder in place of a file.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import click

from weft.errors import UsageError
from weft.text import parse_size, shorten, suggestion
from weft.topology.hostlist import MOST_WORKERS

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network

    Network: TypeAlias = IPv4Network | IPv6Network
    _ClickType = click.ParamType[Any]
else:
    _ClickType = click.ParamType  # generic from click 8.4 on

LARGEST_COUNT = 10**9  # of steps, samples, rows, requests: no count of ours is larger by design
LONGEST_S = 1_000_000  # seconds, 11 days: poll() cannot wait for more than 24
MOST_ELEMENTS = 1 << 30  # of one row of a model: 4 GiB of float32
_DIGITS = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)


def flag_of(param: click.Parameter | None) -> str:
    """Return the name by which a message calls a parameter: `--port`, or RUN for an argument."""
    if param is None:
        return "the value"
    if isinstance(param, click.Argument):
        return param.metavar or (param.name or "argument").upper()
    return max(param.opts, key=len)


class ValueType(_ClickType):
    """The root of our types. A subclass parses text, and refuses it by what it must be and an example of it."""

    name = "value"
    must = "a value"
    example = "VALUE"

    def parse(self, text: str, param: click.Parameter | None) -> Any:
        """Return the value of a text, or refuse it."""
        raise NotImplementedError

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return what was typed as a value; values that are not text are defaults."""
        return self.parse(value, param) if isinstance(value, str) else value

    def refuse(
        self, given: object, param: click.Parameter | None, reason: str = "", advice: str = ""
    ) -> NoReturn:
        """Raise the error of a value that is not what it must be."""
        because = f" ({reason})" if reason else ""
        flag = flag_of(param)
        written = f"{flag} {self.example}" if isinstance(param, click.Option) else self.example
        raise UsageError(
            f"{flag} must be {self.must}, got {self.shown(given)}{because}; {advice or f'write {written}'}"
        )

    def shown(self, given: object) -> str:
        """Return a refused value as the error shows it."""
        return shorten(given)


class Whole(ValueType):
    """A whole number within bounds, both included."""

    name = "integer"

    def __init__(self, least: int = 0, most: int = LARGEST_COUNT, *, example: int | None = None) -> None:
        self.least, self.most = least, most
        self.example = str(least if example is None else example)
        self.must = f"a whole number between {least} and {most}"

    def parse(self, text: str, param: click.Parameter | None) -> int:
        if not _DIGITS.fullmatch(text.strip()) or not self.least <= int(text) <= self.most:
            self.refuse(text, param)
        return int(text)


class Real(ValueType):
    """A finite number within bounds, both included; `above` is a bound that is not."""

    name = "number"
    unit = ""

    def __init__(
        self, least: float = 0.0, most: float = 1e9, *, above: float | None = None, example: float = 1.0
    ) -> None:
        self.least, self.most, self.above = least, most, above
        self.example = f"{example:g}"
        bounds = (
            f"between {least:g} and {most:.12g}" if above is None else f"above {above:g}, at most {most:.12g}"
        )
        self.must = f"a number {self.unit}{bounds}"

    def parse(self, text: str, param: click.Parameter | None) -> float:
        try:
            value = float(text) if text.isascii() and "_" not in text else math.nan
        except ValueError:
            self.refuse(text, param)
        low = value >= self.least if self.above is None else value > self.above
        if not (low and value <= self.most):  # NaN is neither
            self.refuse(text, param)
        return value


class Seconds(Real):
    """A duration in seconds; a run cannot wait for ever, nor for NaN."""

    name = "seconds"
    unit = "of seconds "

    def __init__(
        self, least: float = 0.0, most: float = LONGEST_S, *, above: float | None = None, example: float = 3.0
    ) -> None:
        super().__init__(least, most, above=above, example=example)


class Size(ValueType):
    """Bytes, written as 4096, 20GB or 512MiB."""

    name = "size"

    def __init__(self, example: str = "4GB") -> None:
        self.example = example

    def parse(self, text: str, param: click.Parameter | None) -> int:
        flag = flag_of(param)
        return parse_size(text, flag, write=f"{flag} {self.example}")


class DeviceMemory(ValueType):
    """The text of a budget of large model support: a size, or `auto`."""

    name = "size"
    must = "a number of bytes such as 20GB, 512MiB or 16e9, or auto"
    example = "20GB"

    def parse(self, text: str, param: click.Parameter | None) -> str:
        from weft.lms.autoload import check_limit

        try:
            return check_limit(text)
        except UsageError:
            self.refuse(text, param)


class WorkersPerHost(Whole):
    """A number of workers, or the words that count the machine's own: gpu, cpu, auto."""

    WORDS = ("gpu", "cpu", "auto")

    def __init__(self) -> None:
        super().__init__(1, MOST_WORKERS, example=4)
        self.must = f"a number of workers between 1 and {MOST_WORKERS}, gpu, cpu or auto"

    def parse(self, text: str, param: click.Parameter | None) -> Any:
        return text if text in self.WORDS else super().parse(text, param)


class Text(ValueType):
    """Text that is not empty; `like` is a pattern for all of it."""

    name = "text"

    def __init__(self, must: str = "a name", example: str = "NAME", *, like: str = r"[^\x00-\x1f]+") -> None:
        self.must, self.example = must, example
        self._pattern = re.compile(like, re.ASCII)

    def parse(self, text: str, param: click.Parameter | None) -> str:
        if not self._pattern.fullmatch(text) or not text.strip():
            self.refuse(text, param)
        return text


class Checked(ValueType):
    """Text that a parser of the library reads: it says itself what is wrong. The text is passed on."""

    name = "text"

    def __init__(self, parse: Callable[[str], object]) -> None:
        self._parse = parse

    def parse(self, text: str, param: click.Parameter | None) -> str:
        self._parse(text)
        return text


class WorkerLimits(ValueType):
    """The fewest and the most workers of an elastic run: `2:8`; `4` is short for `4:4`."""

    name = "limits"

    must = f"MIN:MAX with 1 <= MIN <= MAX <= {MOST_WORKERS}"
    example = "2:4"

    def parse(self, text: str, param: click.Parameter | None) -> tuple[int, int]:
        if not re.fullmatch(r"[0-9]{1,9}(:[0-9]{1,9})?", text, re.ASCII):
            self.refuse(text, param)
        least, colon, most = text.partition(":")
        limits = int(least), int(most if colon else least)
        if not 1 <= limits[0] <= limits[1] <= MOST_WORKERS:
            self.refuse(text, param)
        return limits


class Shape(ValueType):
    """The shape of one row, for an input that may be named: `3,224,224` or `NAME=16`."""

    name = "shape"
    must = f"of the form 3,224,224 or NAME=16, of at most {MOST_ELEMENTS} elements"
    example = "3,224,224"

    def parse(self, text: str, param: click.Parameter | None) -> tuple[str, tuple[int, ...]]:
        name, _, shape = text.rpartition("=")
        sides = [side.strip() for side in shape.split(",")]
        if not all(re.fullmatch(r"[0-9]{1,10}", side, re.ASCII) for side in sides):
            self.refuse(text, param)
        sizes = tuple(map(int, sides))
        if not 1 <= math.prod(sizes) <= MOST_ELEMENTS:
            self.refuse(text, param)
        return name, sizes


class Words(ValueType):
    """Names with commas between them, each of which is known."""

    name = "names"

    def __init__(self, known: Sequence[str]) -> None:
        self.known = tuple(known)
        self.example = self.known[0]
        self.must = f"among {', '.join(known)}"

    def parse(self, text: str, param: click.Parameter | None) -> tuple[str, ...]:
        words = tuple(word.strip() for word in text.split(",") if word.strip())
        for word in words:
            if word not in self.known:
                self.refuse(word, param, advice=suggestion(word, self.known))
        return words or self.refuse(text, param)


class Numbers(ValueType):
    """Whole numbers with commas between them: `1,2,5`."""

    name = "integers"

    def __init__(self, least: int, most: int, example: str) -> None:
        self._one = Whole(least, most)
        self.example = example
        self.must = f"whole numbers between {least} and {most} with commas between them"

    def parse(self, text: str, param: click.Parameter | None) -> tuple[int, ...]:
        try:
            return tuple(self._one.parse(word, param) for word in text.split(","))
        except UsageError:
            self.refuse(text, param)


class NameValue(ValueType):
    """A name and a value with a separator between them, neither of them empty unless told."""

    name = "name=value"

    def __init__(self, form: str, example: str, *, separator: str = "=", empty: bool = False) -> None:
        self.separator, self.empty, self.example = separator, empty, example
        self.must = f"of the form {form}"

    def parse(self, text: str, param: click.Parameter | None) -> tuple[str, str]:
        name, found, value = text.partition(self.separator)
        if not name.strip() or not found or not (value or self.empty):
            self.refuse(text, param)
        return name.strip(), value


class Cidr(ValueType):
    """A network of addresses: `10.0.0.0/8`."""

    name = "network"
    must = "a network of addresses"
    example = "10.0.0.0/8"

    def parse(self, text: str, param: click.Parameter | None) -> Network:
        from ipaddress import ip_network

        try:
            return ip_network(text, strict=False)
        except ValueError:
            self.refuse(text, param)


class Url(ValueType):
    """The address of a server: `http://host:8000`; without a scheme it is http."""

    name = "url"
    must = "the URL of a server, http or https"
    example = "http://127.0.0.1:8000"

    def parse(self, text: str, param: click.Parameter | None) -> str:
        from urllib.parse import urlsplit

        try:
            parts = urlsplit(text if "://" in text else f"http://{text}")
            host, _ = parts.hostname, parts.port  # both are parsed when asked for
        except ValueError as error:
            self.refuse(text, param, str(error))
        if parts.scheme not in ("http", "https") or not host or not text.isprintable() or " " in text:
            self.refuse(text, param)
        return text


PORT = Whole(1, 65_535, example=29_400)  # a port to name
PORT_OR_ANY = Whole(0, 65_535, example=8000)  # 0: any that is free
WORKERS = Whole(1, MOST_WORKERS, example=2)
COUNT = Whole(1, example=1)
COUNT_OR_NONE = Whole(0, example=1)
THREADS = Whole(0, 4096, example=4)  # 0: as many as fit
NAME = Text()
CARD = Text("the name of a network card", "eth0", like=r"[A-Za-z0-9_][\w.:@-]{0,14}")
INTERPRETER = Text("the path of a Python interpreter", sys.executable)
