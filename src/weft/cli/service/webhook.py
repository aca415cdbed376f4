"""`weft webhook`: addresses that get messages about what happens to your jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from weft.cli.jobs.options import (
    LARGEST_ID,
    NAME_OF_JOB,
    confirm,
    json_option,
    open_client,
    print_data,
    print_removed,
    url_option,
    yes_option,
)
from weft.cli.jobs.printing import moment, plain
from weft.cli.values import Text, Whole, Words
from weft.text import format_table

if TYPE_CHECKING:
    from weft.jobs.api.types.accounts import DeliveryView, WebhookView

EVENTS = ("started", "completed", "failed", "stopped", "paused", "advice", "retried")
WEBHOOK = Whole(1, LARGEST_ID, example=3)
ADDRESS = Text(
    "an http or https address without a password", "https://example.org/hook", like=r"https?://[!-~]{1,1990}"
)


@click.group("webhook")
def command() -> None:
    """Send events of your jobs to web addresses, as signed messages."""


@command.command("list")
@url_option
@json_option
def list_webhooks(url: str | None, as_json: bool) -> None:
    """Print your webhooks."""
    from weft.jobs.api.types.accounts import WebhooksAnswer

    with open_client(url) as client:
        _print(client.connection.get("/webhooks", WebhooksAnswer).webhooks, as_json)


@command.command("add")
@click.argument("address", type=ADDRESS)
@click.option("--on", "events", type=Words(EVENTS), default=("completed", "failed"), metavar="EVENT,...",
              help=f"What it is told of: {', '.join(EVENTS)} (completed,failed).")  # fmt: skip
@click.option("--project", type=NAME_OF_JOB, help="Only jobs of this project.")
@url_option
@json_option
def add(address: str, events: tuple[str, ...], project: str | None, url: str | None, as_json: bool) -> None:
    """Tell ADDRESS of events, and print the key that signs the messages: it is shown once."""
    from weft.jobs.api.types.accounts import NewWebhookAnswer

    body = {"url": address, "events": list(events), "project": project}
    with open_client(url) as client:
        made = client.connection.send("POST", "/webhooks", NewWebhookAnswer, body)
    if as_json:
        print_data(made)
        return
    click.echo(f"weft: webhook {made.webhook.id}; the key that signs its messages, shown once:", err=True)
    click.echo(made.key)


@command.command("show")
@click.argument("webhook", type=WEBHOOK)
@url_option
@json_option
def show(webhook: int, url: str | None, as_json: bool) -> None:
    """Print the newest messages to WEBHOOK: what was delivered, what failed and why."""
    from weft.jobs.api.types.accounts import DeliveriesAnswer

    with open_client(url) as client:
        found = client.connection.get(f"/webhooks/{webhook}/deliveries", DeliveriesAnswer).deliveries
    _print_deliveries(found, as_json)


@command.command("test")
@click.argument("webhook", type=WEBHOOK)
@url_option
@json_option
def test(webhook: int, url: str | None, as_json: bool) -> None:
    """Send WEBHOOK a message that only says hello; `weft webhook show` tells how that went."""
    from weft.jobs.api.types.accounts import DeliveryView

    with open_client(url) as client:
        sent = client.connection.send("POST", f"/webhooks/{webhook}/test", DeliveryView)
    _print_deliveries((sent,), as_json)


@command.command("pause")
@click.argument("webhook", type=WEBHOOK)
@url_option
@json_option
def pause(webhook: int, url: str | None, as_json: bool) -> None:
    """Tell WEBHOOK nothing for now."""
    _change(webhook, active=False, url=url, as_json=as_json)


@command.command("resume")
@click.argument("webhook", type=WEBHOOK)
@url_option
@json_option
def resume(webhook: int, url: str | None, as_json: bool) -> None:
    """Tell WEBHOOK of events again."""
    _change(webhook, active=True, url=url, as_json=as_json)


@command.command("rm")
@click.argument("webhook", type=WEBHOOK)
@yes_option
@url_option
@json_option
def remove(webhook: int, yes: bool, url: str | None, as_json: bool) -> None:
    """Remove WEBHOOK with its messages."""
    confirm(f"remove webhook {webhook}?", yes)
    with open_client(url) as client:
        client.connection.send("DELETE", f"/webhooks/{webhook}", type(None))
    print_removed(webhook, as_json, f"webhook {webhook}")


def _change(webhook: int, *, active: bool, url: str | None, as_json: bool) -> None:
    from weft.jobs.api.types.accounts import WebhookView

    with open_client(url) as client:
        changed = client.connection.send("PATCH", f"/webhooks/{webhook}", WebhookView, {"active": active})
    _print((changed,), as_json)


def _print(webhooks: tuple[WebhookView, ...], as_json: bool) -> None:
    if as_json:
        print_data(webhooks)
        return
    if not webhooks:
        click.echo("no webhooks; add one with weft webhook add https://example.org/hook")
        return
    rows: list[tuple[str, ...]] = [("webhook", "address", "on", "project", "state", "since")]
    for one in webhooks:
        state = "active" if one.active else "paused"
        project = plain(one.project or "all")
        rows.append(
            (str(one.id), plain(one.url), ",".join(one.events), project, state, moment(one.created_ms))
        )
    click.echo("\n".join(format_table(rows, left=rows[0][1:])))


def _print_deliveries(deliveries: tuple[DeliveryView, ...], as_json: bool) -> None:
    if as_json:
        print_data(deliveries)
        return
    if not deliveries:
        click.echo("no messages yet; weft webhook test sends one")
        return
    rows: list[tuple[str, ...]] = [("time", "event", "job", "state", "tries", "answer", "about")]
    for one in deliveries:
        rows.append(
            (
                moment(one.created_ms),
                plain(one.event),
                str(one.job or "-"),
                one.state,
                str(one.tries),
                str(one.status or "-"),
                plain(one.message or ""),
            )
        )
    click.echo("\n".join(format_table(rows, left=rows[0])))
