"""Horovod's Python API on Weft's backend: scripts that say `import horovod.torch as hvd` run on today's torch.

The distribution `weft-horovod` gives these modules the names that scripts import (`horovod.torch`, `horovodrun`); this
package is what they are made of.

    negotiation/   which operation is next, on all ranks: pure
    engine/        the threads that negotiate and carry out, and the process's place in the world
    torch/         horovod.torch
    elastic/       hvd.elastic: states, samplers, the run on Weft's membership
    launcher/      horovodrun and horovod.run
"""
