"""Every command and every snippet of the documentation runs as it is written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from testing.cluster.cluster import VirtualCluster
from testing.forking.server import EXPORTS, TABLES, ForkServer
from tests.docs import pages
from tests.docs.snippets import (
    PAGES,
    ROOT,
    Snippet,
    as_dry_run,
    as_quick_bench,
    at_port,
    is_server,
    is_service,
    on_cluster,
    on_other_hosts,
    snippets,
)

from weft.ports import free_port

BIN = str(Path(sys.executable).parent)
# What a command of the docs shows on purpose: that it is refused.
REFUSED = {"weft run -H a,b --per-host 4 --mode b:4x8x1x1": 2}
ASKED_OF_HOSTS = ("weft check", "weft bench -H", "weft plan train.py", "weft topology")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT / "docs" if ROOT / "docs" in page.parents else ROOT))


def commands(page: Path) -> list[Snippet]:
    return [one for one in snippets(page) if one.language == "console"]


class Reader:
    """Types the commands of a page in a folder of their own; a server answers until the next one is started.

    `weft` and `python` are forks of a process that has loaded what most commands would load first.
    """

    def __init__(self, folder: Path, forks: ForkServer) -> None:
        self.folder, self.port = folder, free_port()
        self.python = forks.python
        self.server: subprocess.Popen[str] | None = None
        self.has_jobs = False
        path = f"{forks.bin}:{BIN}:{os.environ['PATH']}"
        self.env = {**os.environ, "PATH": path, "WEFT_STORE": str(folder / "models")}
        self.env |= {"WEFT_HOME": str(folder / "service"), "XDG_CONFIG_HOME": str(folder / "config")}
        self.env["XDG_DATA_HOME"] = str(folder / "data")

    def types(self, command: str) -> None:
        command = at_port(command, self.port)
        if is_server(command):
            self.serves(command)
            return
        command = as_dry_run(command) if on_other_hosts(command) else as_quick_bench(command)
        command = command.split("&& sbatch")[0]
        code = next(
            (code for start, code in REFUSED.items() if as_dry_run(start) in command or start in command), 0
        )
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, f"$ {command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"

    def serves(self, command: str) -> None:
        self.close()
        self.has_jobs = is_service(command)
        errors = (self.folder / "serve.err").open("w")
        asked = ["bash", "-c", f"exec {command}"]
        # The service starts programs from threads, so it cannot be a fork of which they are forks again.
        env = {**self.env, "PATH": f"{BIN}:{os.environ['PATH']}"} if self.has_jobs else self.env
        self.server = subprocess.Popen(
            asked, cwd=self.folder, env=env, text=True, stdout=subprocess.PIPE, stderr=errors
        )
        errors.close()
        assert self.server.stdout is not None
        lines = iter(self.server.stdout.readline, "")
        assert any("http" in line for line in lines), (
            f"$ {command}\n{(self.folder / 'serve.err').read_text()}"
        )

    def close(self) -> None:
        if self.server is not None:
            if self.has_jobs:
                self.ends_jobs()
            self.server.terminate()
            self.server.communicate()
            self.server = None

    def ends_jobs(self) -> None:
        """Stop all jobs, which would outlive the service, and wait for their ends."""
        code = (
            "import weft.jobs; client = weft.jobs.Client()\n"
            "jobs = [client.job(job.id) for job in client.jobs() if job.ended_ms is None]\n"
            "[job.stop() for job in jobs]; [job.wait(120) for job in jobs]"
        )
        subprocess.run([self.python, "-c", code], env=self.env, check=True)


@pytest.fixture
def reader(tmp_path: Path, forks: ForkServer) -> Iterator[Reader]:
    made = Reader(tmp_path, forks.load(*TABLES, *EXPORTS))
    yield made
    made.close()


def skipped(command: str) -> bool:
    return any(f"{command} ".startswith(start) for start in pages.NOT_RUN) or command.startswith(
        ASKED_OF_HOSTS
    )


@pytest.mark.long
@pytest.mark.parametrize("page", [page for page in PAGES if snippets(page)], ids=name_of)
def test_a_page_runs_as_it_is_written(page: Path, reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    name = name_of(page)
    monkeypatch.setenv("PATH", reader.env["PATH"])
    pages.prepare(name, reader.folder)
    code = pages.NAMES.get(name, "")
    for snippet in snippets(page):
        if snippet.language == "console":
            if not skipped(snippet.text):
                reader.types(snippet.text)
        elif name in pages.COMPILED:
            compile(snippet.text, f"{name}:{snippet.line}", "exec")
        else:
            block = at_port(snippet.text, reader.port)
            for old, new in pages.REPLACED.get(name, {}).items():
                block = block.replace(old, new)
            code += f"\n# {name}:{snippet.line}\n{block}"
            if "Client(" in block:  # while the server that it asks is there
                run_python(code, reader)
                code = pages.NAMES.get(name, "")
    if "\n# " in code:
        run_python(code, reader)


def run_python(code: str, reader: Reader) -> None:
    (reader.folder / "snippets.py").write_text(code)
    command = [reader.python, "snippets.py"]
    done = subprocess.run(
        command, cwd=reader.folder, env=reader.env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{code}\n{done.stderr[-3000:]}"


def test_commands_that_ask_hosts_run_on_the_virtual_cluster(
    shared_cluster: VirtualCluster, tmp_path: Path
) -> None:
    pages.prepare("", tmp_path)
    asked = {
        on_cluster(one.text)
        for page in PAGES
        for one in commands(page)
        if one.text.startswith(ASKED_OF_HOSTS) and not one.text.startswith(tuple(pages.NOT_RUN))
    }
    env = {**shared_cluster.environment, "PATH": f"{BIN}:{os.environ['PATH']}"}
    env["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    for command in sorted(re.sub(r"\s+#.*", "", command) for command in asked):
        quick = f"{command} --sizes 1KiB --iterations 2" if command.startswith("weft bench") else command
        quick = re.sub(r"--(min|max) \S+", "", quick)
        done = shared_cluster.popen(["bash", "-c", quick], env=env, cwd=tmp_path)
        output, errors = done.communicate(timeout=250)
        assert done.returncode == 0, f"$ {quick}\n{output[-3000:]}\n{errors[-3000:]}"


def test_each_exception_is_needed() -> None:
    typed = [f"{one.text} " for page in PAGES for one in commands(page)]
    for start in (*pages.NOT_RUN, *REFUSED, *ASKED_OF_HOSTS):
        if start != "weft topology":  # other pages name it in their text
            assert any(text.startswith(start) for text in typed), f"no page has {start}"
