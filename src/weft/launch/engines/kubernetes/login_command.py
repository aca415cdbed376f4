"""Commands of a kubeconfig that log a user in, such as those of clouds and of single sign-on.

They answer with a token or a certificate (`client.authentication.k8s.io`, v1 and before).
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2

from weft.errors import UsageError

Data = dict[str, Any]
_VERSIONS = tuple(f"client.authentication.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1"))


class CommandLogin(httpx2.Auth):
    """The login of one user by a command, which is run again when what it gave has expired; for any thread."""

    def __init__(self, command: Data, context: ssl.SSLContext) -> None:
        self._command, self._context = command, context
        self._lock = threading.Lock()
        self._turn = 0  # logins so far
        self._token: str | None = None
        self.has_certificate = False
        self._log_in(0)

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response]:
        """Send a request as the user, and once more where the login has expired."""
        turn = self._turn
        self._sign(request)
        answer = yield request
        if answer.status_code == 401:
            self._log_in(turn)
            self._sign(request)
            yield request

    def _sign(self, request: httpx2.Request) -> None:
        if self._token is not None:
            request.headers["Authorization"] = f"Bearer {self._token}"

    def _log_in(self, turn: int) -> None:
        with self._lock:
            if self._turn != turn:  # another thread has
                return
            status = self._run()
            self._token = status.get("token") or None
            certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
            if certificate and key:
                self.has_certificate = True
                _load(self._context, certificate, key)
            elif self._token is None:
                raise _refusal(self._command, "neither a token nor a certificate")
            self._turn += 1

    def _run(self) -> Data:
        login = self._command
        version = login.get("apiVersion")
        if version not in _VERSIONS:
            raise _refusal(login, f"one that speaks {version}")
        info = {
            "apiVersion": version,
            "kind": "ExecCredential",
            "spec": {
                "interactive": os.isatty(0),
                **({"cluster": login["cluster"]} if "cluster" in login else {}),
            },
        }
        more = {one["name"]: str(one["value"]) for one in login.get("env") or ()}
        try:
            # What it says to the person at the terminal goes there.
            done = subprocess.run(
                [login["command"], *(login.get("args") or ())],
                env={**os.environ, "KUBERNETES_EXEC_INFO": json.dumps(info), **more},
                stdout=subprocess.PIPE,
                check=True,
            )
            status = json.loads(done.stdout)["status"]
        except OSError as error:
            hint = " ".join(str(login.get("installHint") or "").split())[:200]
            raise _refusal(login, f"{error.strerror or error}{f' ({hint})' if hint else ''}") from None
        except subprocess.CalledProcessError as error:
            raise _refusal(login, f"exit code {error.returncode}") from None
        except (ValueError, KeyError, TypeError):
            raise _refusal(login, "an answer that is no ExecCredential") from None
        return dict(status or {})


def _load(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Use a certificate for new connections; ssl reads it from a file."""
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        path = Path(folder) / "login.pem"
        path.touch(mode=0o600)
        path.write_text(f"{certificate.strip()}\n{key.strip()}\n")
        context.load_cert_chain(path)


def _refusal(login: Data, got: str) -> UsageError:
    return UsageError(
        f"the kubeconfig's login command {login.get('command')} must give a token or a certificate, got {got}; run it "
        "by hand to see why"
    )
