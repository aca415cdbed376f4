"""A service on a virtual cluster, told what to do on its head: `python -m testing.jobs.cluster_story FOLDER`.

It prints one JSON object: the hosts of each job, and what was refused. In a folder below /run, which each host has for
itself, it is told of jobs whose code and data have to be carried.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from testing.jobs.desk import Desk, desk_on, opened

from weft.errors import WeftError
from weft.jobs.data.datasets import add_version
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


APART = """
import os
from pathlib import Path
host, rank = os.environ["WEFT_HOST"], os.environ["RANK"]
words = Path(os.environ["WEFT_DATA_WORDS"], "deep", "words.txt").read_text()
Path(os.environ["WEFT_OUTPUTS"], "rank-" + rank).write_text(" ".join((host, words, Path("part.txt").read_text())))
if os.environ["WEFT_ATTEMPT"] == "2":
    assert Path(os.environ["WEFT_CHECKPOINT"], "at-h1").exists()
Path(os.environ["WEFT_CHECKPOINT"], "at-" + host).touch()
if os.environ["WEFT_ATTEMPT"] == "1" and rank == "0":
    raise SystemExit(1)
"""


async def tell_apart(desk: Desk) -> dict[str, Any]:
    """Run a job, twice, on hosts that have nothing of it."""
    service, words = desk.service, desk.folder / "words"
    (words / "deep").mkdir(parents=True)
    (words / "deep" / "words.txt").write_text("weft")
    manifest = await service.data.staging.scan(str(words), 1)
    await service.database.write(
        lambda c: add_version(c, "words", source=str(words), manifest=manifest, user_id=1, user_name="ann")
    )
    for name in ("h1", "h2"):
        await service.add_host(name)
    await service.drain(service.host)
    retry = "retry: {max: 1, backoff: 0s, avoid_hosts: false}"
    spec = f"workers: 2\nresources: {{cpus: 2}}\ndata: {{words: 'dataset:words@1'}}\n{retry}"
    (number,) = await desk.submit_all(APART, spec, {"part.txt": "warp"})
    found: dict[str, Any] = {"first": await places(desk, number)}
    job = await desk.job(number)
    found["text"] = sorted(
        path.read_text() for path in desk.path(number, "outputs", attempt=2).glob("rank-*")
    )
    found["checkpoints"] = sorted(
        path.name for path in desk.path(number).parent.joinpath("checkpoints").iterdir()
    )
    found["state"], found["message"] = job.state, job.message
    found["mpi"] = await places(
        desk, await desk.submit(SCRIPT, "workers: 2\nresources: {cpus: 2}\nengine: mpi")
    )
    return found


async def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with opened(f"sqlite:///{folder}/weft.db") as database:
        async with desk_on(database, folder) as desk:
            story = tell_apart if folder.is_relative_to("/run") else tell
            print(json.dumps(await story(desk)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
