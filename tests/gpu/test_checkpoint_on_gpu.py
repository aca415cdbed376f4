"""Checkpoints of a state that is on a GPU: copied through pinned memory, read back to where it was."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator"),
]


def test_a_state_on_a_gpu_comes_back_as_it_was(tmp_path: Path) -> None:
    from tests.elastic.checkpoint.test_checkpoint import Crew, saved_steps

    from weft.elastic.checkpoint import dcp, layout
    from weft.elastic.replica import state

    crew = Crew(tmp_path, tmp_path)
    crew.objects["model"].cuda()
    crew.objects["optimizer"] = torch.optim.AdamW(crew.objects["model"].parameters())
    crew.meet()
    for step in (1, 2):
        crew.objects["model"](torch.ones(2, 4, dtype=torch.bfloat16, device="cuda")).sum().backward()
        crew.objects["optimizer"].step()
        crew.step(step)
        for saver in crew.savers:
            assert all(copy.is_pinned() for copy in saver._snapshot._copies if copy.numel() > 1)
        now = [tensor.clone() for tensor in crew.image(step).tensors]
        crew.rest()
    assert saved_steps(tmp_path) == [2, 1]
    image = dcp.read(layout.find(tmp_path)[0])
    assert all(torch.equal(a.cpu(), b) for a, b in zip(now, image.tensors, strict=True))
    state.load(image, crew.objects)
    assert all(torch.equal(a, b) for a, b in zip(now, crew.image(2).tensors, strict=True))
    assert all(parameter.is_cuda for parameter in crew.objects["model"].parameters())
