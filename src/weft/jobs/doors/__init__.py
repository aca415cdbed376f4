"""Doors: the protocols of other systems, spoken over our store, so that their clients work unchanged.

mlflow/   the tracking REST of MLflow: experiments are projects, runs are jobs
ffdl/     manifests and REST of FfDL (Fabric for Deep Learning)
wmla/     logon and executions of Watson Machine Learning Accelerator

`mounts.py` has the routes of all of them. This file imports nothing: learners of FfDL load it on every host.
"""
