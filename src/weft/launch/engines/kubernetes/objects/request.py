"""From a request of `weft run` to everything that its objects are made of; pure but for the snapshot it is given."""

from __future__ import annotations

from dataclasses import replace

from weft.launch.config import LaunchConfig
from weft.launch.engines.batch import options_of
from weft.launch.engines.kubernetes.objects.checks import check_request
from weft.launch.engines.kubernetes.objects.manifests import ManifestRequest
from weft.launch.engines.kubernetes.objects.names import pod_names
from weft.launch.engines.kubernetes.objects.quantities import amount_of
from weft.launch.masking import looks_secret
from weft.launch.pod_settings import KubernetesConfig

RUN_DIR = "/tmp/weft-run"  # in a pod
# Goes to the working folder and unpacks a snapshot of the code first, where the cluster does not.
START = ("python", "-P", "-m", "weft.launch.engines.pods.start")


def make_request(config: LaunchConfig, *, door_secret: str, code: bytes | None = None) -> ManifestRequest:
    """Decide a run on Kubernetes; raise `weft.errors.UsageError` for one that cannot be."""
    settings = config.kubernetes or KubernetesConfig()
    check_request(config, settings)
    given = dict(config.env)
    return ManifestRequest(
        settings=settings,
        names=pod_names(settings.name, config.command.name, settings.kind, settings.pods),
        command=pod_command(config, settings),
        env={name: value for name, value in given.items() if not looks_secret(name)},
        secret_env={name: value for name, value in given.items() if looks_secret(name)},
        door_secret=door_secret,
        code=code,
    )


def pod_command(config: LaunchConfig, settings: KubernetesConfig) -> tuple[str, ...]:
    """Return the command of every pod: the same run, by the engine that knows the other pods.

    Values of variables are in the pods' environment, and only their names on the command line.
    """
    if config.workers is None and config.per_host is None and config.accelerators is None:
        config = replace(config, per_host=accelerators_of(settings) or 1)
    command = config.command
    marker = {"module": ("-m",), "command": ("--",), "script": ()}[command.kind]
    return (
        *(START if settings.code == "snapshot" or settings.kind == "trainjob" else ()),
        *("weft", "run", "--engine", "pods", "--run-dir", RUN_DIR),
        *(() if settings.checks or config.skip_checks else ("--skip-checks",)),
        *options_of(config, leave_out=("run_dir",)),
        *(part for name, _ in config.env for part in ("--env", name)),
        *settings.extra_args,
        *marker,
        command.target,
        *command.args,
    )


def accelerators_of(settings: KubernetesConfig) -> int:
    """Return how many accelerators a pod has, by the names that vendors give them."""
    return int(
        sum(
            amount_of(quantity)
            for name, quantity in settings.resources.items()
            if name.endswith(("/gpu", "/hpu", "/tpu")) or name.startswith("nvidia.com/mig-")
        )
    )
