# mypy: ignore-errors
"""Handwritten digits, as Horovod's MNIST example is written: nothing in it knows of Weft.

weft run -n 2 examples/horovod/digits.py --epochs 3
"""

import argparse

import horovod.torch as hvd
import torch
import torch.nn.functional as F  # noqa: N812
from sklearn.datasets import load_digits
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--momentum", type=float, default=0.5)
parser.add_argument("--seed", type=int, default=42)
parser.add_argument("--fp16-allreduce", action="store_true")
parser.add_argument("--use-adasum", action="store_true")
parser.add_argument("--gradient-predivide-factor", type=float, default=1.0)
args = parser.parse_args()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, kernel_size=3)
        self.fc1 = nn.Linear(8 * 3 * 3, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv(x), 2))
        x = F.relu(self.fc1(x.flatten(1)))
        return F.log_softmax(self.fc2(x), dim=1)


def metric_average(value, name):
    return hvd.allreduce(torch.tensor(value), name=name).item()


def main():
    hvd.init()
    torch.manual_seed(args.seed)
    pixels, labels = load_digits(return_X_y=True)
    pixels = torch.tensor(pixels / 16, dtype=torch.float32).view(-1, 1, 8, 8)
    dataset = TensorDataset(pixels, torch.tensor(labels))
    train, test = torch.utils.data.random_split(
        dataset, [1500, len(dataset) - 1500], generator=torch.Generator().manual_seed(args.seed)
    )
    train_sampler = DistributedSampler(train, num_replicas=hvd.size(), rank=hvd.rank())
    train_loader = DataLoader(train, batch_size=args.batch_size, sampler=train_sampler)
    test_sampler = DistributedSampler(test, num_replicas=hvd.size(), rank=hvd.rank())
    test_loader = DataLoader(test, batch_size=100, sampler=test_sampler)

    model = Net()
    lr_scaler = 1 if args.use_adasum else hvd.size()
    optimizer = optim.SGD(model.parameters(), lr=args.lr * lr_scaler, momentum=args.momentum)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none,
        op=hvd.Adasum if args.use_adasum else hvd.Average,
        gradient_predivide_factor=args.gradient_predivide_factor,
    )
    for epoch in range(1, args.epochs + 1):
        model.train()
        train_sampler.set_epoch(epoch)
        for data, target in train_loader:
            optimizer.zero_grad()
            F.nll_loss(model(data), target).backward()
            optimizer.step()
        model.eval()
        loss = correct = 0.0
        with torch.no_grad():
            for data, target in test_loader:
                output = model(data)
                loss += F.nll_loss(output, target, reduction="sum").item()
                correct += (output.argmax(1) == target).sum().item()
        loss = metric_average(loss / len(test_sampler), "avg_loss")
        accuracy = metric_average(correct / len(test_sampler), "avg_accuracy")
        if hvd.rank() == 0:
            print(f"epoch {epoch}: loss {loss:.4f}, accuracy {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
