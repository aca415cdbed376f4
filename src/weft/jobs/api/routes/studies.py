"""Studies: begun, listed, shown, asked for something, cloned, exported, removed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import msgspec
import sqlalchemy as sa
from starlette.responses import Response

from weft.errors import UsageError
from weft.jobs.api.binding import Handler
from weft.jobs.api.failures import ApiRefusal
from weft.jobs.api.routes.data import add_model_of_job
from weft.jobs.api.state import ApiCall
from weft.jobs.api.types.data import ModelView, NewModel
from weft.jobs.api.types.studies import (
    AddedTrial,
    AlgorithmsAnswer,
    InteractionsAnswer,
    NewStudy,
    StudiesAnswer,
    StudyAnswer,
    StudyChanges,
    StudyCopy,
    StudyDetail,
    StudyEventsAnswer,
    StudyModel,
    TrialPromotion,
    TrialsAnswer,
)
from weft.jobs.studies import store
from weft.jobs.studies.begin import begin_study
from weft.jobs.studies.states import SeenStudy
from weft.tune.results.export import to_csv
from weft.tune.results.insights import insights
from weft.tune.results.views import trial_view
from weft.tune.samplers.base import SEARCHERS
from weft.tune.schedulers.registry import RULES, SCHEDULERS
from weft.tune.study.config import StudyConfig, StudyError, convert_config
from weft.tune.study.core import StudyCore
from weft.tune.study.events import AnyEvent, TrialCurve, TrialReported, encode_event

# Modern names of the ten of the old dialog, and those that have come since.
OPTIMIZERS = ("sgd", "nesterov", "adam", "adamw", "adagrad", "adadelta", "rmsprop", "nadam", "radam", "adafactor",
              "muon")  # fmt: skip
REPORTS = (TrialReported, TrialCurve)  # events of metrics


async def list_all(call: ApiCall) -> StudiesAnswer:
    found = await call.database.read(lambda c: store.list_studies(c, visible_to=call.identity.visible_to))
    return StudiesAnswer(tuple(one.view for one in found))


async def algorithms(call: ApiCall) -> AlgorithmsAnswer:
    return AlgorithmsAnswer(tuple(SEARCHERS), tuple(SCHEDULERS), tuple(RULES), OPTIMIZERS)


async def begin(call: ApiCall) -> StudyAnswer:
    body: NewStudy = call.body
    return await _begin(call, _config(body), body.snapshot, body.warm_start, body.dry_run)


def _config(body: NewStudy) -> StudyConfig:
    if (body.config is None) == (body.yaml is None):
        raise ApiRefusal(422, "a study must have config or yaml, got both or none; send one of them")
    if body.config is not None:
        return convert_config(body.config)
    import yaml

    from weft.documents import parse_yaml

    try:
        return convert_config(parse_yaml(body.yaml or ""))
    except (yaml.YAMLError, ValueError, RecursionError, AttributeError, LookupError, TypeError) as error:
        if isinstance(error, UsageError):
            raise
        raise ApiRefusal(
            422, f"yaml must be YAML, got {' '.join(str(error).split())}; mend that line"
        ) from None


async def _begin(
    call: ApiCall, config: StudyConfig, snapshot: str | None, warm_start: int | None, dry_run: bool = False
) -> StudyAnswer:
    earlier = None
    if warm_start is not None:
        earlier = (await _seen(call, warm_start)).state
    begun = await begin_study(
        call.state.jobs,
        config,
        user_id=call.identity.user_id,
        user_name=call.identity.name,
        snapshot=snapshot,
        earlier=earlier,
        dry_run=dry_run,
    )
    if begun.id is None:
        return StudyAnswer(None, tuple(trial_view(begun.state, trial) for trial in begun.state))
    number = begun.id
    found = await call.database.read(lambda c: store.need_study(c, number))
    return StudyAnswer(found.view)


# -- looking ------------------------------------------------------------------------------------------------------


async def _find(call: ApiCall, *, own: bool = False) -> store.StoredStudy:
    number = int(call.path["study"])
    found = await call.database.read(
        lambda c: store.need_study(c, number, visible_to=call.identity.visible_to)
    )
    if own and not _is_mine(call, found):
        raise ApiRefusal(
            403, f"a study must be one's own to be changed, got one of {found.user_name}; clone it"
        )
    return found


def _is_mine(call: ApiCall, found: store.StoredStudy) -> bool:
    identity = call.identity
    if identity.job_id is not None or "write" not in identity.scopes or identity.role == "viewer":
        return False
    return identity.is_admin or found.user_id == identity.user_id


async def _seen(call: ApiCall, number: int) -> SeenStudy:
    visible_to = call.identity.visible_to
    await call.database.read(lambda c: store.need_study(c, number, visible_to=visible_to))
    states = call.state.jobs.study_states
    start, events = await call.database.read(lambda c: states.new_events(c, number))
    return states.take(number, start, events)


async def show(call: ApiCall) -> StudyDetail:
    found = await _find(call)
    seen = await _seen(call, found.id)

    shares = await asyncio.to_thread(seen.importances)
    findings = tuple(insights(seen.state, shares))
    front = tuple(trial.number for trial in seen.state.front()) if len(seen.state.goals) > 1 else ()
    config = msgspec.to_builtins(seen.state.config)
    return StudyDetail(found.view, config, front, findings, shares, seen.events, _is_mine(call, found))


async def list_interactions(call: ApiCall) -> InteractionsAnswer:
    found = await _find(call)
    seen = await _seen(call, found.id)
    return InteractionsAnswer(await asyncio.to_thread(seen.interactions))


async def list_trials(call: ApiCall) -> TrialsAnswer:
    number, states = int(call.path["study"]), call.state.jobs.study_states

    def look_up(connection: sa.Connection) -> tuple[int, list[AnyEvent], dict[int, store.TrialJob]]:
        store.need_study(connection, number, visible_to=call.identity.visible_to)
        return (*states.new_events(connection, number), store.trial_jobs(connection, number))

    start, events, jobs = await call.database.read(look_up)
    seen = states.take(number, start, events)
    seen.state.now_s = time.time()
    views = tuple(
        trial_view(
            seen.state,
            trial,
            curve=call.query.curves,
            known=seen.known_reports(trial.number, call.query.since) if call.query.tails else 0,
            job_id=jobs[trial.number].job_id if trial.number in jobs else None,
        )
        for trial in seen.state
        if seen.changed.get(trial.number, 0) > call.query.since
    )
    return TrialsAnswer(views, seen.events)


async def list_events(call: ApiCall) -> StudyEventsAnswer:
    found = await _find(call)
    after: int = call.query.after
    events = await call.database.read(lambda c: store.events_of(c, found.id, after))
    wanted = events if call.query.reports else [e for e in events if not isinstance(e, REPORTS)]
    data = tuple(msgspec.json.decode(encode_event(event)) for event in wanted)
    return StudyEventsAnswer(data, after + len(events))


async def export(call: ApiCall) -> Response:
    found = await _find(call)
    seen = await _seen(call, found.id)
    name = {"content-disposition": f'attachment; filename="study-{found.id}.csv"'}
    return Response(to_csv(seen.state), 200, name, "text/csv")


# -- asking -------------------------------------------------------------------------------------------------------


async def _ask(call: ApiCall, request: dict[str, Any]) -> StudyAnswer:
    """Note a request, after a look at whether it can be carried out."""
    found = await _find(call, own=True)
    seen = await _seen(call, found.id)
    _check(seen, request)
    name = call.identity.name
    await call.database.write(lambda c: store.ask_study(c, found.id, request, user_name=name))
    call.state.jobs.wake()
    return StudyAnswer(found.view)


def _check(seen: SeenStudy, request: dict[str, Any]) -> None:
    state = seen.state.state
    allowed = {"stop": ("running", "paused"), "pause": ("running",), "resume": ("paused", "stopped")}
    verb = request["do"]
    if "trial" in request:
        core, number = StudyCore(seen.state), request["trial"]
        if verb == "promote":
            core.promotion_limit(number, request["until"])
        else:
            core.need_unfinished(number, "paused" if verb == "pause" else "stopped")
        return
    if verb in allowed and state not in allowed[verb]:
        raise ApiRefusal(
            409,
            f"a study must be {' or '.join(allowed[verb])} to {verb}, got one that is {state}",
            code="wrong-state",
        )
    if verb == "add":
        request["params"] = seen.state.space.check_point(request["params"])
    if verb == "extend":
        convert_config({**msgspec.to_builtins(seen.state.config), **request["changes"]})


async def stop(call: ApiCall) -> StudyAnswer:
    return await _ask(call, {"do": "stop"})


async def pause(call: ApiCall) -> StudyAnswer:
    return await _ask(call, {"do": "pause"})


async def resume(call: ApiCall) -> StudyAnswer:
    return await _ask(call, {"do": "resume"})


async def extend(call: ApiCall) -> StudyAnswer:
    body: StudyChanges = call.body
    changes = {name: value for name, value in msgspec.to_builtins(body).items() if value is not None}
    if not changes:
        raise ApiRefusal(422, "a change must name a budget, parallel, points or act, got none; send one")
    return await _ask(call, {"do": "extend", "changes": changes})


async def add_trial(call: ApiCall) -> StudyAnswer:
    body: AddedTrial = call.body
    return await _ask(call, {"do": "add", "params": dict(body.params)})


def _trial_request(call: ApiCall, verb: str) -> dict[str, Any]:
    return {"do": verb, "trial": int(call.path["trial"])}


async def promote_trial(call: ApiCall) -> StudyAnswer:
    body: TrialPromotion = call.body
    return await _ask(call, {**_trial_request(call, "promote"), "until": body.until})


async def pause_trial(call: ApiCall) -> StudyAnswer:
    return await _ask(call, _trial_request(call, "pause"))


async def stop_trial(call: ApiCall) -> StudyAnswer:
    return await _ask(call, _trial_request(call, "stop"))


async def keep_model(call: ApiCall) -> ModelView:
    """Put a file of the best trial's job into the model store."""
    body: StudyModel = call.body
    found = await _find(call, own=True)
    seen = await _seen(call, found.id)
    best = seen.state.best() if body.trial is None else seen.state.trials.get(body.trial)
    jobs = await call.database.read(lambda c: store.trial_jobs(c, found.id))
    trial_job = None if best is None else jobs.get(best.number)
    if trial_job is None or trial_job.job_id is None:
        wanted = "a best trial" if body.trial is None else f"trial {body.trial} with a job of its own"
        raise ApiRefusal(409, f"study {found.id} must have {wanted}, got none", code="wrong-state")
    asked = NewModel(job=trial_job.job_id, model=body.model, path=body.path, alias=body.alias)
    return await add_model_of_job(call, asked)


async def clone(call: ApiCall) -> StudyAnswer:
    found = await _find(call)
    seen = await _seen(call, found.id)
    body: StudyCopy = call.body
    settings = msgspec.to_builtins(seen.state.config)
    for name, value in body.changes.items():
        before = settings.get(name)
        settings[name] = (
            {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
        )
    config = convert_config(settings)
    if body.warm and tuple(config.goals) != seen.state.goals:
        raise StudyError("a warm start must have the same metrics, got others; start without it")
    return await _begin(call, config, found.snapshot, found.id if body.warm else None)


async def remove(call: ApiCall) -> None:
    found = await _find(call, own=True)
    name = call.identity.name
    await call.database.write(lambda c: store.remove_study(c, found.id, user_name=name))


HANDLERS: Mapping[str, Handler] = {
    "list_studies": list_all,
    "list_algorithms": algorithms,
    "begin_study": begin,
    "show_study": show,
    "change_study": extend,
    "remove_study": remove,
    "list_trials": list_trials,
    "list_study_events": list_events,
    "list_interactions": list_interactions,
    "export_study": export,
    "add_trial": add_trial,
    "stop_study": stop,
    "pause_study": pause,
    "resume_study": resume,
    "clone_study": clone,
    "promote_trial": promote_trial,
    "pause_trial": pause_trial,
    "stop_trial": stop_trial,
    "keep_study_model": keep_model,
}
