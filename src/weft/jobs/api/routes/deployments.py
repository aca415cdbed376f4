"""Deployments: models that the service serves; started, turned to other versions, tried and stopped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import msgspec
from starlette.responses import Response

from weft.jobs.api.access import Identity
from weft.jobs.api.binding import Handler
from weft.jobs.api.failures import ApiRefusal
from weft.jobs.api.state import ApiCall
from weft.jobs.api.types.data import (
    CanaryView,
    DeploymentDetail,
    DeploymentsAnswer,
    DeploymentView,
    ServingView,
    VersionServing,
)
from weft.jobs.data.deployment_records import Deployment
from weft.jobs.data.deployments import Deployments


def _deployments(call: ApiCall) -> Deployments:
    return call.state.jobs.data.deployments


def may_change_deployment(found: Deployment, identity: Identity) -> bool:
    return "write" in identity.scopes and (identity.is_admin or found.user_id == identity.user_id)


def _fields(found: Deployment, identity: Identity) -> dict[str, Any]:
    names = ("name", "model", "version", "previous", "state", "message", "created_ms", "changed_ms")
    fields = {name: getattr(found, name) for name in names}
    url = f"http://127.0.0.1:{found.port}" if found.port is not None else None
    return fields | {"user": found.user_name, "url": url, "mine": may_change_deployment(found, identity)}


def deployment_view(found: Deployment, identity: Identity) -> DeploymentView:
    return DeploymentView(**_fields(found, identity))


async def _mine(call: ApiCall) -> Deployment:
    """Return the deployment that a path names, which the caller must be allowed to change."""
    found = await _deployments(call).find(call.path["deployment"])
    if not may_change_deployment(found, call.identity):
        raise ApiRefusal(403, f"{found.name} must be your own to be changed, got one of {found.user_name}")
    return found


async def _list(call: ApiCall) -> DeploymentsAnswer:
    return DeploymentsAnswer(
        tuple(deployment_view(one, call.identity) for one in await _deployments(call).all())
    )


async def _add(call: ApiCall) -> DeploymentView:
    known = next((one for one in await _deployments(call).all() if one.name == call.body.name), None)
    if known is not None and not may_change_deployment(known, call.identity):
        raise ApiRefusal(403, f"{known.name} must be your own to be changed, got one of {known.user_name}")
    who = call.identity
    made = await _deployments(call).deploy(
        call.body.name, call.body.model, user_id=who.user_id, user_name=who.name
    )
    return deployment_view(made, who)


async def _show(call: ApiCall) -> DeploymentDetail:
    found = await _deployments(call).find(call.path["deployment"])
    figures, versions = await _deployments(call).figures(found)
    canary = _deployments(call).canary(found)
    described = await _deployments(call).ask(found, "GET", f"/v2/models/{found.model}")
    model: dict[str, Any] = msgspec.json.decode(described) if described is not None else {}
    return DeploymentDetail(
        **_fields(found, call.identity),
        figures=ServingView(**asdict(figures)) if figures is not None else None,
        canary=CanaryView(canary.version, canary.percent) if canary is not None else None,
        by_version=tuple(
            VersionServing(number, ServingView(**asdict(one))) for number, one in versions.items()
        ),
        inputs=tuple(model.get("inputs", ())),
        outputs=tuple(model.get("outputs", ())),
    )


async def _remove(call: ApiCall) -> None:
    found = await _mine(call)
    await _deployments(call).remove(found.name, user_name=call.identity.name)


async def _stop(call: ApiCall) -> DeploymentView:
    found = await _mine(call)
    return deployment_view(
        await _deployments(call).stop(found.name, user_name=call.identity.name), call.identity
    )


async def _roll_back(call: ApiCall) -> DeploymentView:
    found = await _mine(call)
    return deployment_view(
        await _deployments(call).roll_back(found.name, user_name=call.identity.name), call.identity
    )


async def _canary(call: ApiCall) -> DeploymentView:
    found, body = await _mine(call), call.body
    changed = await _deployments(call).set_canary(
        found.name, body.version, body.percent, user_name=call.identity.name
    )
    return deployment_view(changed, call.identity)


async def _infer(call: ApiCall) -> Response:
    """Hand a request to the server of a deployment, for the page that tries it."""
    found = await _deployments(call).find(call.path["deployment"])
    asked = {name: value for name, value in msgspec.to_builtins(call.body).items() if value not in (None, {})}
    path = f"/v2/models/{found.model}/infer"
    answer = await _deployments(call).forward(found, "POST", path, msgspec.json.encode(asked))
    if answer is None:
        raise ApiRefusal(
            503, f"{found.name} must be running to answer, got one that is {found.state}; try again"
        )
    status, body = answer
    if status == 200:
        return Response(body, media_type="application/json")
    reason = body[:500].decode(errors="replace")
    raise ApiRefusal(422 if status < 500 else 503, f"{found.name} did not take the request: {reason}")


HANDLERS: Mapping[str, Handler] = {
    "list_deployments": _list,
    "add_deployment": _add,
    "show_deployment": _show,
    "remove_deployment": _remove,
    "stop_deployment": _stop,
    "roll_back_deployment": _roll_back,
    "set_canary": _canary,
    "infer": _infer,
}
