"""Scripts as people write them, on two workers: each ends well, with the same model on both and no worker lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from testing.elastic.local_run import TRAIN, LocalRun
from testing.forking.server import ForkServer

pytestmark = pytest.mark.long
SCRIPTS = Path(TRAIN).parents[1] / "scripts"
STEPS = {
    "accumulation": 24,
    "autocast": 12,
    "average": 12,
    "classification": 18,
    "clipping": 24,
    "collate": 24,
    "compiled": 6,
    "early_stopping": None,  # as many as it takes
    "gan": 18,
    "loader_workers": 8,
    "param_groups": 18,
    "progress_bar": 18,
    "resume": 12,
    "unfreeze": 18,
    "validation": 18,
    "warmup": 18,
}


def test_every_script_is_tried() -> None:
    assert {path.stem for path in SCRIPTS.glob("*.py")} == set(STEPS)


@pytest.mark.parametrize("name", STEPS)
def test_a_script_as_written(name: str, tmp_path: Path, forks: ForkServer) -> None:
    driver = str(Path(TRAIN).with_name("as_written.py"))
    run = LocalRun(tmp_path, "1:2", 2, [str(SCRIPTS / f"{name}.py")], script=driver, forks=forks)
    run.start().finish()
    assert run.code == 0, run.output
    assert run.lost() == [], run.output
    assert len(run.results) == 2, run.output
    ((committed, _),) = {(result["committed"], result["digest"]) for result in run.results}
    assert STEPS[name] in (committed, None)
    said = [line for line in run.output.splitlines() if "weft: optimizer.step() was called" in line]
    assert len(said) == (name == "accumulation")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nn.parallel.DistributedDataParallel(model)", "must not be wrapped"),
        (
            "run.loader(data, batch_size=4)",
            "must be given batch=, the samples of a step over all workers, got",
        ),
        ("run.loader(torch.utils.data.DataLoader(data), batch=4)", "got a DataLoader"),
        ("run.loader(data, batch=4, sampler=[1])", "got sampler="),
    ],
)
def test_habits_of_other_launchers_are_told_in_a_sentence(
    line: str, words: str, tmp_path: Path, forks: ForkServer
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\nfrom torch import nn\nfrom weft import elastic\n"
        "run, model, data = elastic.join(), nn.Linear(4, 1), [0, 1]\n"
        f"{line}\n"
    )
    run = LocalRun(tmp_path, "1:1", 1, script=str(script), forks=forks).start().finish()
    assert run.code == 1, run.output
    assert words in run.output.splitlines()[-1], run.output
