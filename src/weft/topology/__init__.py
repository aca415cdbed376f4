"""The topology of the machines: hosts, sockets, cores, accelerators, network cards, rank files.

    host         one machine as data
    detect       looks at this machine, with `accelerators` and `network`
    hostlist     which hosts to use, as people write them
    dimensions   the levels of the hierarchy: accelerators x hosts x racks x aisles
    placement    which cores and accelerator each worker gets
    rankfile     which rank runs where, as a file
    alike        whether hosts are alike
    tree         hosts, drawn

Import from the module that holds the name: each loads only what it needs.
"""
