"""`weft up`: the jobs service and its console, as one process."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from weft.cli.jobs.options import DATABASE, missing_extra
from weft.cli.paths import ExistingFile, OutputFile, OutputFolder
from weft.cli.values import PORT_OR_ANY, Cidr, Size, Text, Whole

PORT = 8765
ADDRESS = Text("an address of this machine", "127.0.0.1", like=r"[A-Za-z0-9.:_-]{1,253}")
HOST_HEADER = Text("a name of a host", "gpu1.example.org", like=r"[A-Za-z0-9*][A-Za-z0-9.:_-]{0,252}")


@contextmanager
def without_collection() -> Iterator[None]:
    """Import within the block without looking for garbage, which takes a tenth of the time and finds none."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # modules stay until the end: no later collection looks at them again
        gc.enable()


@click.command("up")
@click.option("--data", type=OutputFolder(), metavar="DIR",
              help="Keep everything here ($WEFT_HOME, or weft in your folder for data).")  # fmt: skip
@click.option(
    "--host", type=ADDRESS, default="127.0.0.1", show_default=True, help="The address to listen on."
)
@click.option("--port", type=PORT_OR_ANY, default=PORT, show_default=True, help="0: any that is free.")
@click.option("--database", type=DATABASE, metavar="URL",
              help="postgresql://user@host/name in place of SQLite in the data folder; also WEFT_DATABASE.",
              envvar="WEFT_DATABASE")  # fmt: skip
@click.option("--tls-cert", type=ExistingFile(), help="A certificate chain, PEM.")
@click.option("--tls-key", type=ExistingFile(), help="Its private key, PEM.")
@click.option("--shared/--private", default=True, show_default=True,
              help="Members see each other's jobs, or only their own.")  # fmt: skip
@click.option("--allow-host", "allow_hosts", type=HOST_HEADER, multiple=True, metavar="NAME",
              help="A name besides localhost that it answers to, such as a proxy's; may be repeated.")  # fmt: skip
@click.option(
    "--private-webhooks",
    type=Cidr(),
    multiple=True,
    metavar="CIDR",
    help="A private network that webhooks may go to after all; may be repeated.",
)
@click.option("--jobs-as", type=click.Choice(("service", "users")),
              help="Run jobs as the user of this process, or each as the system user of its submitter, which needs "
                   "root. Without it: as users where that is possible, and it says which.")  # fmt: skip
@click.option("--keep-days", type=Whole(1, 36_500, example=90), help="Remove jobs so long after their end.")
@click.option(
    "--keep-most",
    "keep_bytes",
    type=Size("500GB"),
    metavar="SIZE",
    help="Keep so much of jobs' files; the oldest go first.",
)
@click.option("--insecure", is_flag=True, help="Listen beyond this machine without TLS.")
@click.option(
    "--ready-file", type=OutputFile(), help="Write the address there, as JSON, once requests are welcome."
)
def command(data: Path | None, **options: Any) -> None:
    """Start the jobs service: API, scheduler and console. It prints one link, which logs you in.

    Whoever may submit jobs runs code: as the user who started the service or, under root, as the system user that
    `weft user system` gives them. Jobs go on when it ends, and it finds them again when it is started again.
    """
    try:
        with without_collection():
            from weft.console import pages_folder
            from weft.jobs.api.process import ServiceOptions, run_service
            from weft.jobs.client.address import default_data_folder
    except ModuleNotFoundError as error:
        raise missing_extra(error) from None
    given = {**options, "private_webhooks": tuple(map(str, options["private_webhooks"]))}
    folder = (data or default_data_folder()).absolute()
    run_service(ServiceOptions(data=folder, pages=pages_folder(), **given), click.echo)
