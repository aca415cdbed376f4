"""A service on a virtual cluster, told what to do on its head: `python -m testing.jobs.cluster_story FOLDER`.

It prints one JSON object: the hosts of each job, and what was refused.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from testing.jobs.desk import Desk, desk_on, opened

from weft.errors import WeftError
from weft.jobs.store.hosts import list_hosts

SCRIPT = """
import os
from pathlib import Path
text = os.environ["WEFT_HOST"] + " " + str(sorted(os.sched_getaffinity(0)))
Path(os.environ["WEFT_OUTPUTS"], "rank-" + os.environ["RANK"]).write_text(text)
"""


async def places(desk: Desk, number: int) -> list[str]:
    """Wait for a job, and return the host and the processors of each of its workers."""
    job = await desk.reach(number)
    if job.state != "completed":
        return [f"{job.state}: {job.message}"]
    return sorted(path.read_text() for path in desk.path(number, "outputs").glob("rank-*"))


async def tell(desk: Desk) -> dict[str, Any]:
    """Add hosts, run jobs on them, drain one."""
    service = desk.service
    found: dict[str, Any] = {}
    await service.add_host("h1", rack="r1")
    await service.add_host("h2", labels=["fast"], rack="r1")
    try:
        await service.add_host("h9")
    except WeftError as error:
        found["refused"] = str(error)
    found["all"] = await places(desk, await desk.submit(SCRIPT, "workers: 6"))
    found["labelled"] = await places(desk, await desk.submit(SCRIPT, "resources: {hosts: fast}"))
    await service.drain("h1")
    await service.drain(service.host)
    found["drained"] = await places(desk, await desk.submit(SCRIPT, "workers: 2"))
    found["states"] = {host.name: host.state for host in await service.database.read(list_hosts)}
    return found


async def main(folder: Path) -> None:
    with opened(f"sqlite:///{folder}/weft.db") as database:
        async with desk_on(database, folder) as desk:
            print(json.dumps(await tell(desk)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
