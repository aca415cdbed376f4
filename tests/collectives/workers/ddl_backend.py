"""A PyTorch script written for DDL: nothing but the name of the backend."""

import torch

torch.distributed.init_process_group("ddl", init_method="env://")
values = torch.ones(3)
torch.distributed.all_reduce(values)
assert values.tolist() == [2.0, 2.0, 2.0]
torch.distributed.destroy_process_group()
print("as it should be\n", end="", flush=True)
