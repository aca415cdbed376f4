"""Reductions that follow the machine: the torch backend "weft".

    torch.distributed.init_process_group("weft")

`members.py` and `places.py` decide who shares a host, a rack, an aisle; `hierarchy.py` and `levels.py` carry a
collective up these dimensions and back down; a mode (`modes/`) does one dimension; `groups/` is what torch calls;
`watching/` and `bench/` show what happens.
"""
