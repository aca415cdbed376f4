"""Reductions that follow the machine: the torch backend "weft".

    torch.distributed.init_process_group("weft")

`members.py` decides who shares a host; `hierarchy.py` carries a reduction up the dimensions and back down; a mode
(`shm.py`, `ring.py`, ...) does one dimension; `backend.py` is what torch calls.
"""
