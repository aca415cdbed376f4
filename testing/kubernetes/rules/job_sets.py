"""The controller of JobSets, as far as a run needs it: Jobs made of a set, and how they end it; pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

Data = dict[str, Any]


def jobs_of(job_set: Data) -> list[Data]:
    """Return the Jobs of a set, which belong to it; their pods are known as NAME-ROLE-NUMBER-INDEX.SUBDOMAIN."""
    found = []
    owner = {
        "apiVersion": job_set["apiVersion"],
        "kind": "JobSet",
        "name": job_set["metadata"]["name"],
        "uid": job_set["metadata"]["uid"],
    }
    network = job_set["spec"].get("network", {})
    for role in job_set["spec"]["replicatedJobs"]:
        for number in range(role.get("replicas", 1)):
            template = copy.deepcopy(role["template"])
            labels = {
                **template.get("metadata", {}).get("labels", {}),
                "jobset.sigs.k8s.io/jobset-name": owner["name"],
                "jobset.sigs.k8s.io/replicatedjob-name": role["name"],
                "jobset.sigs.k8s.io/job-index": str(number),
            }
            metadata = {"name": f"{owner['name']}-{role['name']}-{number}", "labels": labels}
            pods = template["spec"]["template"]["spec"]
            if network.get("enableDNSHostnames"):
                pods["subdomain"] = network.get("subdomain", owner["name"])
            found.append(
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "metadata": {**metadata, "ownerReferences": [owner]},
                    "spec": template["spec"],
                }
            )
    return found


def end_of(job_set: Data, ends: Mapping[str, str | None]) -> str | None:
    """Return how a set ends, by the conditions that its Jobs ended with; None while it goes on."""
    if "Failed" in ends.values() and job_set["spec"].get("failurePolicy", {}).get("maxRestarts", 0) == 0:
        return "Failed"
    return "Completed" if ends and all(end == "Complete" for end in ends.values()) else None
