"""A script for Accelerate and one for Hugging Face's Trainer, as people write them for Gloo: nothing of ours is named.

hugging_face.py FOLDER
"""

from __future__ import annotations

import hashlib
import sys
import warnings
from typing import Any

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

warnings.simplefilter("ignore")
torch.set_num_threads(1)


def rows() -> tuple[Tensor, Tensor]:
    inputs = torch.randn(32, 4, generator=torch.Generator().manual_seed(0))
    return inputs, inputs.sum(1, keepdim=True)


def digest(model: nn.Module) -> str:
    values = [round(float(value), 4) for part in model.parameters() for value in part.detach().flatten()]
    return hashlib.sha256(repr(values).encode()).hexdigest()[:16]


def train_with_accelerate() -> str:
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    plain = nn.Linear(4, 1)
    loader = DataLoader(TensorDataset(*rows()), batch_size=4)
    model, optimizer, loader = accelerator.prepare(plain, torch.optim.SGD(plain.parameters(), 0.05), loader)
    for inputs, targets in loader:
        accelerator.backward(nn.functional.mse_loss(model(inputs), targets))
        optimizer.step()
        optimizer.zero_grad()
    assert len(accelerator.gather(torch.ones(3))) == 3 * accelerator.num_processes
    return digest(plain)


class Rows(Dataset[dict[str, Tensor]]):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        inputs, targets = rows()
        return {"inputs": inputs[index], "labels": targets[index]}


class Regression(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 1)

    def forward(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        answers = self.linear(inputs)
        return {"loss": nn.functional.mse_loss(answers, labels), "logits": answers}


def train_with_trainer(folder: str) -> str:
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        output_dir=folder,
        use_cpu=True,
        ddp_backend="gloo",
        max_steps=3,
        per_device_train_batch_size=4,
        report_to=[],
        save_steps=3,
        disable_tqdm=True,
        logging_strategy="no",
    )
    data: Any = Rows()
    model = Regression()
    Trainer(model=model, args=arguments, train_dataset=data).train()
    return digest(model)


answers = {"accelerate": train_with_accelerate(), "trainer": train_with_trainer(sys.argv[1])}
assert dist.group.WORLD is not None
print(f"group {dist.group.WORLD.name()} as {dist.get_backend()}", flush=True)
for name, answer in answers.items():
    print(f"trained {name} {answer}", flush=True)
dist.destroy_process_group()
