"""The lines that the launcher prints about an elastic run while it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.text import plural


def lines_about(event: dict[str, Any]) -> Iterator[str]:
    """The lines to print for one event of an agent's journal; none for most events."""
    who = ", ".join(event.get("who", ()))
    match event["event"]:
        case "detected" if event["kind"] in ("death", "stuck", "host"):
            yield f"lost {who}: {event['cause']}"
        case "detected" if event["kind"] == "slow":
            yield f"{who} is {event['cause']} ({event['policy']})"
        case "detected" if event["kind"] == "leave":
            yield f"{who} leaves: {event['cause']}"
        case "spared":
            yield f"{event['worker']} makes {event['cause']}"
        case "replaced":
            yield f"another worker takes the place of {event['worker']}: {event['cause']}"
        case "agreed" if event["host"] == event["members"][0].partition("/")[0]:
            size = event["size"]
            yield f"view {event['view']}: {plural(size, 'worker')} ({event['cause']})"
        case "resized":
            count = event["slots"]
            yield f"{event['host']} is to have {plural(count, 'worker')} instead of {event['before']}"
        case "trouble":
            yield f"{event['host']} cannot write down what happens: {event['cause']}"
