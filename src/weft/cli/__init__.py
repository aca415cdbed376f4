"""The `weft` command: one file per verb, thin over the library.

A verb's module is imported only when it is called, so that `weft --help` stays quick.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

import click

import weft

# section of --help: {verb: (module, what --help says of it)}
SECTIONS = {
    "Runs": {
        "run": ("weft.cli.training.run", "Run a script on one machine or many."),
        "plan": ("weft.cli.training.plan", "Predict every way to share a model between hosts."),
        "scale": ("weft.cli.training.scale", "Give an elastic run other hosts while it goes on."),
        "pause": ("weft.cli.training.pause", "End an elastic run at a checkpoint, to go on later."),
        "ledger": ("weft.cli.training.ledger", "Check which samples an elastic run consumed."),
        "timeline": ("weft.cli.training.timeline", "Show the changes of an elastic run."),
        "kubernetes": ("weft.cli.training.cluster", "Follow and end runs on Kubernetes; set a cluster up."),
    },
    "Machines": {
        "check": ("weft.cli.hosts.check", "Check hosts and the network between them."),
        "topology": ("weft.cli.hosts.topology", "Show what the machines look like."),
        "rankfile": ("weft.cli.hosts.rankfile", "Write the rank file for some hosts."),
        "bench": ("weft.cli.training.bench", "Measure collectives."),
    },
    "Tables and pictures": {
        "auto": ("weft.cli.tables.auto", "Find, explain and export the best model of a table."),
        "learn": ("weft.cli.tables.learn", "Fit models to tables."),
        "data": ("weft.cli.tables.data", "Prepare tables for weft learn."),
        "vision": ("weft.cli.vision.vision", "Keep data sets of pictures; train and deploy models of them."),
    },
    "Models": {
        "export": ("weft.cli.models.export", "Write a trained model to a checked ONNX file."),
        "model": ("weft.cli.models.model", "Look into models, and keep them in a store."),
        "serve": ("weft.cli.models.serve", "Serve models over REST and gRPC."),
        "client": ("weft.cli.models.client", "Ask a server that speaks the open inference protocol."),
    },
    "Jobs and searches": {
        "submit": ("weft.cli.jobs.submit", "Queue a job."),
        "jobs": ("weft.cli.jobs.jobs", "List jobs: what runs, what waits and why."),
        "job": ("weft.cli.jobs.job", "Show, stop, retry, clone, compare a job; fetch its files."),
        "logs": ("weft.cli.jobs.logs", "Print what a job prints."),
        "tune": ("weft.cli.tuning.tune", "Search for good parameters of a script."),
        "studies": ("weft.cli.tuning.studies", "List searches."),
        "study": ("weft.cli.tuning.study", "Show, stop, extend, clone and export a search."),
        "dataset": ("weft.cli.jobs.dataset", "Register data by name and version."),
        "models": ("weft.cli.service.models", "List and tag models of the jobs service."),
        "deployment": ("weft.cli.service.deployment", "Serve models of the jobs service."),
        "ffdl": ("weft.cli.jobs.ffdl", "Train with the words of FfDL's command line."),
    },
    "The jobs service": {
        "up": ("weft.cli.jobs.up", "Start the jobs service and its console."),
        "login": ("weft.cli.jobs.login", "Log in to a jobs service."),
        "hosts": ("weft.cli.jobs.hosts", "List, add and drain the hosts of jobs."),
        "user": ("weft.cli.service.user", "Manage who may use the jobs service."),
        "token": ("weft.cli.service.token", "Manage tokens of programs."),
        "secret": ("weft.cli.service.secret", "Keep secrets for jobs."),
        "webhook": ("weft.cli.service.webhook", "Tell web addresses of what happens to jobs."),
        "retention": ("weft.cli.service.retention", "Remove jobs that are kept no longer."),
        "audit": ("weft.cli.service.audit", "Print who did what in the jobs service."),
        "backup": ("weft.cli.service.backup", "Keep a jobs service's data in one file."),
        "restore": ("weft.cli.service.restore", "Make a jobs service's data from a backup."),
    },
}
VERBS = {verb: module for verbs in SECTIONS.values() for verb, (module, _) in verbs.items()}


class Verbs(click.Group):
    """A group that imports a verb when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(VERBS[cmd_name]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        column = max(map(len, VERBS))  # one for all sections
        for section, verbs in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(verb.ljust(column), text) for verb, (_, text) in verbs.items()])


@click.command(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(weft.__version__, prog_name="weft")
def group() -> None:
    """Distributed deep learning on the machines you have."""


def call(args: Sequence[str]) -> int:
    """Carry out a command line and return its exit code: 0 done, 1 failed, 2 misused, or that of a run's script."""
    try:
        code = group.main(list(args), prog_name="weft", standalone_mode=False)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:
        from weft.cli.failures import print_failure

        return print_failure(error)
    return int(code or 0)


def main() -> None:
    """Run the command line of this process."""
    code = call(sys.argv[1:])
    with suppress(OSError):
        sys.stdout.flush()
        sys.exit(code)
    # The reader of standard output has left: the interpreter must not try to write the rest when it ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)
