"""The cluster, the user and the namespace of a run: read from kubeconfigs, or from the service account of this pod.

lightkube knows the parts of a kubeconfig. What it leaves out is here: several files, contexts without a user, proxies
and names of servers, and in `login_command.py` the commands that log users in.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from weft.errors import UsageError
from weft.launch.pod_settings import KubernetesConfig

Data = dict[str, Any]
_SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_SECTIONS = {"clusters": "cluster", "users": "user", "contexts": "context"}
_PATHS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


@dataclass(frozen=True, kw_only=True)
class ClusterAccess:
    """One cluster and one user of it, as a context of a kubeconfig names them."""

    config: Any  # lightkube's SingleConfig
    proxy: str | None = None
    server_name: str | None = None  # in the server's certificate, where it is not that of its address
    command: Data | None = None  # that logs the user in
    acts_as: tuple[tuple[str, str], ...] = ()  # headers by which the user acts as another one

    @property
    def server(self) -> str:
        """The address of the API server."""
        return str(self.config.cluster.server)

    def http_client(self, timeout: Any) -> Any:
        """Return a client that talks to the server as the user."""
        import httpx2
        from lightkube.config import client_adapter
        from lightkube.core.exceptions import ConfigError

        from weft.launch.engines.kubernetes.login_command import CommandLogin

        config, options = self.config, dict[str, Any]()
        try:
            context: ssl.SSLContext = client_adapter.verify_cluster(
                config.cluster, config.user, config.abs_file
            )
            # Python 3.13 wants more of certificates than clusters' own tools put into them; and a kubeconfig may trust
            # an authority that is not the last one above it.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            if self.command is None:
                options["auth"] = client_adapter.user_auth(config.user)
            else:
                login = CommandLogin(self.command, context)
                options["auth"] = login
                if login.has_certificate:  # the next one counts for new connections alone
                    options["limits"] = httpx2.Limits(max_keepalive_connections=0)
        except (ConfigError, OSError, ValueError) as error:
            raise UsageError(
                f"the user of the kubeconfig must be one that can log in to {self.server}, got {error}; log in again, "
                "or mend the kubeconfig"
            ) from None
        if self.server_name is not None:
            options["event_hooks"] = {"request": [self._name_server]}
        if self.proxy is None and is_loopback(self.server):  # no proxy leads there, whatever HTTPS_PROXY says
            options["trust_env"] = False
        return httpx2.Client(
            base_url=self.server,
            verify=context,
            timeout=timeout,
            proxy=self.proxy,
            headers=list(self.acts_as),
            **options,
        )

    def _name_server(self, request: Any) -> None:
        request.extensions["sni_hostname"] = self.server_name


def is_loopback(server: str) -> bool:
    """Return whether a server is on this machine."""
    host = urlsplit(server).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def find_access(settings: KubernetesConfig) -> ClusterAccess:
    """Return the cluster and the user of the context that was asked for."""
    from lightkube.config.kubeconfig import KubeConfig
    from lightkube.config.models import User
    from lightkube.core.exceptions import ConfigError

    files = _files(settings)
    there = [file for file in files if file.is_file()]
    text = os.pathsep.join(map(str, there or files))
    try:
        named = settings.kubeconfig is not None or settings.context is not None
        if not there and not named and Path(_SERVICE_ACCOUNT).exists():
            return ClusterAccess(config=KubeConfig.from_service_account(_SERVICE_ACCOUNT).get())
        if not there:
            raise ValueError("no such file")
        merged = merge_kubeconfigs((file.parent, _read(file)) for file in there)
        config = KubeConfig.from_dict(merged, fname=there[0]).get(settings.context)
        assert config is not None
        parts = {
            name: {entry["name"]: entry[part] for entry in merged[name]} for name, part in _SECTIONS.items()
        }
    except KeyError as error:
        raise UsageError(f"{text} must have what its context names, got no {error}; mend it") from None
    except (ConfigError, OSError, ValueError, TypeError, AttributeError) as error:
        raise UsageError(
            f"--engine kubernetes must have a kubeconfig with a context, got {text}: {error}; set KUBECONFIG, or "
            "kubeconfig: in the settings; --context names the context"
        ) from None
    cluster = parts["clusters"][config.context.cluster]
    user = parts["users"].get(config.context.user or "", {})
    return ClusterAccess(
        config=config._replace(user=config.user or User()),
        proxy=cluster.get("proxy-url"),
        server_name=cluster.get("tls-server-name"),
        command=_command(user["exec"], cluster) if "exec" in user else None,
        acts_as=tuple(_acts_as(user)),
    )


def _acts_as(user: Data) -> Iterator[tuple[str, str]]:
    """Yield the headers by which a user acts as another one: `as`, `as-uid`, `as-groups` and `as-user-extra`."""
    if "as" in user:
        yield "Impersonate-User", str(user["as"])
    if "as-uid" in user:
        yield "Impersonate-Uid", str(user["as-uid"])
    for group in user.get("as-groups") or ():
        yield "Impersonate-Group", str(group)
    for name, values in (user.get("as-user-extra") or {}).items():
        for value in values:
            yield f"Impersonate-Extra-{quote(str(name), safe='')}", str(value)


def _files(settings: KubernetesConfig) -> list[Path]:
    if settings.kubeconfig:
        return [Path(settings.kubeconfig).expanduser()]
    listed = [Path(name) for name in os.environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    return listed or [Path.home() / ".kube" / "config"]


def _read(file: Path) -> Data:
    import yaml

    try:
        found = yaml.safe_load(file.read_text())
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())[:200]) from None
    if not isinstance(found or {}, dict):
        raise ValueError(f"a {type(found).__name__} where a mapping must be")
    return found or {}


def merge_kubeconfigs(files: Iterable[tuple[Path, Mapping[str, Any]]]) -> Data:
    """Return several kubeconfigs as one, as kubectl does: what an earlier one names, a later one does not change."""
    merged: Data = {name: [] for name in _SECTIONS}
    for folder, found in files:
        if not merged.get("current-context"):
            merged["current-context"] = found.get("current-context") or None
        for name, part in _SECTIONS.items():
            known = {entry["name"] for entry in merged[name]}
            for entry in found.get(name) or ():
                if entry["name"] not in known:
                    merged[name].append(
                        {"name": entry["name"], part: _settled(entry.get(part) or {}, folder)}
                    )
    return merged


def _settled(part: Mapping[str, Any], folder: Path) -> Data:
    """Return a part of a kubeconfig without empty fields, and with paths that do not depend on where it stood."""
    found = {name: value for name, value in part.items() if value not in (None, "")}
    for name in _PATHS:
        if f"{name}-data" in found:  # counts more
            found.pop(name, None)
        if name in found:
            found[name] = str(folder / found[name])
    command = (found.get("exec") or {}).get("command", "")
    if "/" in command:
        found["exec"] = {**found["exec"], "command": str(folder / command)}
    return found


def _command(login: Data, cluster: Data) -> Data:
    """Return a login command, with what it may want to know of the cluster."""
    if not login.get("provideClusterInfo"):
        return login
    names = (
        "server",
        "tls-server-name",
        "insecure-skip-tls-verify",
        "certificate-authority-data",
        "proxy-url",
    )
    info = {name: cluster[name] for name in names if name in cluster}
    for extension in cluster.get("extensions") or ():
        if extension["name"] == "client.authentication.k8s.io/exec":
            info["config"] = extension["extension"]
    return {**login, "cluster": info}
