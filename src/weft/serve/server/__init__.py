"""The server behind `weft serve`: the open inference protocol V2 over REST and gRPC, and a few older doors.

`protocol.py` reads and writes requests, `batching.py` decides when a batch starts, both pure; `models.py` runs one
version of a model, `repository.py` keeps all of them and swaps them; `door.py` is where a request comes in, and
`running.py` ties everything to sockets and signals.
"""
