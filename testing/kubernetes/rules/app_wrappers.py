"""The controller of AppWrappers, as far as a run needs it: what it makes, and how that ends it; pure."""

from __future__ import annotations

import copy
from typing import Any

Data = dict[str, Any]
# By the Role that AppWrapper 1.x gives its controller, of the kinds that are here.
MAY_MAKE = frozenset({"Pod", "Service", "Job", "JobSet"})


def components_of(wrapper: Data) -> list[Data]:
    """Return the objects that a wrapper holds, which belong to it; raise `PermissionError` for one it may not make."""
    owner = {
        "apiVersion": wrapper["apiVersion"],
        "kind": "AppWrapper",
        "name": wrapper["metadata"]["name"],
        "uid": wrapper["metadata"]["uid"],
        "controller": True,
    }
    found = []
    for component in wrapper["spec"]["components"]:
        item = copy.deepcopy(component["template"])
        if item["kind"] not in MAY_MAKE:
            raise PermissionError(f"the controller of AppWrappers cannot create {item['kind']}")
        labels = {"workload.codeflare.dev/appwrapper": owner["name"]}
        item["metadata"] = {
            **item["metadata"],
            "labels": {**item["metadata"].get("labels", {}), **labels},
            "ownerReferences": [owner],
        }
        found.append(item)
    return found


def phase_of(ends: list[str | None]) -> str:
    """Return the phase of a wrapper, by the conditions that its Jobs and JobSets ended with."""
    if "Failed" in ends:
        return "Failed"
    done = bool(ends) and all(end in ("Complete", "Completed") for end in ends)
    return "Succeeded" if done else "Running"
