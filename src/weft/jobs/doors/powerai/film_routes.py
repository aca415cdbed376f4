"""Inferences on films: a film that is sent to a deployed model becomes a job, and its answers come later."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute

from weft.jobs.data.deployment_records import Deployment
from weft.jobs.doors.access import Caller, DoorError, changeable_job, visible_job
from weft.jobs.doors.powerai.answers import film_json
from weft.jobs.doors.powerai.base import PowerAiPart, both, in_order, json_answer, success
from weft.jobs.doors.powerai.identities import missing, number_of, numbered_id
from weft.jobs.lifecycle import ENDED
from weft.jobs.spec.model import ResourceSpec
from weft.jobs.store.jobs import StoredJob
from weft.jobs.store.listing import JobFilter, list_jobs
from weft.jobs.vision.beginning import FilmRequest, JobOwner, begin_film
from weft.jobs.vision.films import captioned_film, film_actions, film_frames
from weft.jobs.vision.trainings import INFERENCE, TAG

if TYPE_CHECKING:
    from weft.vision.library import Library
    from weft.vision.views import VisionFile

MOST_INFERENCES = 500
LONGEST_WAIT_S, POLL_S = 600.0, 0.5  # of a request that waits for its results
DATASET = "inferences"  # begins the name of the data set that keeps a user's films


class FilmPart(PowerAiPart):
    """Inferences on films."""

    def routes(self) -> list[BaseRoute]:
        one = "/inferences/{inference}"
        return [
            *both("/inferences", {"GET": self.inferences}),
            *both(one, {"GET": self.inference, "DELETE": self.remove_inference}),
            *both(f"{one}/video", {"GET": self.captioned}),
        ]

    async def begin_on_film(
        self, caller: Caller, found: Deployment, name: str, file: IO[bytes], confidence: float
    ) -> Response:
        """Keep a film in a data set of the caller's, and let the deployed model look at it as a job."""
        model = await self.service.trainings.models.find(f"{found.model}@{found.version}")
        film = await self.library(lambda library: _kept(library, caller.user_name, name, file))
        asked = FilmRequest(
            film=film.id,
            name=film.name,
            dataset=film.dataset,
            model=model,
            confidence=confidence,
            every=1,
            resources=ResourceSpec(),
        )
        number = await begin_film(self.service, JobOwner(caller.user_id, caller.user_name), asked)
        identity = numbered_id("dltask", number)
        return success(202, _id=identity, inference_id=identity, webAPIId=numbered_id("webapi", found.id))

    async def waited_for(self, caller: Caller, begun: Response) -> Response:
        """Return the answer of an inference when it has ended, or that it has begun if that takes too long."""
        number = number_of("dltask", msgspec.json.decode(bytes(begun.body))["inference_id"])
        until = asyncio.get_running_loop().time() + LONGEST_WAIT_S
        while asyncio.get_running_loop().time() < until:
            job = await self._database.read(lambda c: visible_job(c, caller, number))
            if job.state in ENDED:
                return await self._inference_answer(job)
            await asyncio.sleep(POLL_S)
        return begun

    async def inferences(self, request: Request) -> Response:
        caller = await self.caller(request)
        wanted = JobFilter(text=f"{TAG}={INFERENCE}", visible_to=caller.visible_to)
        jobs = (await self._database.read(lambda c: list_jobs(c, wanted, most=MOST_INFERENCES))).jobs
        return json_answer(in_order([film_json(job) for job in jobs], request))

    async def inference(self, request: Request) -> Response:
        """Tell how far an inference is and, when it is done, what was seen in each frame."""
        job = await self._inference(request, await self.caller(request))
        return await self._inference_answer(job)

    async def _inference_answer(self, job: StoredJob) -> Response:
        """Return an inference with what was seen: frame by frame, or actions with their times."""
        outputs = self._outputs(job)
        frames = await asyncio.to_thread(film_frames, outputs)
        actions = [
            {
                "label": one.get("label"),
                "start_time": one.get("start_s"),
                "end_time": one.get("end_s"),
                "confidence": one.get("confidence"),
            }
            for one in await asyncio.to_thread(film_actions, outputs)
        ]
        return json_answer({**film_json(job), "frames": frames, "classified": actions})

    async def remove_inference(self, request: Request) -> Response:
        caller = await self.caller(request, writes=True)
        job = await self._inference(request, caller, change=True)
        if job.state not in ENDED:
            await self.service.act(job.id, "stop", user_name=caller.user_name)
            return success(202)
        await self.service.remove(job.id, user_name=caller.user_name)
        return success()

    async def captioned(self, request: Request) -> Response:
        """Give the film with what the model saw drawn in."""
        job = await self._inference(request, await self.caller(request))
        path = captioned_film(self._outputs(job))
        if job.state != "completed" or path is None:
            raise DoorError(
                "conflict", f"an inference must have ended to have a film, got one that is {job.state}"
            )
        return FileResponse(path, media_type="video/mp4")

    def _outputs(self, job: StoredJob) -> Path:
        return self.service.log_folder(job.id, max(1, job.attempt)) / "outputs"

    async def _inference(self, request: Request, caller: Caller, *, change: bool = False) -> StoredJob:
        text = request.path_params["inference"]
        number, find = number_of("dltask", text), changeable_job if change else visible_job
        job = await self._database.read(lambda c: find(c, caller, number))
        if job.tags.get(TAG) != INFERENCE:
            raise missing("inference", text)
        return job


def _kept(library: Library, user: str, name: str, file: IO[bytes]) -> VisionFile:
    """Add a film to the data set of a user's inferences, which is made if it is not there. Blocks."""
    title = f"{DATASET}-{user}"[:64]
    known: Any = next((one for one in library.datasets(user) if one.name == title), None)
    if known is None:
        known = library.create(title, description="Films that were shown to deployed models", user=user)
    draft = library.blobs.draft(Path(name).suffix)
    with draft.open("wb") as target:
        shutil.copyfileobj(file, target)
    return library.add_film(known.id, draft, Path(name.replace("\\", "/")).name, user=user)
