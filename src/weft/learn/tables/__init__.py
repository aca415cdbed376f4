"""Tables: in memory as solvers see them, and on disk in a form that is mapped instead of read."""
