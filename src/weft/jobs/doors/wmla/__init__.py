"""Executions of Watson Machine Learning Accelerator (WMLA, Deep Learning Impact): its logon and /execs.

`arguments.py` makes a job specification of a client's arguments, pure; `worker.py` is what a worker runs; `routes.py`
has the REST.
"""
