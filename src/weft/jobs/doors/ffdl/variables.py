"""The variables that FfDL gives a learner, from those that weft gives a worker. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

STATE_FOLDER = ".job"


def learner_variables(
    environ: Mapping[str, str], *, command: str, gpus: float, model_dir: PurePosixPath
) -> dict[str, str]:
    """Return what a learner finds in its environment; folders that must exist are those that end in _DIR."""
    training = f"training-{environ.get('WEFT_JOB_ID', '0')}"
    learner = int(environ.get("RANK", "0")) + 1
    outputs = PurePosixPath(environ.get("WEFT_OUTPUTS", str(model_dir / "outputs")))
    volume = environ.get("FFDL_RESULT_BUCKET")
    bucket = PurePosixPath(volume) if volume else outputs
    # Results in S3 go to bucket/ID, to which the folder `results` of the outputs is carried at the end.
    result = bucket / training if volume else outputs / "results"
    checkpoints = (
        str(bucket / "_wml_checkpoints")
        if volume
        else environ.get("WEFT_CHECKPOINT", str(model_dir / "checkpoints"))
    )
    state = model_dir / STATE_FOLDER
    return {
        "DATA_DIR": environ.get("WEFT_DATA_TRAINING", str(model_dir)),
        "RESULT_DIR": str(result),
        "RESULT_BUCKET_DIR": str(bucket),
        "CHECKPOINT_DIR": checkpoints,
        "MODEL_DIR": str(model_dir),
        "LOG_DIR": str(state / "logs"),
        "JOB_STATE_DIR": str(state),
        "TRAINING_ID": training,
        "TRAINING_COMMAND": command,
        "LEARNER_ID": str(learner),
        "NUM_LEARNERS": environ.get("WORLD_SIZE", "1"),
        "LEARNER_NAME_PREFIX": "learner",
        "GPU_COUNT": f"{gpus:f}",
    }
