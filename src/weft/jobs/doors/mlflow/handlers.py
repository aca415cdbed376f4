"""The answers of MLflow's tracking REST, one method for each of its paths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import sqlalchemy as sa

from weft.jobs.doors.access import Caller, DoorError, DoorService, changeable_job, missing_job, visible_job
from weft.jobs.doors.mlflow import experiments, messages, records, runs
from weft.jobs.doors.mlflow.artifacts import list_folder, safe_path
from weft.jobs.doors.mlflow.filters import EXPERIMENT_ATTRIBUTES, parse_filter, parse_orders
from weft.jobs.doors.mlflow.memory_search import count_of, in_order, offset_of, page_of, token_of
from weft.jobs.doors.mlflow.queries import find_runs
from weft.jobs.store.metrics import history, jobs_to_pack, pack_job
from weft.jobs.store.tables import job

MOST_FOUND = 50_000  # runs of one page
MOST_POINTS = 25_000  # of one page of a history
VIEWS = ("ACTIVE_ONLY", "DELETED_ONLY", "ALL")
T = TypeVar("T")


class Tracking:
    """MLflow's questions, answered from the store."""

    def __init__(self, service: DoorService) -> None:
        self._service = service
        self._database = service.database

    async def _write(self, work: Callable[[sa.Connection], T]) -> T:
        return await self._database.write(work)

    async def _read(self, work: Callable[[sa.Connection], T]) -> T:
        return await self._database.read(work)

    # -- experiments --------------------------------------------------------------------------------------------------

    async def experiment_by_name(self, caller: Caller, asked: Mapping[str, str]) -> dict[str, Any]:
        name = asked.get("experiment_name", "")

        def find(connection: sa.Connection) -> experiments.Experiment | None:
            experiments.complete(connection)
            return experiments.by_name(connection, name)

        found = await self._write(find)
        if found is None:
            raise DoorError("not-found", f"an experiment must exist, got {name[:80]!r}; create it first")
        return {"experiment": found.to_json()}

    async def experiment(self, caller: Caller, asked: Mapping[str, str]) -> dict[str, Any]:
        number = asked.get("experiment_id", "")

        def find(connection: sa.Connection) -> experiments.Experiment:
            experiments.complete(connection)
            return experiments.by_id(connection, number)

        return {"experiment": (await self._write(find)).to_json()}

    async def create_experiment(self, caller: Caller, asked: messages.CreateExperiment) -> dict[str, Any]:
        _check_member(caller)
        tags = {messages.check_key(one.key, "tag"): one.value for one in asked.tags}
        made = await self._write(lambda connection: experiments.create(connection, asked.name, tags))
        return {"experiment_id": made.id}

    async def search_experiments(self, caller: Caller, asked: messages.SearchExperiments) -> dict[str, Any]:
        wanted = parse_filter(asked.filter, EXPERIMENT_ATTRIBUTES)
        orders = parse_orders(asked.order_by, EXPERIMENT_ATTRIBUTES)
        count = count_of(asked.max_results, MOST_FOUND)

        def find(connection: sa.Connection) -> tuple[experiments.Experiment, ...]:
            experiments.complete(connection)
            return experiments.all_experiments(connection)

        changed_last_first = sorted(await self._write(find), key=lambda one: (-one.changed_ms, -int(one.id)))
        shown = (
            experiments.searchable(one)
            for one in changed_last_first
            if _in_view(asked.view_type, one.deleted)
        )
        found = in_order((one for one in shown if one.fulfils(wanted)), orders)
        page, following = page_of(found, count=count, token=asked.page_token)
        return {"experiments": [one.to_json() for one in page], **following}

    async def delete_experiment(self, caller: Caller, asked: messages.ExperimentReference) -> dict[str, Any]:
        return await self._change_experiment(caller, asked.experiment_id, deleted=True)

    async def restore_experiment(self, caller: Caller, asked: messages.ExperimentReference) -> dict[str, Any]:
        return await self._change_experiment(caller, asked.experiment_id, deleted=False)

    async def update_experiment(self, caller: Caller, asked: messages.UpdateExperiment) -> dict[str, Any]:
        return await self._change_experiment(caller, asked.experiment_id, name=asked.new_name)

    async def _change_experiment(self, caller: Caller, number: str, **values: Any) -> dict[str, Any]:
        # A project holds the jobs of several people: only an admin takes it from all of them.
        if caller.role != "admin":
            raise DoorError("forbidden", "an experiment must be changed by an admin, got another; ask one")
        await self._write(lambda connection: experiments.change(connection, number, **values))
        return {}

    async def tag_experiment(self, caller: Caller, asked: messages.ExperimentTag) -> dict[str, Any]:
        _check_member(caller)
        key = messages.check_key(asked.key, "tag")
        value = messages.check_value(asked.value, 20_000, key)
        await self._write(lambda connection: experiments.set_tag(connection, asked.experiment_id, key, value))
        return {}

    # -- runs ---------------------------------------------------------------------------------------------------------

    async def create_run(self, caller: Caller, asked: messages.CreateRun) -> dict[str, Any]:
        def begin(connection: sa.Connection) -> dict[str, Any]:
            job_id = runs.begin(connection, caller, asked)
            return runs.show_run(connection, visible_job(connection, caller, job_id))

        return {"run": await self._write(begin)}

    async def run(self, caller: Caller, asked: Mapping[str, str]) -> dict[str, Any]:
        job_id = runs.job_id_of(asked.get("run_id") or asked.get("run_uuid", ""))
        await self._number_projects()
        show = await self._read(
            lambda connection: runs.show_run(connection, visible_job(connection, caller, job_id))
        )
        return {"run": show}

    async def _number_projects(self) -> None:
        await self._write(experiments.complete)

    async def update_run(self, caller: Caller, asked: messages.UpdateRun) -> dict[str, Any]:
        def update(connection: sa.Connection) -> dict[str, Any]:
            job_id = runs.update(connection, caller, asked)
            experiments.complete(connection)
            found = visible_job(connection, caller, job_id)
            return runs.run_info(found, experiments.numbers_of(connection))

        return {"run_info": await self._write(update)}

    async def delete_run(self, caller: Caller, asked: messages.RunReference) -> dict[str, Any]:
        await self._write(lambda connection: runs.delete(connection, caller, asked.run_id))
        return {}

    async def restore_run(self, caller: Caller, asked: messages.RunReference) -> dict[str, Any]:
        await self._write(lambda connection: runs.restore(connection, caller, asked.run_id))
        return {}

    async def search_runs(self, caller: Caller, asked: messages.SearchRuns) -> dict[str, Any]:
        wanted, orders = parse_filter(asked.filter), parse_orders(asked.order_by)
        count, offset = count_of(asked.max_results, MOST_FOUND), offset_of(asked.page_token)
        _in_view(asked.run_view_type, False)
        projects = await self._write(lambda connection: _pack_projects(connection, asked.experiment_ids))
        dialect = self._database.engine.dialect.name

        def find(connection: sa.Connection) -> tuple[list[dict[str, Any]], bool]:
            statement = find_runs(
                dialect, projects, wanted, orders, view=asked.run_view_type, visible_to=caller.visible_to
            )
            ids = list(connection.scalars(statement.limit(count + 1).offset(offset)))
            return runs.show_runs(connection, ids[:count]), len(ids) > count

        found, more = await self._read(find) if projects else ([], False)
        return {"runs": found} | ({"next_page_token": token_of(offset + count)} if more else {})

    # -- logging ------------------------------------------------------------------------------------------------------

    async def log_batch(self, caller: Caller, asked: messages.LogBatch) -> dict[str, Any]:
        batch = records.LoggedBatch(asked)
        if batch.only_points:  # readers check it meanwhile: what only one may do at a time is the writing
            await self._read(lambda connection: batch.check(connection, caller))
            new = await self.write_points(batch)
        else:
            new = await self._write(lambda connection: batch.write(connection, caller))
        if new:
            self._publish(batch)
        return {}

    async def write_points(self, batch: records.LoggedBatch) -> bool:
        """Write points together with those of other requests; return whether they are new."""
        points = batch.points
        if points is None:
            return False
        try:
            return await self._write(points)
        except sa.exc.IntegrityError:  # its job was removed since
            raise missing_job(batch.job_id) from None

    def _publish(self, batch: records.LoggedBatch) -> None:
        """Hand new points to the watchers of the job."""
        if not self._service.points.watched(batch.job_id):
            return
        points: dict[str, list[tuple[int, int, float]]] = {}
        for name, step, at, value in batch.reports:
            points.setdefault(name, []).append((step, at, value))
        self._service.points.publish(batch.job_id, points)

    async def log_metric(self, caller: Caller, asked: messages.LogMetric) -> dict[str, Any]:
        return await self.log_batch(caller, messages.LogBatch(asked.run_id, metrics=(asked,)))

    async def log_param(self, caller: Caller, asked: messages.RunKeyValue) -> dict[str, Any]:
        return await self.log_batch(caller, messages.LogBatch(asked.run_id, params=(asked,)))

    async def set_tag(self, caller: Caller, asked: messages.RunKeyValue) -> dict[str, Any]:
        return await self.log_batch(caller, messages.LogBatch(asked.run_id, tags=(asked,)))

    async def delete_tag(self, caller: Caller, asked: messages.RunKey) -> dict[str, Any]:
        job_id = runs.job_id_of(asked.run_id)

        def delete(connection: sa.Connection) -> None:
            changeable_job(connection, caller, job_id)
            records.delete_tag(connection, job_id, asked.key)

        await self._write(delete)
        return {}

    async def log_inputs(self, caller: Caller, asked: messages.LogInputs) -> dict[str, Any]:
        job_id = runs.job_id_of(asked.run_id)

        def add(connection: sa.Connection) -> None:
            records.check_active(changeable_job(connection, caller, job_id))
            records.add_inputs(connection, job_id, asked)

        await self._write(add)
        return {}

    async def history(self, caller: Caller, asked: Mapping[str, str]) -> dict[str, Any]:
        job_id, key = runs.job_id_of(asked.get("run_id", "")), asked.get("metric_key", "")
        count = count_of(asked.get("max_results") or MOST_POINTS, MOST_POINTS)
        offset = offset_of(asked.get("page_token", ""))

        def read(connection: sa.Connection) -> Any:
            visible_job(connection, caller, job_id)
            return history(connection, job_id, key, offset, count + 1)

        found = await self._read(read)
        points = zip(found.steps.tolist(), found.times_ms.tolist(), found.values.tolist(), strict=True)
        listed = [
            {"key": key, "value": messages.shown(value), "timestamp": at, "step": step}
            for step, at, value in points
        ]
        answer: dict[str, Any] = {"metrics": listed[:count]}
        return answer | ({"next_page_token": token_of(offset + count)} if len(listed) > count else {})

    async def artifacts(self, caller: Caller, asked: Mapping[str, str]) -> dict[str, Any]:
        job_id = runs.job_id_of(asked.get("run_id") or asked.get("run_uuid", ""))
        path = safe_path(asked.get("path", ""))
        await self._number_projects()

        def find(connection: sa.Connection) -> dict[str, Any]:
            return runs.run_info(visible_job(connection, caller, job_id), experiments.numbers_of(connection))

        info = await self._read(find)
        files = list_folder(self._service.folder, job_id, path, base=path)
        return {"root_uri": info["artifact_uri"], "files": files}


def _check_member(caller: Caller) -> None:
    if caller.role == "viewer":
        raise DoorError(
            "forbidden", "a change must come from a member or an admin, got a viewer; ask an admin"
        )


def _in_view(view: str, deleted: bool) -> bool:
    if view not in VIEWS:
        raise DoorError("bad", f"a view must be one of {', '.join(VIEWS)}, got {view[:40]!r}")
    return view == "ALL" or deleted == (view == "DELETED_ONLY")


def _pack_projects(connection: sa.Connection, numbers: tuple[str, ...]) -> list[str]:
    """Return the projects of experiments; their points are packed, so that the database can compare them."""
    experiments.complete(connection)
    by_number = {number: name for name, number in experiments.numbers_of(connection).items()}
    projects = [by_number[number] for number in numbers if number in by_number]
    waiting = jobs_to_pack(connection) if projects else []
    mine = sa.select(job.c.id).where(job.c.project.in_(projects), job.c.id.in_(waiting))
    for job_id in connection.scalars(mine).all() if waiting else ():
        while pack_job(connection, job_id):
            pass
    return projects
