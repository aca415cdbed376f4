from __future__ import annotations

from pathlib import Path

import pytest

from weft.jobs.service.engines import check_engine, engine_notes, file_system
from weft.jobs.spec.read import SpecError, read_spec

MOUNTS = """\
/dev/vda / ext4 rw 0 0
store:/home /home nfs4 rw 0 0
tmpfs /home/ann\\040b/scratch tmpfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/weft", "ext4"),
        ("/home/ann", "nfs4"),
        ("/homework", "ext4"),
        ("/home/ann b/scratch/x", "tmpfs"),
    ],
)
def test_the_file_system_of_a_path_is_that_of_its_longest_mount(path: str, kind: str) -> None:
    assert file_system(Path(path), MOUNTS) == kind


def test_slurm_on_a_folder_that_may_not_be_shared_is_told_of() -> None:
    (note,) = engine_notes(read_spec("run: a.py\nengine: slurm"), Path("/var/weft"), MOUNTS)
    assert "must share /var/weft" in note
    assert "engine ssh" in note
    assert engine_notes(read_spec("run: a.py\nengine: slurm"), Path("/home/weft"), MOUNTS) == ()
    assert engine_notes(read_spec("run: a.py\nengine: mpi"), Path("/var/weft"), MOUNTS) == ()


@pytest.mark.parametrize(("engine", "program"), [("slurm", "salloc"), ("mpi", "mpirun")])
def test_an_engine_without_its_program_is_refused(engine: str, program: str) -> None:
    spec = read_spec(f"run: a.py\nengine: {engine}")
    with pytest.raises(SpecError, match=f"no {program} on its PATH") as caught:
        check_engine(spec, find=lambda _: None)
    assert [problem.path for problem in caught.value.problems] == ["engine"]
    check_engine(spec, find=lambda name: f"/usr/bin/{name}")
    check_engine(read_spec("run: a.py"), find=lambda _: None)
