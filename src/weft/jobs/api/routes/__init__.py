"""Handlers of requests, one file for each kind of thing; `weft.jobs.api.operations` says which path each answers."""

# The modules whose HANDLERS answer requests.
MODULES = tuple(
    f"{__name__}.{name}"
    for name in (
        "accounts",
        "auto",
        "cluster",
        "compare",
        "data",
        "deployments",
        "elastic",
        "files",
        "jobs",
        "logs",
        "reports",
        "session",
        "stream",
        "studies",
        "vision",
        "vision.inferences",
        "vision.models",
        "vision.projects",
        "vision.trainings",
        "webhooks",
    )
)
