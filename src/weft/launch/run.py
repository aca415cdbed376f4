"""From a request to a finished run: survey, plan, check, carry out. What `weft run` does, for Python."""

from __future__ import annotations

import secrets
import shlex
import sys
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime

from weft.launch.config import LaunchConfig, carried_variables
from weft.launch.control.console import Console
from weft.launch.control.outcome import Outcome
from weft.launch.control.rundir import RunDir
from weft.launch.engines.engine import Engine, choose_engine, open_engine
from weft.launch.engines.hosts import Hosts
from weft.launch.plan import LaunchPlan, make_plan
from weft.launch.sites import HostSite


@dataclass(frozen=True)
class DryRun:
    """A plan and the commands that would carry it out."""

    plan: LaunchPlan
    commands: tuple[tuple[str, ...], ...]


def dry_run(config: LaunchConfig) -> DryRun:
    """Decide everything, start no worker."""
    with closing(open_engine(config)) as engine:
        plan = _plan(config, engine, _sites(config, engine))
        return DryRun(plan, engine.commands(plan))


def run(config: LaunchConfig, *, to_stderr: bool = False) -> Outcome:
    """Run the program; returns when every process of the run is gone.

    Several hosts are checked first. Measuring their links takes seconds, so it is done only where
    these hosts were not measured within the last hour: by the first run on them, or by `weft check`.
    """
    if choose_engine(config) == "pods":
        from weft.launch.engines.pods.engine import in_pods

        return in_pods(config, lambda config: _run(config, to_stderr=to_stderr))
    return _run(config, to_stderr=to_stderr)


def _run(config: LaunchConfig, *, to_stderr: bool) -> Outcome:
    with closing(open_engine(config)) as engine:
        if engine.hosts is not None and len(engine.hosts.names) > 1 and not config.skip_checks:
            _check(config, engine.hosts)
        plan = _plan(config, engine, engine.sites())
        if engine.hosts is not None:
            engine.hosts.look(plan)
        folder = RunDir.create(config.run_dir, plan, datetime.now(), config.parallel_plan)
        out = (sys.stderr if to_stderr else sys.stdout).buffer
        console = Console(plan.world_size, logs=folder.path, out=out)
        if config.verbose:
            for command in engine.commands(plan):
                console.say("+ " + shlex.join(command))
        try:
            outcome = engine.run(plan, console, run_id=_run_id(folder), run_dir=folder.path)
        finally:
            console.close()
        try:
            folder.write_outcome(outcome)
        except OSError as error:  # a full disk; the outcome is worth telling all the same
            console.say(f"weft: no outcome in {folder.path}: {error.strerror}")
        return outcome


def _check(config: LaunchConfig, hosts: Hosts) -> None:
    """Stop what would fail; say what is odd."""
    _ = hosts.crew  # the agents start while the rest is imported
    from weft.launch import preflight

    report = preflight.check_before_run(hosts, config, progress=preflight.progress_on(sys.stderr))
    if config.verbose:
        print(preflight.render_report(report), file=sys.stderr)
    elif report.ok:
        for line in preflight.render_troubles(report):
            print(f"weft: {line}", file=sys.stderr)
    preflight.require_ok(report)


def _run_id(folder: RunDir) -> str:
    """Return an identity of the run: the folder's name for people, and a part that no other run has."""
    return f"{folder.path.name}-{secrets.token_hex(4)}"


def _sites(config: LaunchConfig, engine: Engine) -> tuple[HostSite, ...]:
    """The hosts; for a dry run without checks, only their names, so that a plan can be drawn before they exist."""
    if config.skip_checks and config.host_names:
        return tuple(HostSite(name=entry, host=None, address=entry) for entry in config.host_names)
    return engine.sites()


def _plan(config: LaunchConfig, engine: Engine, sites: tuple[HostSite, ...]) -> LaunchPlan:
    return make_plan(
        config,
        sites,
        engine=engine.name,
        port=engine.port(),
        python=engine.python,
        carried=carried_variables(),
    )
