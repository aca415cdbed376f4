"""The server behind `weft serve`: the open inference protocol V2 over REST and gRPC, and a few older protocols.

`app.py` is where a request over HTTP comes in, `protocols/grpc_server.py` one over gRPC; `inference.py` runs its model.
`protocols/v2.py` reads and writes requests and `models/batching.py` decides when a batch starts, both pure;
`models/model.py` runs one version of a model, `models/repository.py` keeps all of them and swaps them; `process.py`
ties everything to sockets and signals.
"""
