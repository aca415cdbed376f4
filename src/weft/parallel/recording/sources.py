"""Sources of a step and a cluster: recorded files, factories of models, measured links, tables of `weft bench`."""

from __future__ import annotations

import importlib
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import util
from pathlib import Path
from typing import Any

from weft.documents import fill_model, parse_document
from weft.errors import UsageError
from weft.files import cache_folder
from weft.launch.preflight import linkcache
from weft.launch.preflight.speeds import MeasuredLink
from weft.parallel.prediction.cluster import COLLECTIVES, ClusterFacts, CollectiveSpeed, fit_speed, slowest
from weft.parallel.prediction.step import RecordedStep
from weft.text import shorten

OLDEST_S = 7 * 86400.0  # of a measurement of links that a plan is still made from
TCP_EFFICIENCY = 0.95  # of what weft check measured between two hosts, by collectives
_SHAPE = re.compile(r"(?:([A-Za-z_]\w{0,99})=)?(\d{1,9}(?:x\d{1,9})*)(?::(\w+))?", re.ASCII)
_MOST_ELEMENTS = 1 << 34
_PASSED = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1}


def read_step(path: Path) -> RecordedStep:
    """Read a recorded step, or the step of a plan."""
    data = parse_document(path)
    if not isinstance(data, dict) or "step" not in data:
        raise UsageError(f"{path} must hold a recorded step, got none; write it by weft plan --record {path}")
    return fill_model(data["step"], RecordedStep, path)


def load_factory(text: str) -> Any:
    """Return the function that `module:factory` or `file.py:factory` names."""
    module_name, colon, name = text.rpartition(":")
    if not colon or not name.isidentifier():
        raise UsageError(f"--model must be module:factory, got {shorten(text)}; write --model nets.py:make")
    try:
        if module_name.endswith(".py"):
            spec = util.spec_from_file_location(Path(module_name).stem, module_name)
            if spec is None or spec.loader is None or not Path(module_name).is_file():
                raise UsageError(
                    f"--model must name a file, got {module_name}, which is not there; check the path"
                )
            module = util.module_from_spec(spec)
            sys.modules.setdefault(spec.name, module)
            spec.loader.exec_module(module)
        else:
            sys.path.insert(0, str(Path.cwd()))
            module = importlib.import_module(module_name)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(
            f"--model must name a module that can be imported, got {_in_a_line(error)}; check {module_name}"
        ) from error
    factory = getattr(module, name, None)
    if not callable(factory):
        raise UsageError(f"{module_name} must have a function {name}, got none; check --model")
    return factory


def _in_a_line(error: Exception) -> str:
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0]}" if said else type(error).__name__


def parse_batch(text: str) -> list[tuple[str, tuple[int, ...], str]]:
    """Return names, shapes and types of a model's inputs: `8x128:int64,8x3x32x32`, or `ids=8x128:int64`."""
    found: list[tuple[str, tuple[int, ...], str]] = []
    for part in text.split(","):
        match = _SHAPE.fullmatch(part.strip())
        if not match:
            raise UsageError(
                f"--batch must be shapes like 8x3x32x32 or 8x128:int64, got {shorten(text)}; mend it"
            )
        name = match[1] or ""
        if found and (bool(name) != bool(found[0][0]) or name in {each[0] for each in found if name}):
            raise UsageError(
                f"--batch must name all inputs, each once, or none, got {shorten(text)}; write ids=8x128:int64"
            )
        sizes = tuple(map(int, match[2].split("x")))
        elements = 1
        for size in sizes:
            elements *= size
        if not 0 < elements <= _MOST_ELEMENTS:
            raise UsageError(f"--batch must have between 1 and 2^34 elements, got {shorten(text)}; mend it")
        found.append((name, sizes, match[3] or "float32"))
    return found


def record_factory(
    factory_name: str, batch: str, *, passes: int = 1, flops: float | None = None, device: str = ""
) -> RecordedStep:
    """Record a model that a factory makes: on this machine's device, or from shapes alone."""
    import torch

    from weft.parallel.recording.recorder import Batch, record_step

    factory, shapes = load_factory(factory_name), parse_batch(batch)
    here = "meta" if flops is not None else "cuda" if torch.cuda.is_available() else "cpu"
    inputs: dict[str, torch.Tensor] = {}
    for number, (name, sizes, type_name) in enumerate(shapes):
        dtype = getattr(torch, type_name, None)
        if not isinstance(dtype, torch.dtype):
            raise UsageError(f"--batch must name a type of torch, got {type_name!r}; write 8x128:int64")
        floating = dtype.is_floating_point
        inputs[name or str(number)] = (
            torch.randn(sizes, dtype=dtype, device=here)
            if floating
            else torch.zeros(sizes, dtype=dtype, device=here)
        )
    try:
        with torch.device(here):
            model = factory()
    except Exception as error:
        raise UsageError(
            f"{factory_name} must make a model without arguments, got {_in_a_line(error)}; mend it"
        ) from error
    if not isinstance(model, torch.nn.Module):
        raise UsageError(f"{factory_name} must give a torch.nn.Module, got {type(model).__name__}; mend it")
    batch_of: Batch = inputs if shapes[0][0] else list(inputs.values())
    return record_step(
        model.train(), batch_of, passes=passes, flops=flops, name=factory_name, device=device or here
    )


# -- links ------------------------------------------------------------------------------------------------------


def measured_cluster(
    hosts: Sequence[str],
    workers_per_host: int,
    links: Mapping[tuple[str, str], MeasuredLink] | None = None,
    **more: Any,
) -> ClusterFacts:
    """Return the cluster of some hosts, its links as `weft check` measured them; all pairs must have been."""
    if len(hosts) == 1:
        return ClusterFacts(hosts=tuple(hosts), workers_per_host=workers_per_host, **more)
    known = links if links is not None else kept_links()
    speeds: dict[tuple[str, str], float] = {}
    for pair in ((a, b) for a in hosts for b in hosts if a != b):
        link = known.get(pair)
        if link is None or not link.mbps:
            failed = link.error if link is not None else None
            raise UsageError(
                f"the links between hosts must be measured, got {failed or 'none'} from {pair[0]} to {pair[1]}; "
                f"run weft check -H {','.join(hosts)} {'and mend what it names' if failed else 'first'}"
            )
        speeds[pair] = link.mbps * 1e6 / 8
    trips = [link.rtt_ms for pair in speeds if (link := known[pair]).rtt_ms is not None]
    return ClusterFacts(
        hosts=tuple(hosts),
        workers_per_host=workers_per_host,
        card_bps=slowest(speeds),
        round_trip_s=max((trip for trip in trips if trip is not None), default=0.2) / 1e3,
        **{"efficiency": TCP_EFFICIENCY, "source": "weft check", **more},
    )


def kept_links(now: float | None = None) -> dict[tuple[str, str], MeasuredLink]:
    """Return the newest measurement of each link that was made on this machine, if it is not too old."""
    newest = linkcache.newest(cache_folder("links"))
    at = time.time() if now is None else now
    return {pair: link for pair, (link, measured_s) in newest.items() if at - measured_s <= OLDEST_S}


def with_bench(cluster: ClusterFacts, path: Path) -> ClusterFacts:
    """Return the cluster with what `weft bench --json` measured of the collectives on the same hosts."""
    data = parse_document(path)
    if not isinstance(data, dict) or not isinstance(data.get("rows"), list):
        raise UsageError(f"{path} must be a table of weft bench --json, got something else; make it anew")
    if data.get("hosts") != cluster.host_count or data.get("world") != cluster.world:
        raise UsageError(
            f"{path} must be measured on the hosts of the plan, got {data.get('hosts')} hosts with {data.get('world')} "
            f"workers beside {cluster.host_count} with {cluster.world}; run weft bench -H there"
        )
    return replace(cluster, measured=bench_speeds(data["rows"], cluster.host_count), source="weft bench")


def bench_speeds(rows: Sequence[Mapping[str, Any]], hosts: int) -> dict[str, CollectiveSpeed]:
    """Fit fixed time and rate of each collective to rows of `weft bench`."""
    found: dict[str, CollectiveSpeed] = {}
    for operation in COLLECTIVES:
        times: dict[int, float] = {}
        for row in rows:
            if row.get("backend") == "weft" and row.get("operation") == operation:
                passed = int(_PASSED[operation] * (hosts - 1) / hosts * row["size"])
                times[max(1, passed)] = float(row["time_s"])
        if times:
            found[operation] = fit_speed(times)
    return found
