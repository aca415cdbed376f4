"""Files of tables as Arrow tables: CSV with any delimiter and encoding, Parquet, Arrow and Feather."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from weft.errors import DataError

FILES = (".csv", ".tsv", ".parquet", ".pq", ".arrow", ".feather", ".ipc")
_PACKED = (".gz", ".bz2", ".zst")
_DELIMITERS = (",", ";", "\t", "|")
HEAD_BYTES = 1 << 16
_HEAD_LINES = 20
_WHOLE_BYTES = 1 << 30  # of a CSV file whose types are found from all rows where its first block misleads
_MARKS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}


def arrow() -> Any:
    """Return pyarrow with its parts; DataError where it is not installed."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.feather
        import pyarrow.parquet
    except ImportError:
        raise DataError("tables must be read by pyarrow, got none installed; install weft[auto]") from None
    return pyarrow


def suffix_of(name: str) -> str:
    """Return the suffix that tells the kind of a file: that of orders.csv.gz is .csv."""
    path = Path(name)
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix in _PACKED else suffix


def read_file(pa: Any, path: Path) -> Any:
    """Return a file as an Arrow table; DataError says what is wrong with it."""
    suffix = suffix_of(path.name)
    if suffix not in FILES:
        raise DataError(
            f"{path} must end in one of {', '.join(FILES)}, got {path.suffix or 'nothing'!r}; convert it first"
        )
    if not path.is_file():
        got = "a folder" if path.is_dir() else "nothing there"
        raise DataError(f"{path} must be a file, got {got}; check the path")
    try:
        if suffix in (".csv", ".tsv"):
            return read_csv(pa, path)
        if suffix in (".parquet", ".pq"):
            return pa.parquet.read_table(path)
        return pa.feather.read_table(path)
    except (pa.ArrowException, OSError, UnicodeError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise DataError(
            f"{path} must be a readable {suffix[1:]} file, got: {reason}; mend the file"
        ) from None


def read_csv(pa: Any, path: Path) -> Any:
    """Return a CSV file; types are found from its first block, or from all of it where later rows differ."""
    with pa.input_stream(str(path)) as stream:
        head = stream.read(HEAD_BYTES)
    options = csv_options(pa, head)
    try:
        return pa.csv.read_csv(path, **options)
    except pa.ArrowInvalid as error:
        if "conversion error" not in str(error):
            raise
    block = min(_WHOLE_BYTES, max(1 << 20, 20 * path.stat().st_size))  # packed files grow
    return pa.csv.read_csv(path, **csv_options(pa, head, block_size=block))


def csv_options(pa: Any, head: bytes, **reading: Any) -> dict[str, Any]:
    """Return how a CSV file that begins with some bytes is read: its delimiter and its encoding."""
    encoding = encoding_of(head)
    return {
        "read_options": pa.csv.ReadOptions(encoding=encoding, **reading),
        "parse_options": pa.csv.ParseOptions(
            delimiter=delimiter_of(head.decode(encoding, "replace")), newlines_in_values=True
        ),
        "convert_options": pa.csv.ConvertOptions(strings_can_be_null=True),
    }


def encoding_of(head: bytes) -> str:
    """Return the encoding of a file's first bytes: UTF-8, UTF-16 by its mark, or else that of Windows."""
    for mark, encoding in _MARKS.items():
        if head.startswith(mark):
            return encoding
    for cut in range(4):  # the last letter may be cut in two
        try:
            head[: len(head) - cut].decode("utf-8")
        except UnicodeDecodeError:
            continue
        return "utf-8"
    return "cp1252"


def delimiter_of(head: str) -> str:
    """Return what parts the columns of a CSV file: what is as often in each of the first lines; a comma in doubt."""
    lines = [line for line in head.splitlines()[:_HEAD_LINES] if line.strip()]
    if len(lines) > 2 and not head.endswith(("\n", "\r")) and len(lines) < _HEAD_LINES:
        lines = lines[:-1]  # it may be cut
    best, most = ",", 0
    for delimiter in _DELIMITERS:
        counts = {_outside_quotes(line).count(delimiter) for line in lines}
        least = min(counts, default=0)
        if len(counts) == 1 and least > most:
            best, most = delimiter, least
    if most == 0 and lines:  # lines of prose differ: the names of the columns tell
        counted = {delimiter: _outside_quotes(lines[0]).count(delimiter) for delimiter in _DELIMITERS}
        return max(_DELIMITERS, key=lambda one: counted[one])
    return best


def _outside_quotes(line: str) -> str:
    return "".join(line.split('"')[::2])
