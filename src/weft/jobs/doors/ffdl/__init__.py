"""FfDL's manifests and REST: trainings of Fabric for Deep Learning run here as they are.

`manifest.py` reads a manifest, `translate.py` makes a job specification of it, both pure; `learner.py` is what a worker
runs: it sets the variables that FfDL's scripts expect; `routes.py` has the REST.
"""
