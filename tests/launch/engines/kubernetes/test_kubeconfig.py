"""Kubeconfigs of all kinds: several files, and every way to log in, against a server that asks who is there."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from weft.errors import UsageError
from weft.launch.engines.kubernetes import api as api_module
from weft.launch.engines.kubernetes import kubeconfig
from weft.launch.engines.kubernetes.api import ClusterApi, ClusterError
from weft.launch.engines.kubernetes.kubeconfig import find_access, is_loopback, merge_kubeconfigs
from weft.launch.pod_settings import KubernetesConfig
from weft.ports import free_port

Data = dict[str, Any]
TOKEN = "token-2"
SERVER_NAME = "kube.example"


class Authority:
    """An authority that signs certificates, as each cluster has one."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "cluster")])
        self.certificate = self._signed(self._name, self._key.public_key(), authority=True)

    def below(self) -> Authority:
        """Return an authority whose own certificate this one has signed."""
        other = Authority()
        other._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "department")])
        other.certificate = self._signed(other._name, other._key.public_key(), authority=True)
        return other

    def _signed(self, name: x509.Name, key: Any, *, authority: bool = False) -> str:
        now = datetime.now(UTC)
        # Clusters' own tools leave out what Python 3.13 would ask for: no identifiers of keys are here.
        made = (
            x509.CertificateBuilder(self._name, name, key, x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(SERVER_NAME)]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM).decode()

    def sign(self, name: str) -> tuple[str, str]:
        """Return a certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        form = serialization.PrivateFormat.PKCS8
        text = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()
        return self._signed(subject, key.public_key()), text


@dataclass
class AskingServer:
    """A server that lets in who has the token, or a certificate of its authority."""

    authority: Authority
    address: str
    folder: Path
    busy: int = 0  # so many requests are turned away
    forgets: int = 0  # in so many requests nobody is known

    def write(self, user: Data | None, **cluster: Any) -> Path:
        """Write a kubeconfig with one user."""
        ca = base64.b64encode(self.authority.certificate.encode()).decode()
        context: Data = {"cluster": "c", **({"user": "u"} if user is not None else {})}
        told = {"server": self.address, "certificate-authority-data": ca, "tls-server-name": SERVER_NAME}
        config = {
            "current-context": "a",
            "contexts": [{"name": "a", "context": context}],
            "clusters": [{"name": "c", "cluster": {**told, **cluster}}],
            "users": [{"name": "u", "user": user}] if user is not None else None,
        }
        path = self.folder / "config"
        path.write_text(yaml.safe_dump(config))
        return path

    def who(self, user: Data | None, **cluster: Any) -> str:
        """Return whom the server takes us for."""
        settings = KubernetesConfig(kubeconfig=str(self.write(user, **cluster)))
        with closing(ClusterApi(settings)) as api:
            return str(api.request("GET", "/who", doing="tell who we are")["who"])

    def command(self, *answers: Data) -> Data:
        """Return a login command, relative to the kubeconfig, which gives one answer after the other."""
        for number, status in enumerate(answers):
            answer = {"kind": "ExecCredential", "status": status}
            (self.folder / f"answer-{number}").write_text(json.dumps(answer))
        script = self.folder / "login"
        script.write_text(
            'cd "$(dirname "$0")"; echo "$KUBERNETES_EXEC_INFO" >info; n=$(cat turn 2>/dev/null || echo 0)\n'
            'echo $((n + 1)) >turn; cat "answer-$n"\n'
        )
        script.write_text(f"#!/bin/sh\n{script.read_text()}")
        script.chmod(0o755)
        version = "client.authentication.k8s.io/v1"
        return {"apiVersion": version, "command": "./login", "interactiveMode": "Never", "args": None}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    asking: AskingServer

    def log_message(self, *_: object) -> None:
        return

    def do_GET(self) -> None:
        certificate = self.connection.getpeercert()
        header = self.headers.get("Authorization", "")
        names = {key: value for ((key, value),) in (certificate or {}).get("subject", ())}
        basic = "Basic " + base64.b64encode(b"me:word").decode()
        who = names.get("commonName") or {f"Bearer {TOKEN}": "token", basic: "password"}.get(header)
        acts_as = [text for name, text in self.headers.items() if name.lower().startswith("impersonate-")]
        who = " as ".join([who, ", ".join(acts_as)]) if who and acts_as else who
        body = json.dumps({"who": who} if who else {"message": "Unauthorized"}).encode()
        self.asking.busy -= 1
        self.asking.forgets -= 1
        who = None if self.asking.forgets >= 0 else who
        self.send_response(503 if self.asking.busy >= 0 else 200 if who else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[AskingServer]:
    yield from serve(tmp_path, Authority())


def serve(tmp_path: Path, authority: Authority) -> Iterator[AskingServer]:
    """Yield a server with a certificate of this authority."""
    (tmp_path / "server.pem").write_text("".join(authority.sign(SERVER_NAME)))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authority.certificate)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_cert_chain(tmp_path / "server.pem")
    handler: Any = type("AskingHandler", (Handler,), {})
    listening = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    listening.daemon_threads = True
    listening.socket = context.wrap_socket(listening.socket, server_side=True)
    thread = threading.Thread(target=listening.serve_forever, args=(0.02,))
    thread.start()
    handler.asking = AskingServer(authority, f"https://127.0.0.1:{listening.server_port}", tmp_path)
    yield handler.asking
    listening.shutdown()
    listening.server_close()
    thread.join()


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_certificates_in_the_file_and_beside_it_log_in(server: AskingServer) -> None:
    certificate, key = server.authority.sign("anna")
    data = {"client-certificate-data": encoded(certificate), "client-key-data": encoded(key)}
    assert server.who(data) == "anna"
    (server.folder / "anna.crt").write_text(certificate)
    (server.folder / "anna.key").write_text(key)
    assert server.who({"client-certificate": "anna.crt", "client-key": "anna.key"}) == "anna"
    # What stands in the file counts more than a path, which may be gone.
    assert server.who({**data, "client-certificate": "none.crt", "client-key": "", "token": ""}) == "anna"


def test_tokens_passwords_and_files_of_tokens_log_in(server: AskingServer) -> None:
    assert server.who({"token": TOKEN}) == "token"
    assert server.who({"username": "me", "password": "word"}) == "password"
    (server.folder / "token").write_text(f"{TOKEN}\n")
    assert server.who({"tokenFile": "token"}) == "token"


def test_a_token_in_a_file_is_read_again_when_it_has_expired(server: AskingServer) -> None:
    (server.folder / "token").write_text(TOKEN)
    settings = KubernetesConfig(kubeconfig=str(server.write({"tokenFile": "token"})))
    with closing(ClusterApi(settings)) as api:
        assert api.request("GET", "/who", doing="look")["who"] == "token"
        (server.folder / "token").write_text("token-1")
        assert api.request("GET", "/who", doing="look")["who"] == "token"  # it was not asked for again
    with closing(ClusterApi(settings)) as api, pytest.raises(ClusterError, match="log in again"):
        api.request("GET", "/who", doing="look")


def test_a_command_that_logs_in_is_told_of_the_cluster_and_run_again_after_its_token(
    server: AskingServer,
) -> None:
    command = {**server.command({"token": "token-1"}, {"token": TOKEN}), "provideClusterInfo": True}
    assert server.who({"exec": command}) == "token"
    info = json.loads((server.folder / "info").read_text())
    assert (info["kind"], info["apiVersion"]) == ("ExecCredential", command["apiVersion"])
    assert info["spec"]["cluster"]["server"] == server.address
    assert (server.folder / "turn").read_text() == "2\n"


def test_a_command_may_answer_with_a_certificate(server: AskingServer) -> None:
    certificate, key = server.authority.sign("bert")
    command = server.command({"clientCertificateData": certificate, "clientKeyData": key})
    assert server.who({"exec": command}) == "bert"


def test_a_pod_is_its_service_account(server: AskingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no kubeconfig: the account's token is put anew by the kubelet, before the old one expires."""
    files = {"token": "token-1", "namespace": "team", "ca.crt": server.authority.certificate}
    for name, text in files.items():
        (server.folder / name).write_text(text)
    host, port = server.address.removeprefix("https://").split(":")
    for name, value in {
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": port,
        "KUBECONFIG": str(server.folder / "none"),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(kubeconfig, "_SERVICE_ACCOUNT", str(server.folder))
    access = find_access(KubernetesConfig())
    assert (access.config.namespace, access.server) == ("team", server.address)
    (server.folder / "token").write_text(TOKEN)
    with closing(replace(access, server_name=SERVER_NAME).http_client(10)) as client:
        assert client.get("/who").json() == {"who": "token"}


def test_a_server_on_this_machine_is_reached_without_a_proxy(
    server: AskingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by kubectl, with the variables of a machine that reaches everything else through a proxy."""
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert server.who({"token": TOKEN}) == "token"


@pytest.mark.parametrize(
    ("address", "here"),
    [("https://127.0.0.1:6443", True), ("https://[::1]:6443/", True), ("https://localhost", True)]
    + [("https://10.0.0.1:6443", False), ("https://localhost.example.org", False)],
)
def test_a_server_is_known_to_be_on_this_machine(address: str, here: bool) -> None:
    assert is_loopback(address) is here


def test_an_authority_below_another_one_may_be_trusted_alone(tmp_path: Path) -> None:
    for server in serve(tmp_path, Authority().below()):
        assert server.who({"token": TOKEN}) == "token"


def test_a_user_may_act_as_another_one(server: AskingServer) -> None:
    user = {"token": TOKEN, "as": "anna", "as-groups": ["team", "night"], "as-user-extra": {"a/b": ["c"]}}
    assert server.who(user) == "token as anna, team, night, c"


def test_a_server_that_never_answered_is_not_waited_for_as_one_that_restarts(
    server: AskingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_module, "FIRST_TRY_S", 0.0)
    nowhere = server.write({"token": TOKEN}, server=f"https://127.0.0.1:{free_port()}")
    told = pytest.raises(ClusterError, match="is the cluster up, is the kubeconfig right")
    with closing(ClusterApi(KubernetesConfig(kubeconfig=str(nowhere)))) as api, told:
        api.request("GET", "/who", doing="look")
    with closing(ClusterApi(KubernetesConfig(kubeconfig=str(server.write({"token": TOKEN}))))) as api:
        server.busy = 2
        assert api.request("GET", "/who", doing="look")["who"] == "token"


def test_what_a_cluster_refuses_for_a_while_is_told_once(
    server: AskingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A webhook of the cluster that is down, say: a run would wait for a minute without a word."""
    monkeypatch.setattr(api_module, "PAUSES_S", (0.01,))
    said: list[str] = []
    settings = KubernetesConfig(kubeconfig=str(server.write({"token": TOKEN})))
    with closing(ClusterApi(settings)) as api:
        api.on_warning = said.append
        for busy, told in ((3, 0), (9, 1)):
            server.busy = busy
            assert api.request("GET", "/who", doing="look")["who"] == "token"
            assert len(said) == told
    assert said[0].startswith("the cluster must look, got 503: ")
    assert said[0].endswith("; tried again")


def test_a_server_that_does_not_know_us_for_a_moment_is_asked_again(server: AskingServer) -> None:
    """It asks somebody else who we are, who does not answer it, say; a stranger is turned away at once."""
    settings = KubernetesConfig(kubeconfig=str(server.write({"token": TOKEN})))
    with closing(ClusterApi(settings)) as api:
        server.forgets = 1
        with pytest.raises(ClusterError, match="log in again"):
            api.request("GET", "/who", doing="look")
        assert api.request("GET", "/who", doing="look")["who"] == "token"
        server.forgets = 2
        assert api.request("GET", "/who", doing="look")["who"] == "token"


def test_a_cluster_that_was_named_is_not_that_of_this_pod(
    server: AskingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run would otherwise be made in another cluster than the one that was asked for."""
    monkeypatch.setattr(kubeconfig, "_SERVICE_ACCOUNT", str(server.folder))
    monkeypatch.setenv("KUBECONFIG", str(server.folder / "none"))
    for settings in (
        KubernetesConfig(kubeconfig=str(server.folder / "other")),
        KubernetesConfig(context="other"),
    ):
        with pytest.raises(UsageError, match="no such file"):
            find_access(settings)


def test_a_context_without_a_user_is_nobody(server: AskingServer) -> None:
    with pytest.raises(ClusterError, match="got 401: Unauthorized; log in again"):
        server.who(None)


def test_the_name_in_the_certificate_may_be_told(server: AskingServer) -> None:
    settings = KubernetesConfig(kubeconfig=str(server.write({"token": TOKEN}, **{"tls-server-name": ""})))
    with closing(ClusterApi(settings)) as api, pytest.raises(ClusterError, match="IP address mismatch"):
        api.request("GET", "/who", doing="tell who we are")


@pytest.mark.parametrize(
    "user",
    [
        {"client-certificate": "none.crt", "client-key": "none.key"},
        {"client-certificate-data": "!", "client-key-data": "!"},
        {"auth-provider": {"name": "gcp"}},
        {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-program"}},
        {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "false"}},
        {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "echo", "args": ["{}"]}},
        {"exec": {"apiVersion": "client.authentication.k8s.io/v9", "command": "true"}},
    ],
    ids=["no files", "no certificate", "provider", "no program", "fails", "no answer", "version"],
)
def test_a_login_that_cannot_be_is_told(server: AskingServer, user: Data) -> None:
    with pytest.raises(UsageError, match=", got "):
        server.who(user)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "a: [",
        "current-context: none",
        "{current-context: a, contexts: [{name: a, context: {cluster: c}}]}",
    ],
    ids=["empty", "list", "broken", "no context", "no cluster"],
)
def test_a_kubeconfig_that_is_none_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(UsageError, match=", got "):
        ClusterApi(KubernetesConfig(kubeconfig=str(tmp_path / "config")))


def test_what_an_earlier_file_names_a_later_one_does_not_change(tmp_path: Path) -> None:
    one = {"users": [{"name": "u", "user": {"tokenFile": "token"}}], "clusters": None}
    other = {
        "current-context": "a",
        "users": [{"name": "u", "user": {"token": "x"}}, {"name": "v", "user": {"tokenFile": "/token"}}],
        "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}],
    }
    merged = merge_kubeconfigs([(tmp_path / "1", one), (tmp_path / "2", other)])
    assert merged["current-context"] == "a"
    assert merged["users"] == [
        {"name": "u", "user": {"tokenFile": str(tmp_path / "1" / "token")}},
        {"name": "v", "user": {"tokenFile": "/token"}},
    ]
