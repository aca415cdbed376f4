"""The server's protocols: V2 over REST and gRPC, the older V1 routes, OpenAPI, and the pages for people."""
