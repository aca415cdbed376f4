"""The back end for scripts: each trial is a process that reports by weft.log, or by lines of JSON that it prints."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from weft.tune.runners.command import ends_at_limit, limit_of, program, trial_words, variables, write_files
from weft.tune.runners.logged import mlflow_variables
from weft.tune.runners.processes import TrialProcess, end_left_over
from weft.tune.runners.reports import TrialReports, last_lines
from weft.tune.runners.weights import take_weights
from weft.tune.schedulers.actions import CloneTrial, PauseTrial, ResumeTrial, StopTrial, TrialAction
from weft.tune.study.core import StudyCore
from weft.tune.study.events import TrialLost

LOOK_S = 0.05  # between two looks at the processes and their reports


class ScriptRunner:
    """Runs the trials of a study as processes of this machine, `parallel` at a time."""

    def __init__(
        self,
        core: StudyCore,
        folder: Path,
        *,
        cwd: Path | None = None,
        on_change: Callable[[], None] | None = None,
        poll: Callable[[], list[TrialAction]] | None = None,
        look_s: float = LOOK_S,
    ) -> None:
        self._core, self._folder, self._cwd, self._look_s = core, folder, cwd, look_s
        self._on_change = on_change or (lambda: None)
        self._poll = poll or (list)
        self._processes: dict[int, TrialProcess] = {}
        self._reports: dict[int, TrialReports] = {}
        self._due: list[int] = []
        self._at_limit = ends_at_limit(core.state.config)
        self._limits: dict[int, int] = {}  # that processes were told

    def folder_of(self, number: int) -> Path:
        """Return the folder of a trial: its log, its reports, its checkpoints."""
        return self._folder / "trials" / str(number)

    def checkpoints_of(self, number: int) -> Path:
        """Return the folder of a trial's checkpoints."""
        return self.folder_of(number) / "checkpoints"

    def run(self) -> None:
        """Run the study until it ends; an interrupt pauses its trials, and it can be started again."""
        self._clean_up()
        try:
            while True:
                changed = self._look()
                state = self._core.state
                if state.state == "running":
                    changed |= self._decide()
                self._start_due()
                self._take(self._poll())
                if changed:
                    self._on_change()
                if state.state != "running" and not self._processes:
                    return
                time.sleep(self._look_s)
        except BaseException:
            self._due.clear()
            for process in self._processes.values():
                process.ask()
            for process in self._processes.values():
                process.wait()
            self._look()
            raise
        finally:
            self._on_change()

    def _clean_up(self) -> None:
        """End what a killed study left running: its trials are started again from their checkpoints."""
        for trial in self._core.state:
            if trial.starts:
                end_left_over(self.folder_of(trial.number))

    # -- looking ---------------------------------------------------------------------------------------

    def _look(self) -> bool:
        changed = False
        for number in list(self._processes):
            code = self._processes[number].poll()  # before the reports: those of its end are there then
            changed |= self._read(number, last=code is not None)
            if code is not None:
                self._ended(number, code)
                changed = True
            elif self._core.state.trials[number].over:  # with its study
                self._ask(number)
        return changed

    def _read(self, number: int, *, last: bool = False) -> bool:
        changed = False
        for step, values in self._reports[number].new(last=last):
            changed = True
            if self._core.state.trials[number].state == "running":
                needs = self._core.reported(number, step, values, at_s=time.time())
                if needs and self._core.state.state == "running":
                    self._decide()
        return changed

    def _ended(self, number: int, code: int) -> None:
        core, process = self._core, self._processes.pop(number)
        if core.state.trials[number].state != "running" or number in self._due:
            return  # paused, stopped or cloned: it was told to end
        now_s = time.time()
        trial = core.state.trials[number]
        if code == 0 and self._at_limit and (trial.until or 0) > self._limits[number]:
            self._due.append(number)  # it was extended when it reported its last step
        elif code == 0 and self._at_limit:
            core.segment_done(number, at_s=now_s)
        elif code == 0:
            core.completed(number, at_s=now_s)
        elif process.told:  # Ctrl-C: it goes on when the study does
            core.say(TrialLost(trial=number, message="interrupted", counted=False, at_s=now_s))
        elif code < 0:
            core.lost(number, f"killed by signal {-code}; {last_lines(process.folder)}", at_s=now_s)
        else:
            text = f"exit code {code}; its last lines: {last_lines(process.folder)}"
            core.failed(number, text, at_s=now_s)

    # -- doing -----------------------------------------------------------------------------------------

    def _decide(self) -> bool:
        free = self._core.state.config.parallel - len(set(self._processes) | set(self._due))
        actions = self._core.actions(free, time.time())
        self._take(actions)
        return bool(actions)

    def _take(self, actions: list[TrialAction]) -> None:
        for action in actions:
            match action:
                case ResumeTrial(trial=number):
                    self._due.append(number)
                case PauseTrial(trial=number) | StopTrial(trial=number):
                    self._ask(number)
                case CloneTrial(trial=number):
                    self._ask(number)
                    self._due.append(number)

    def _ask(self, number: int) -> None:
        if number in self._due:
            self._due.remove(number)
        if number in self._processes and not self._ends_by_itself(number):
            self._processes[number].ask()

    def _ends_by_itself(self, number: int) -> bool:
        """Return whether a process has come to the limit that it was told, and may still be saving."""
        return self._at_limit and self._core.state.trials[number].step >= self._limits[number]

    def _start_due(self) -> None:
        """Start what is due; a trial whose process still ends waits for that."""
        for number in [one for one in self._due if one not in self._processes]:
            self._due.remove(number)
            trial, folder = self._core.state.trials[number], self.folder_of(number)
            if trial.state != "running":
                continue
            folder.mkdir(parents=True, exist_ok=True)
            take_weights(trial, self.checkpoints_of)
            if number not in self._reports:
                self._reports[number] = TrialReports(folder, self._cwd)
                for step, values in self._reports[number].new():  # what a killed study left unread
                    self._core.reported(number, step, values, at_s=time.time(), fresh=False)
            config = self._core.state.config
            words = program(trial_words(config, trial, write_files(config, trial, folder)))
            self._limits[number] = limit_of(config, trial)
            env = variables(config, trial)
            env |= mlflow_variables(folder, {**os.environ, **env})
            made = self._processes[number] = TrialProcess(words, env, folder, cwd=self._cwd)
            self._reports[number].elsewhere.pid = made.pid
