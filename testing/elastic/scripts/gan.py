"""A GAN: two models, two optimizers, two backward passes in each turn of the loop."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import TensorDataset

from weft import elastic

run = elastic.join()
torch.manual_seed(0)
loader = run.loader(TensorDataset(torch.randn(96, 2) + 3), batch=16, shuffle=True)
generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
discriminator = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
g_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
d_optimizer = torch.optim.Adam(discriminator.parameters(), lr=2e-3, betas=(0.5, 0.999))
run.register(
    generator=generator, discriminator=discriminator, g_optimizer=g_optimizer, d_optimizer=d_optimizer
)
bce = nn.BCEWithLogitsLoss()
for _ in run.epochs(3):
    for (real,) in loader:
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        fake = generator(torch.randn(len(real), 4))
        d_optimizer.zero_grad()
        bce(discriminator(real), ones).backward()
        bce(discriminator(fake.detach()), zeros).backward()
        d_optimizer.step()
        g_optimizer.zero_grad()
        bce(discriminator(fake), ones).backward()
        g_optimizer.step()
model = nn.ModuleList([generator, discriminator])
assert d_optimizer.state_dict()["state"][0]["step"] == run.committed
