import torch

import weft

world = weft.init()  # under weft run, torchrun, mpirun, srun, or none of them
network = torch.nn.Linear(8, 1).to(world.device)
model = torch.nn.parallel.DistributedDataParallel(network)
loss = model(torch.randn(32, 8, device=world.device)).square().mean()
loss.backward()
print(f"rank {weft.rank()} of {weft.size()} on {weft.host()}: loss {loss.item():.3f}")
weft.shutdown()
