"""A PyTorch module as a source of an export: its graph, and the answers the file must give."""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import nn

from weft.errors import ModelError
from weft.serve.export.file import save
from weft.serve.export.quiet import quiet
from weft.serve.export.sources.axes import Axes
from weft.serve.export.sources.outputs import name_outputs
from weft.serve.export.sources.tracing import has_open_loops, trace

Array = np.ndarray[Any, Any]

TORCH_PATH = "`weft serve module:factory` serves it in torch"


class TorchExportSource:
    """A module in eval mode for as long as `ready()` lasts."""

    kind = "torch"
    takes_missing = False

    def __init__(self, module: nn.Module) -> None:
        self.module = _inner(module)
        first = next(iter(self.module.parameters()), None)
        self._device = first.device if first is not None else torch.device("cpu")
        other = {str(p.dtype) for p in self.module.parameters() if p.is_floating_point()} - {"torch.float32"}
        if other:
            raise ModelError(
                f"a module must have float32 weights to be exported, got {', '.join(sorted(other))}; call .float() on "
                "it, and choose the precision of the file"
            )
        self.versions = {"torch": str(torch.__version__)}
        self._program: torch.export.ExportedProgram | None = None

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Every part goes back to the mode it was in."""
        modes = {part: part.training for part in self.module.modules()}
        self.module.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            for part, training in modes.items():
                part.training = training

    @property
    def bytes(self) -> int:
        tensors = [*self.module.parameters(), *self.module.buffers()]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def name_inputs(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Inputs by the names of the arguments of `forward`, in its order."""
        known = [
            parameter.name
            for parameter in inspect.signature(self.module.forward).parameters.values()
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        ]
        named = {}
        for name, array in inputs.items():
            place = int(name[1:]) if name.startswith("#") else -1
            if place >= len(known) or (place < 0 and name not in known):
                raise ModelError(
                    f"samples must be for the arguments of forward, ({', '.join(known)}), got "
                    + (f"{place + 1} arrays" if place >= 0 else repr(name))
                )
            named[known[place] if place >= 0 else name] = array
        return {name: named[name] for name in known if name in named}

    def answer(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        tensors = self._tensors(inputs)
        try:
            given = self.module(**tensors)
        except (Exception, SystemExit) as error:
            shapes = ", ".join(f"{name} {array.dtype} {list(array.shape)}" for name, array in inputs.items())
            raise ModelError(
                f"the model must take the samples, {shapes}; got {type(error).__name__}: {_short(error)}{_where(error)}"
            ) from error
        return {name: tensor.detach().cpu().numpy() for name, tensor in name_outputs(given).items()}

    def write(
        self, path: Path, inputs: Mapping[str, Array], axes: Axes, opset: int, *, external: bool
    ) -> None:
        """Capture the module on these inputs (two rows, so that no axis looks like a constant 1), and write it."""
        tensors = self._tensors(inputs)
        names = list(name_outputs(self.module(**tensors)))
        hints = {name: dict.fromkeys(axes[name], torch.export.Dim.DYNAMIC) for name in tensors}
        with quiet():
            try:
                program = torch.export.export(self.module, (), tensors, dynamic_shapes=hints, strict=False)
                self._program = program
            except (Exception, SystemExit) as error:
                if has_open_loops(self.module, axes) and trace(self.module, path, tensors, axes, opset):
                    if external:
                        save(onnx.load(path), path, external=True)
                    return
                raise ModelError(
                    f"the model cannot be captured as a graph: {_short(error)}{_where(error)}; change that, or "
                    f"leave it: {TORCH_PATH}"
                ) from error
            try:
                made = torch.onnx.export(
                    program,
                    dynamo=True,
                    verbose=False,
                    opset_version=opset,
                    input_names=list(tensors),
                    output_names=names,
                    dynamic_shapes={name: dict(axes[name]) for name in tensors},
                )
                assert made is not None
                made.save(str(path), external_data=external)
            except Exception as error:
                raise ModelError(
                    f"the graph of the model cannot be written as ONNX: {_short(error)}; {TORCH_PATH}"
                ) from error

    def explain(self, file: Path, inputs: Mapping[str, Array], answer: Mapping[str, Array]) -> str:
        """Return whether the difference came with the capture of the module or later."""
        if self._program is None:
            return "; the module was traced: what forward decides in Python is frozen"
        try:
            captured = name_outputs(self._program.module()(**self._tensors(inputs)))
        except Exception as error:
            return f"; the graph that torch captured is not for this batch: {_short(error)}"
        close = all(
            np.allclose(tensor.detach().cpu().numpy(), answer[name], rtol=1e-3, atol=1e-4, equal_nan=True)
            for name, tensor in captured.items()
            if name in answer
        )
        if close:
            return (
                "; the graph that torch captured answers as the file does: its capture froze a decision that "
                "forward takes in Python"
            )
        from weft.serve.export.checks.blame import first_difference

        place = first_difference(self._program, file, inputs)
        return "; the graph that torch captured answers otherwise than the file" + (
            f", the first node that differs is {place}" if place else ""
        )

    def _tensors(self, inputs: Mapping[str, Array]) -> dict[str, torch.Tensor]:
        return {name: torch.from_numpy(array.copy()).to(self._device) for name, array in inputs.items()}


def _inner(module: nn.Module) -> nn.Module:
    """Return what `torch.compile` or DistributedDataParallel has wrapped."""
    compiled = getattr(module, "_orig_mod", None)
    if isinstance(compiled, nn.Module):
        return _inner(compiled)
    if isinstance(module, nn.parallel.DistributedDataParallel | nn.DataParallel):
        return _inner(module.module)
    return module


def _short(error: BaseException) -> str:
    """The first line that says something."""
    if "data-dependent" in str(error):
        return "forward decides in Python by the values of its tensors"
    lines = (line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", str(error)).splitlines())
    telling = [line for line in lines if line and not line.startswith("##")]
    return telling[0][:300] if telling else type(error).__name__


def _where(error: BaseException) -> str:
    """The place in the caller's code, if there is one."""
    said = re.findall(r'File "([^"]+)", line (\d+), in (\w+)', str(error))
    frames = [
        (frame.filename, frame.lineno, frame.name) for frame in traceback.extract_tb(error.__traceback__)
    ]
    ours = Path(__file__).parents[1]
    theirs = [
        (file, line, name)
        for file, line, name in (*frames, *said)
        if "torch" not in Path(file).parts
        and not Path(file).is_relative_to(ours)
        and not file.startswith("<")
    ]
    if not theirs:
        return ""
    file, line, name = theirs[-1]
    return f" (in {name}, {file}:{line})"
