"""Sequences of different lengths, padded by a collate function of the script; batches may come out empty."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from weft import elastic

run = elastic.join()
torch.manual_seed(0)
sentences = [torch.randint(1, 30, (length % 7,)) for length in range(96)]
data = [(sentence, len(sentence) % 2) for sentence in sentences]


def collate(samples):
    kept = [(tokens, label) for tokens, label in samples if len(tokens) > 4]
    if not kept:
        return None
    tokens, labels = zip(*kept, strict=True)
    return pad_sequence(list(tokens), batch_first=True), torch.tensor(labels)


loader = run.loader(data, batch=8, collate_fn=collate)
model = nn.ModuleDict({"embed": nn.Embedding(30, 8, padding_idx=0), "head": nn.Linear(8, 2)})
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
run.register(model=model, optimizer=optimizer)
for _ in run.epochs(2):
    for batch in loader:
        if batch is None:
            continue
        tokens, labels = batch
        logits = model["head"](model["embed"](tokens).mean(1))
        optimizer.zero_grad()
        nn.functional.cross_entropy(logits, labels).backward()
        optimizer.step()
