"""Doors of Watson Machine Learning Accelerator (WMLA, Deep Learning Impact): its logon, /execs and /hypersearch.

`arguments.py` makes a job specification of a client's arguments, `hypersearch.py` a study of a search's description,
both pure; `worker.py` and `trial.py` are what a worker runs; `routes.py` and `search_routes.py` have the REST.
"""
