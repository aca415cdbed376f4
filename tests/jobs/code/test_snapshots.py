from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import UsageError
from weft.jobs.code.blobs import BlobStore, check_snapshot
from weft.jobs.code.snapshot import CodeSnapshot, SnapshotFile, take_snapshot


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    for name, content in {
        "train.py": "print(1)",
        "pkg/model.py": "x = 1",
        "pkg/data.bin": "big",
        "pkg/keep.bin": "kept",
        "weft-runs/a/plan.json": "{}",
        "__pycache__/a.pyc": "",
        "secret.env": "TOKEN=1",
        ".gitignore": "*.env\n",
        "pkg/.weftignore": "*.bin\n!keep.bin\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "latest.py").symlink_to("pkg/model.py")
    return folder


def send(store: BlobStore, folder: Path) -> tuple[CodeSnapshot, int]:
    """Submit a folder as a client does; return the snapshot and how many contents were sent."""
    taken = take_snapshot(folder)
    missing = store.missing(taken.snapshot.blobs)
    for digest in missing:
        store.add(digest, taken.read(digest))
    return taken.snapshot, len(missing)


def test_a_snapshot_has_the_code_and_nothing_that_is_ignored(code: Path) -> None:
    files = {file.path: file.kind for file in take_snapshot(code).snapshot.files}
    assert files == {
        ".gitignore": "file",
        "latest.py": "link",
        "pkg/.weftignore": "file",
        "pkg/keep.bin": "file",
        "pkg/model.py": "file",
        "run.sh": "program",
        "train.py": "file",
    }


def test_what_is_written_out_is_the_same_again(code: Path, tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "blobs")
    snapshot, _ = send(store, code)
    store.write_out(snapshot, tmp_path / "out")
    assert take_snapshot(tmp_path / "out").snapshot.digest == snapshot.digest
    assert (tmp_path / "out" / "latest.py").read_text() == "x = 1"


def test_only_what_changed_is_sent_again(code: Path, tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "blobs")
    first, sent = send(store, code)
    assert sent == len({file.digest for file in first.files})
    assert send(store, code) == (first, 0)
    (code / "train.py").write_text("print(2)")
    second, sent = send(store, code)
    assert sent == 1
    assert second.digest != first.digest


def test_the_commit_and_what_differs_from_it_are_kept(code: Path, tmp_path: Path) -> None:
    def git(*words: str) -> None:
        author = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(["git", "-C", str(code), *author, *words], check=True, capture_output=True)

    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "first")
    clean = take_snapshot(code)
    assert clean.snapshot.git_commit is not None
    assert clean.snapshot.git_diff is None
    (code / "train.py").write_text("print(3)")
    dirty = take_snapshot(code)
    assert dirty.snapshot.git_commit == clean.snapshot.git_commit
    assert b"+print(3)" in dirty.read(dirty.snapshot.git_diff or "")


def test_a_file_that_changes_meanwhile_is_noticed(code: Path) -> None:
    taken = take_snapshot(code)
    digest = next(file.digest for file in taken.snapshot.files if file.path == "train.py")
    (code / "train.py").write_text("other")
    with pytest.raises(UsageError, match="must stay as they are"):
        taken.read(digest)


def test_links_that_leave_the_code_and_huge_files_are_refused(code: Path) -> None:
    (code / "out").symlink_to("/etc/passwd")
    with pytest.raises(UsageError, match="links must stay within the code"):
        take_snapshot(code)
    (code / "out").unlink()
    with (code / "weights.bin").open("wb") as file:
        file.truncate(101 << 20)
    with pytest.raises(UsageError, match=r"weights.bin of 101 MiB; add it to .weftignore"):
        take_snapshot(code)


def entry(path: str, content: bytes = b"x", kind: str = "file") -> SnapshotFile:
    return SnapshotFile(path, kind, hashlib.sha256(content).hexdigest(), len(content))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "paths",
    [
        ["/etc/x"],
        ["../x"],
        ["a/../../x"],
        ["a", "a"],
        ["a", "a/b"],
        [""],
        ["a//b"],
        ["./a"],
        ["a\n"],
        ["a" * 2000],
    ],
)
def test_paths_that_a_client_made_up_are_refused(paths: list[str]) -> None:
    with pytest.raises(UsageError, match="must"):
        check_snapshot(CodeSnapshot(tuple(map(entry, paths))))


@given(st.lists(st.text(), max_size=3))
def test_no_path_is_accepted_that_leaves_the_folder(paths: list[str]) -> None:
    try:
        check_snapshot(CodeSnapshot(tuple(map(entry, paths))))
    except UsageError:
        return
    root = Path("/root-of-snapshot")
    assert all((root / path).resolve().is_relative_to(root) and (root / path) != root for path in paths)


def test_a_link_cannot_lead_out_even_by_another(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "blobs")
    for content in (b"..", b"a/..", b"/etc"):
        store.add(hashlib.sha256(content).hexdigest(), content)
    for links in ([("a", b"..")], [("a", b"/etc")], [("d/a", b".."), ("d/b", b"a/..")]):
        snapshot = CodeSnapshot(tuple(entry(path, content, "link") for path, content in links))
        with pytest.raises(UsageError, match="must stay within it"):
            store.write_out(snapshot, tmp_path / f"out-{links[0][1].hex()}-{len(links)}")


def test_contents_with_another_digest_are_refused(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "blobs")
    with pytest.raises(UsageError, match="must have the digest"):
        store.add("0" * 64, b"x")
    for wrong in ("../../x", "0" * 63, "G" * 64):
        with pytest.raises(UsageError, match="64 hexadecimal"):
            store.missing([wrong])
