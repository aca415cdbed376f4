"""The pure parts of runs on Kubernetes: logs over broken connections, mirrored files, places of pods, news of pods."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import socket
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import ConnectError, UsageError
from weft.launch.control.console import Console
from weft.launch.engines.kubernetes.api import ClusterApi
from weft.launch.engines.kubernetes.ending import outcome_from
from weft.launch.engines.kubernetes.lease import lease_change
from weft.launch.engines.kubernetes.logs.leader_log import LeaderLog
from weft.launch.engines.kubernetes.logs.log_reader import ContainerLogReader
from weft.launch.engines.kubernetes.logs.rank_output import RankOutput
from weft.launch.engines.kubernetes.objects.pod_spec import CODE_FILE, code_part
from weft.launch.engines.kubernetes.objects.snapshot import LARGEST_BYTES, PART_BYTES, parts_of, snapshot
from weft.launch.engines.kubernetes.pod_news import (
    age_of,
    describe_end,
    has_started,
    is_waiting,
    job_end,
    terminated,
    warnings_in,
    why_leaving,
    why_pending,
)
from weft.launch.engines.pods.lines import listen_at, reach
from weft.launch.engines.pods.mirror import MARK, FilePiece, Mirror, MirroredFiles, mark_of, piece_in
from weft.launch.engines.pods.place import is_among_pods, place_from
from weft.launch.engines.pods.start import unpack
from weft.launch.pod_settings import KubernetesConfig
from weft.secret import admit


@given(
    seconds=st.lists(st.integers(0, 3), min_size=1, max_size=30).map(sorted),
    cuts=st.lists(st.integers(0, 40), max_size=5),
    size=st.integers(1, 50),
)
def test_every_line_comes_once_however_often_the_log_breaks(
    seconds: list[int], cuts: list[int], size: int
) -> None:
    """Several lines have the same time; each connection begins with the second at which the last one broke."""
    lines = [
        (f"2026-11-18T00:00:0{second}.{number // 3:09d}Z", f"line {number}")
        for number, second in enumerate(seconds)
    ]
    reader = ContainerLogReader()
    got: list[bytes] = []
    for cut in [*cuts, len(lines)]:
        since = (reader.since or "").rstrip("Z")
        sent = [f"{moment} {text}\n" for moment, text in lines if moment >= since]
        # All that was read before comes again, and `cut` lines more.
        again = sum(text.split(" ", 1)[1].encode() in got for text in sent)
        data = "".join(sent[: again + cut]).encode()
        pieces = [data[start : start + size] for start in range(0, len(data), size)]
        got += itertools.chain(*reader.lines(pieces))
    assert got == [f"{text}\n".encode() for _, text in lines]


def test_a_line_without_its_end_waits_for_the_next_connection() -> None:
    reader = ContainerLogReader()
    assert list(reader.lines([b"2026-11-18T00:00:00.1Z whole\n2026-11-18T00:00:00.2Z ha"])) == [[b"whole\n"]]
    again = [b"2026-11-18T00:00:00.1Z whole\n2026-11-18T00:00:00.2Z half\n"]
    assert list(reader.lines(again)) == [[b"half\n"]]


def test_files_of_a_run_come_through_the_log(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    (there / "metrics").mkdir(parents=True)
    (there / "elastic").mkdir()
    (there / "elastic" / "secret").write_text("hush")
    (there / "rank-0.log").write_text("printed anyway")
    (there / "outcome.json").write_text('{"code": 3}')
    growing = there / "metrics" / "rank-0.jsonl"
    growing.write_bytes(b"a" * 6000)
    with (tmp_path / "out").open("wb") as out:
        mirror = Mirror(there, out.fileno())
        mirror.close()
        growing.write_bytes(b"a" * 6000 + b"b" * 10)
        mirror._print()
    text = (tmp_path / "out").read_bytes()
    assert b"secret" not in text
    assert len(max(text.splitlines(), key=len)) < 4096  # a pipe keeps a mark together
    files = MirroredFiles(here)
    for match in MARK.finditer(text):
        piece = piece_in(match)
        assert piece is not None
        assert not files.put(piece)
    assert (here / "metrics" / "rank-0.jsonl").read_bytes() == b"a" * 6000 + b"b" * 10
    assert sorted(path.name for path in here.rglob("*") if path.is_file()) == ["outcome.json", "rank-0.jsonl"]


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../b", ".hidden", "a/b/c/d/e"])
def test_a_mark_names_files_of_the_run_alone(name: str) -> None:
    match = MARK.search(mark_of(FilePiece(name, 0, 1, b"x")))
    assert match is not None
    assert piece_in(match) is None


def test_a_file_in_the_middle_of_a_line_does_not_part_it(tmp_path: Path) -> None:
    out, err = BytesIO(), BytesIO()
    console = Console(2, logs=tmp_path, out=out, err=err)
    log = LeaderLog(console, tmp_path)
    log.take([b"[1] one ha" + mark_of(FilePiece("plan.json", 0, 2, b"{}"))])
    log.take([b"lf\n"])
    log.take([b"weft: view 1\n"])
    log.take([mark_of(FilePiece("outcome.json", 0, 11, b'{"code": 3}'))])
    log.take([b"weft: failed: said here again\n"])
    console.close()
    assert out.getvalue() == b"[1] one half\n"
    assert err.getvalue() == b"weft: view 1\n"
    assert (tmp_path / "plan.json").read_text() == "{}"
    assert log.outcome == {"code": 3}


def marks_of(folder: Path, name: str, text: str) -> list[bytes]:
    """Return the lines by which a file comes through a log."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    with (folder.parent / "printed").open("wb") as out:
        Mirror(folder, out.fileno()).close()
    return (folder.parent / "printed").read_bytes().splitlines(keepends=True)


def test_an_outcome_with_a_long_traceback_or_many_ranks_is_known(tmp_path: Path) -> None:
    told = {"code": 1, "codes": {str(rank): 1 for rank in range(1000)}, "failure": {"traceback": "x" * 9000}}
    lines = marks_of(tmp_path / "there", "outcome.json", json.dumps(told))
    assert len(lines) > 4
    for folder in (tmp_path / "here", None):
        console = Console(2, logs=tmp_path, out=BytesIO(), err=BytesIO())
        log = LeaderLog(console, folder)
        for line in lines:
            assert log.outcome is None
            log.take([line])
        console.close()
        assert log.outcome == told


def test_files_whose_beginning_the_cluster_has_not_kept_begin_with_a_whole_line(tmp_path: Path) -> None:
    """As for whoever comes back to a long run: kubelets keep the last 10 MB of a log."""
    err = BytesIO()
    console = Console(2, logs=tmp_path, out=BytesIO(), err=err)
    rows = [json.dumps({"step": step}) + "\n" for step in range(2000)]
    lines = marks_of(tmp_path / "there", "metrics.jsonl", "".join(rows))
    log = LeaderLog(console, tmp_path / "here")
    kept = lines[len(lines) // 2 :]
    log.take([*kept, *kept[-1:]])
    log.take([mark_of(FilePiece("elastic/control.json", 2400, 2402, b"}}"))])
    console.close()
    found = (tmp_path / "here" / "metrics.jsonl").read_text()
    assert 0 < len(found) < len("".join(rows))
    assert "".join(rows).endswith(f"\n{found}")
    assert err.getvalue().count(b"the beginning of the log is gone") == 1
    log.take(lines)  # all of it after all, as from another first pod
    assert (tmp_path / "here" / "metrics.jsonl").read_text() == "".join(rows)


def test_an_outcome_comes_with_the_folders_of_this_machine(tmp_path: Path) -> None:
    failure = {
        "rank": 1,
        "host": "a-1",
        "code": 7,
        "reason": "exit code 7",
        "traceback": None,
        "log": "/tmp/x",
    }
    told = {
        "code": 7,
        "codes": {"0": 0, "1": 7},
        "seconds": 2.0,
        "failure": failure,
        "run_dir": "/tmp",
        "new": 1,
    }
    outcome = outcome_from(told, tmp_path)
    assert outcome.codes == {0: 0, 1: 7}
    assert outcome.failure is not None
    assert outcome.failure.log == str(tmp_path / "rank-1.log")
    assert outcome.run_dir == str(tmp_path)


OURS = {"WEFT_POD_LEADER": "a-0.a", "WEFT_PODS": "3", "WEFT_POD_PREFIX": "a", "JOB_COMPLETION_INDEX": "2"}
TORCHRUNS = {"PET_NNODES": "1:4", "PET_NODE_RANK": "0", "PET_MASTER_ADDR": "b"}


def test_a_pod_knows_its_place() -> None:
    ours = place_from(OURS)
    assert (ours.name, ours.count, ours.leader, ours.is_leader) == ("a-2", 3, "a-0.a", False)
    theirs = place_from(TORCHRUNS)
    assert (theirs.name, theirs.count, theirs.leader, theirs.is_leader) == ("pod-0", 4, "b", True)
    assert is_among_pods(TORCHRUNS)
    assert not is_among_pods({**TORCHRUNS, "WEFT_HOST": "pod-0"})  # a worker


def test_pods_of_elastic_pytorchjobs_and_of_plain_jobs_know_their_place() -> None:
    elastic = {"PET_NNODES": "2:4", "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "digits-worker-0:23456"}
    for number in range(3):
        environ = {**elastic, "HOSTNAME": f"digits-worker-{number}"}
        assert is_among_pods(environ)
        place = place_from(environ)
        assert (place.index, place.least, place.count, place.leader) == (number, 2, 4, "digits-worker-0")
    assert not is_among_pods({**elastic, "HOSTNAME": "somewhere-else-3"})
    job = {"PET_NNODES": "2", "MASTER_ADDR": "a-0.a", "JOB_COMPLETION_INDEX": "1"}
    assert is_among_pods(job)
    assert (place_from(job).index, place_from(job).least) == (1, None)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {**OURS, "WEFT_PODS": "0"},
        {**OURS, "JOB_COMPLETION_INDEX": "x"},
        {**TORCHRUNS, "PET_MASTER_ADDR": ""},
    ],
)
def test_a_pod_without_a_place_is_told(environ: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=", got "):
        place_from(environ)


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a-0-x"}, "status": status}


def test_news_of_pods_are_one_line() -> None:
    waiting = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off\n pulling x"}}}
    assert (
        why_pending(pod(phase="Pending", containerStatuses=[waiting]))
        == "ImagePullBackOff: Back-off pulling x"
    )
    creating = {"state": {"waiting": {"reason": "ContainerCreating"}}}
    assert why_pending(pod(phase="Pending", containerStatuses=[creating])) == ""
    assert why_pending(pod(phase="Running")) == ""
    killed = {"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
    ended = terminated(pod(phase="Failed", containerStatuses=[killed]))
    assert ended is not None
    assert "out of memory" in describe_end(ended)
    assert terminated(pod(phase="Succeeded")) == {"exitCode": 0, "reason": "Completed"}
    assert terminated(pod(phase="Running")) is None
    evicted = terminated(pod(phase="Failed", reason="Evicted", message="The node was low on memory."))
    assert evicted is not None
    assert describe_end(evicted) == "Evicted (exit code 1): The node was low on memory."
    assert job_end(None) == "it was deleted"
    assert job_end({"status": {}}) is None
    failed = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "too long"}
    assert job_end({"status": {"conditions": [failed]}}) == "DeadlineExceeded: too long"
    # What will be is told while pods still end.
    soon = {"type": "FailureTarget", "status": "True", "reason": "BackoffLimitExceeded", "message": ""}
    assert job_end({"status": {"conditions": [soon]}}) == "BackoffLimitExceeded"
    assert (
        job_end({"status": {"conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]}}) == "Complete"
    )


def test_a_container_before_ours_tells_why_ours_does_not_begin() -> None:
    ours = {"name": "worker", "state": {"waiting": {"reason": "PodInitializing"}}}
    pulls = {"name": "fetch", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}
    waits = pod(phase="Pending", initContainerStatuses=[pulls], containerStatuses=[ours])
    assert why_pending(waits) == "ErrImagePull: no such image"
    failed = {"name": "fetch", "state": {"terminated": {"exitCode": 3, "reason": "Error"}}}
    ended = terminated(pod(phase="Failed", initContainerStatuses=[failed], containerStatuses=[ours]))
    assert ended is not None
    assert describe_end(ended) == "Init (exit code 3): the container fetch, which runs before it"


def test_what_the_cluster_did_to_a_pod_counts_more_than_what_its_container_knows() -> None:
    killed = {"state": {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}}}
    low = "The node was low on resource: memory."
    ended = terminated(pod(phase="Failed", reason="Evicted", message=low, containerStatuses=[killed]))
    assert ended is not None
    assert describe_end(ended) == f"Evicted (exit code 137): {low}"
    target = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    ready = {"type": "Ready", "status": "True"}
    assert why_leaving(pod(phase="Running", conditions=[ready, target])) == "PreemptionByScheduler"
    assert why_leaving(pod(phase="Running", conditions=[ready])) == ""


def test_a_container_beside_ours_tells_nothing_of_the_run() -> None:
    proxy = {"name": "istio-proxy", "state": {"terminated": {"exitCode": 0}}}
    ours = {"name": "worker", "state": {"running": {}}}
    both = pod(phase="Running", containerStatuses=[proxy, ours])
    assert terminated(both) is None
    assert has_started(both)
    assert not has_started(pod(phase="Pending", containerStatuses=[proxy, {"name": "worker", "state": {}}]))


def test_pods_of_one_second_are_told_apart_by_the_failures_before_them() -> None:
    def made(second: int, failures: int) -> dict[str, Any]:
        counted = {"batch.kubernetes.io/job-index-failure-count": str(failures)}
        at = f"2026-11-18T00:00:0{second}Z"
        return {"metadata": {"creationTimestamp": at, "annotations": counted}}

    in_order = [made(1, 0), made(1, 1), made(1, 10), made(2, 2)]
    assert sorted(random.Random(0).sample(in_order, 4), key=age_of) == in_order
    assert age_of({"metadata": {}}) < age_of(in_order[0])


@pytest.mark.parametrize(
    ("status", "deadline_s", "until"),
    [({}, None, 900), ({"startTime": "2026-11-18T00:00:00Z"}, None, 4500), ({}, 600, 600)],
    ids=["not begun", "an hour", "its own"],
)
def test_a_run_that_is_followed_has_a_deadline_that_moves(
    status: dict[str, Any], deadline_s: int | None, until: int
) -> None:
    now_s = datetime(2026, 11, 18, 1, tzinfo=UTC).timestamp()
    change = lease_change({"status": status}, client_s=900, deadline_s=deadline_s, now_s=now_s)
    assert change == {"spec": {"activeDeadlineSeconds": until, "ttlSecondsAfterFinished": 900}}


def test_warnings_are_told_in_the_order_in_which_they_were_seen() -> None:
    events = [
        {
            "type": "Warning",
            "reason": "FailedMount",
            "message": "no\n claim",
            "eventTime": "2026-11-18T00:00:02Z",
        },
        {"type": "Normal", "reason": "Scheduled", "message": "fine"},
        {"type": "Warning", "reason": "Failed", "message": "", "lastTimestamp": "2026-11-18T00:00:01Z"},
    ]
    assert warnings_in(events) == ["Failed", "FailedMount: no claim"]
    assert is_waiting(pod(phase="Pending"))
    assert not is_waiting(pod(phase="Running"))


def test_a_pod_listens_at_an_address_of_either_family() -> None:
    for address in ("127.0.0.1", "::1"):
        with listen_at(address, 0, backlog=1) as listener:
            assert listener.getsockname()[0] == address
    with listen_at("", 0, backlog=2) as listener:  # as in a TrainJob of a cluster of either family
        for address in ("127.0.0.1", "::1"):
            socket.create_connection((address, listener.getsockname()[1]), 5).close()


def test_a_name_that_still_stands_for_an_earlier_run_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods of the run before have the same names until they have ended; they know another secret."""
    with listen_at("127.0.0.1", 0, backlog=1) as old, listen_at("127.0.0.1", 0, backlog=1) as new:

        def answer(listener: socket.socket, secret: str) -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError, ConnectError):
                admit(connection, secret)

        known = (socket.AF_INET, socket.SOCK_STREAM, 0, "")
        found = [(*known, listener.getsockname()) for listener in (old, new)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        with ThreadPoolExecutor(2) as pool:
            ends = [pool.submit(answer, *one) for one in ((old, "knock"), (new, "open"))]
            with reach("train-0.train", 1, "open") as link:
                assert link.getpeername() == new.getsockname()
            for end in ends:
                end.result(10)


@pytest.mark.parametrize("user", ["{token: a}", "{}"])
def test_kubeconfigs_of_all_kinds_of_users_are_read(
    user: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text(
        "{current-context: a, contexts: [{name: a, context: {cluster: c, user: u}}],"
        f" clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:1'}}}}], users: [{{name: u, user: {user}}}]}}"
    )
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'none'}:{tmp_path / 'config'}")
    api = ClusterApi(KubernetesConfig())
    assert (api.server, api.namespace) == ("http://127.0.0.1:1", "default")
    api.close()


def test_a_snapshot_is_the_same_for_the_same_files_and_refuses_large_ones(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    (tmp_path / "weft-runs").mkdir()
    (tmp_path / "weft-runs" / "log").write_text("x")
    (tmp_path / ".hidden").write_text("x")
    packed = snapshot(tmp_path)
    (tmp_path / "train.py").touch()
    assert snapshot(tmp_path) == packed
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        assert archive.getnames() == ["train.py"]
    (tmp_path / "data.bin").write_bytes(random.Random(0).randbytes(LARGEST_BYTES + 1000))
    with pytest.raises(UsageError, match="must fit into 32 ConfigMaps"):
        snapshot(tmp_path)


@pytest.mark.parametrize("size", [1, PART_BYTES, 2 * PART_BYTES + 1])
def test_a_snapshot_in_parts_is_put_together_again(size: int, tmp_path: Path) -> None:
    there, volume, pod = tmp_path / "there", tmp_path / "volume", tmp_path / "pod"
    for folder in (there, volume, pod):
        folder.mkdir()
    data = random.Random(0).randbytes(size)
    (there / "table.bin").write_bytes(data)
    parts = parts_of(snapshot(there))
    assert max(map(len, parts)) <= PART_BYTES
    for number, part in enumerate(parts):
        (volume / code_part("train", number, len(parts))[1]).write_bytes(part)
    unpack(volume / CODE_FILE, str(pod))
    assert (pod / "table.bin").read_bytes() == data


def test_a_pod_goes_to_its_working_folder_where_the_cluster_does_not(tmp_path: Path) -> None:
    """As in a TrainJob, which has no field for it."""
    begin = [sys.executable, "-P", "-m", "weft.launch.engines.pods.start", "pwd"]
    for folder, code, told in (
        (tmp_path, 0, str(tmp_path)),
        (tmp_path / "none", 1, "workdir must be a folder"),
    ):
        env = {**os.environ, "WEFT_WORKDIR": str(folder)}
        done = subprocess.run(begin, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == code
        assert told in done.stdout + done.stderr


def lives_of(host: str, rank: int, lives: int) -> bytes:
    return json.dumps({"known": {host: {"ranks": [rank], "lives": lives}}}).encode()


def test_what_a_new_first_pod_prints_again_is_left_out() -> None:
    output = RankOutput()
    assert output.new_in(1, b"a\nb\n") == b"a\nb\n"
    output.again([1])
    assert output.new_in(1, b"a\n") == b""
    assert output.new_in(1, b"b\nc\n") == b"c\n"
    output.again([1])
    assert output.new_in(1, b"weft: 4 bytes are left out here; x.log has them\nc\nd\n") == b"d\n"
    assert output.new_in(0, b"a\n") == b"a\n"  # the first pod's own worker is another one


def test_output_that_is_lost_is_told() -> None:
    output = RankOutput()
    output.new_in(1, b"a\n")
    output.again([1])
    told = b"weft: 40 bytes are left out here; x.log has them\nz\n"
    assert output.new_in(1, told) == told


def test_a_pod_that_was_replaced_prints_from_the_beginning() -> None:
    output = RankOutput()
    output.note_lives(lives_of("train-1", 1, 1))
    output.new_in(1, b"a\nb\n")
    output.note_lives(lives_of("train-1", 1, 2)[:-4])  # a part of it
    output.note_lives(lives_of("train-1", 1, 2))
    output.new_in(1, b"c\n")
    output.again([1])
    assert output.new_in(1, b"c\nd\n") == b"d\n"
