"""Doors: the protocols of other systems, spoken over our store, so that their clients work unchanged.

mlflow/   the tracking REST of MLflow: experiments are projects, runs are jobs
ffdl/     manifests and REST of FfDL (Fabric for Deep Learning)
wmla/     logon and executions of Watson Machine Learning Accelerator
"""

from weft.jobs.doors.mounts import routes

__all__ = ["routes"]
