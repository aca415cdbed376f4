"""The log of the first pod, which is the console of a run: lines of ranks, lines of the launcher, and files of the run.

Between its lines that pod prints the files of its run directory, which are put into ours (`pods/mirror.py`), so that
metrics, timelines and outcome are where they are after any run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft.launch.control.console import Console
from weft.launch.engines.kubernetes.logs.rank_output import RankOutput
from weft.launch.engines.pods.mirror import ADOPTED, MARK, FilePiece, MirroredFiles, piece_in

Data = dict[str, Any]
CONTROL = "elastic/control.json"
OUTCOME = "outcome.json"
_RANK = re.compile(rb"\[ *(\d+)\] ")


@dataclass
class LeaderLog:
    """The log of the first pod: lines of ranks, lines of the launcher, and files of the run between them."""

    console: Console
    folder: Path | None
    host: str = ""  # the name of the first pod
    outcome: Data | None = None  # once the run has told it
    _begun: bytes = b""  # a line that a file stands in the middle of
    _ranks: RankOutput = field(default_factory=RankOutput)
    _pods: int = 0  # first pods so far
    _adopted: bool = False  # this one goes on with the run of the one before
    _told: bytes = b""  # of the outcome, which may come in several pieces
    _has_gap: bool = False

    def __post_init__(self) -> None:
        self._files = None if self.folder is None else MirroredFiles(self.folder)

    def begin_pod(self) -> None:
        """Go on with the log of another first pod."""
        self.outcome, self._told, self._begun, self._adopted = None, b"", b"", False
        self._pods += 1

    def take(self, lines: Iterable[bytes]) -> None:
        """Take in some lines of the log. Those of a rank stay in order, and are passed on together."""
        by_rank: dict[int, list[bytes]] = {}
        for line in lines:
            line, self._begun = self._begun + line, b""
            match = MARK.search(line) if b"\x1e" in line else None
            if match is not None:
                self._begun = line[: match.start()]
                self._take_piece(match)
                continue
            if self.outcome is not None:
                continue  # the launcher's own words about the end, which are said here again
            found = _RANK.match(line)
            if found is not None:
                by_rank.setdefault(int(found[1]), []).append(line[found.end() :])
                continue
            self._pass_on(by_rank)  # what was printed before the launcher said this
            self.console.say(line.decode(errors="replace").rstrip("\n"))
        self._pass_on(by_rank)

    def _pass_on(self, by_rank: dict[int, list[bytes]]) -> None:
        for rank, printed in by_rank.items():
            if data := self._ranks.new_in(rank, b"".join(printed)):
                self.console.write(rank, "out", data)
        by_rank.clear()

    def _take_piece(self, match: re.Match[bytes]) -> None:
        piece = piece_in(match)
        if piece is None:
            return
        if piece.name == ADOPTED and not self._adopted:
            self._adopted = True
            self._ranks.again(json.loads(piece.data)["ranks"])
            self._put_traces_aside()
        if self.folder is not None and self._files is not None:
            if self._files.put(piece):
                self._say_that_the_beginning_is_gone()
            elif piece.name == CONTROL:
                self._ranks.note_lives((self.folder / piece.name).read_bytes())
        if piece.name == OUTCOME:
            self._take_outcome(piece)

    def _take_outcome(self, piece: FilePiece) -> None:
        """Take in a piece of the outcome, which is known once all of it is there."""
        self._told = self._told[: piece.offset] + piece.data
        try:
            self.outcome = json.loads(self._told)
        except ValueError:
            self.outcome = None

    def _say_that_the_beginning_is_gone(self) -> None:
        if not self._has_gap:
            self._has_gap = True
            self.console.say(
                "weft: the beginning of the log is gone: the cluster keeps the last part of it alone (10 MB by default)"
            )

    def _put_traces_aside(self) -> None:
        """Keep what the lost first pod has told: files of the same names come from the new one."""
        if self.folder is None:
            return
        for path in (self.folder / "elastic").glob(f"{self.host}.*.jsonl"):
            path.rename(path.with_name(path.name.replace(self.host, f"{self.host}@{self._pods - 1}", 1)))
