"""What torch does once per process, done before any test of it."""

import torch
import torch._dynamo  # it sets a variable, and would with the first dispatch mode

# Several test processes, each with a thread for every core, wait for each other: five times the time.
torch.set_num_threads(1)
