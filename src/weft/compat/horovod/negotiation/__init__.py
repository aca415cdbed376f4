"""The negotiation of operations by name: pure, without sockets, threads or torch."""
