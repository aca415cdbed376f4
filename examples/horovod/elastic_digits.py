# mypy: ignore-errors
"""Handwritten digits, in Horovod's elastic idiom: workers may be lost and come back while it trains.

weft run --elastic 1:2 examples/horovod/elastic_digits.py --epochs 5
"""

import argparse

import horovod.torch as hvd
import torch
from sklearn.datasets import load_digits
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--lr", type=float, default=0.02)
parser.add_argument("--batches-per-commit", type=int, default=5)
args = parser.parse_args()

hvd.init()
torch.manual_seed(42)

pixels, labels = load_digits(return_X_y=True)
dataset = torch.utils.data.TensorDataset(torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels))
sampler = hvd.elastic.ElasticSampler(dataset)
loader = torch.utils.data.DataLoader(dataset, batch_size=args.batch_size, sampler=sampler)

model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * hvd.size(), momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())


@hvd.elastic.run
def train(state):
    for state.epoch in range(state.epoch, args.epochs):  # noqa: B020
        for index, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            state.sampler.record_batch(index, args.batch_size)
            if index % args.batches_per_commit == 0:
                state.commit()
        accuracy = (model(dataset.tensors[0]).argmax(1) == dataset.tensors[1]).float().mean()
        accuracy = hvd.allreduce(accuracy, name="accuracy")
        if hvd.rank() == 0:
            print(f"epoch {state.epoch}: {hvd.size()} workers, accuracy {accuracy:.3f}", flush=True)
        state.sampler.set_epoch(state.epoch + 1)
        state.commit()


def adjust_learning_rate():
    for group in optimizer.param_groups:
        group["lr"] = args.lr * hvd.size()


state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0)
state.register_reset_callbacks([adjust_learning_rate])
train(state)
