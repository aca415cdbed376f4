"""Doors of Watson Machine Learning Accelerator (WMLA, Deep Learning Impact): its logon, /execs and /hypersearch.

`arguments.py` makes a job specification of a client's arguments, `hypersearch.py` a study of a search's description,
and `model_searches.py` the same for a model's search; all are pure. `worker.py` and `trial.py` are what a worker runs;
`routes.py`, `search_routes.py` and `model_routes.py` have the REST.
"""
