from __future__ import annotations

import re
from pathlib import PurePosixPath

import msgspec
import pytest

from weft.jobs.doors.ffdl.manifest import ManifestError, parse_memory, read_manifest
from weft.jobs.doors.ffdl.patterns import PatternError, translate_group
from weft.jobs.doors.ffdl.trainings import page_of, parse_since
from weft.jobs.doors.ffdl.translate import hard_coded_places, masked, translate
from weft.jobs.doors.ffdl.variables import learner_variables
from weft.jobs.spec.model import JsonLinesSource, RegexSource, TensorboardSource
from weft.jobs.spec.read import resolve

# From FfDL's user guide, as people have it.
CAFFE = """
name: tf_convolutional_network_tutorial
description: Convolutional network model using tensorflow
version: "1.0"
gpus: 0.25
cpus: 0.5
memory: 1Gb
learners: 2
gpu_type: nvidia-TeslaK80

data_stores:
  - id: sl-internal-os
    type: mount_cos
    training_data:
      container: tf_training_data
    training_results:
      container: tf_trained_model
    connection:
      auth_url: http://s3.default.svc.cluster.local
      user_name: test
      password: verysecret

framework:
  name: tensorflow
  version: "1.5.0-py3"
  command: >
    python3 convolutional_network.py --trainImagesFile ${DATA_DIR}/train-images-idx3-ubyte.gz
    --trainingIters 2000

evaluation_metrics:
  type: tensorboard
  in: "$JOB_STATE_DIR/logs/tb"
unknown_key: ignored
"""


def test_a_manifest_of_the_guide_becomes_a_job() -> None:
    found = translate(read_manifest(CAFFE))
    spec = found.spec
    assert (spec.name, spec.workers, spec.project) == ("tf_convolutional_network_tutorial", 2, "ffdl")
    assert (spec.resources.gpus, spec.resources.cpus, spec.resources.memory) == (0.25, 0.5, 10**9)
    assert spec.resources.hosts == ("nvidia-TeslaK80",)
    assert spec.run[-1].startswith("python3 convolutional_network.py --trainImagesFile ${DATA_DIR}")
    assert "\n" not in spec.run[-1].strip()
    (name,) = found.secrets
    connection = name.removeprefix("S3_").lower()
    assert spec.data == {"training": f"s3://{connection}@tf_training_data"}
    assert spec.outputs == {"results": f"s3://{connection}@tf_trained_model/training-{{job}}"}
    assert msgspec.json.decode(found.secrets[name]) == {
        "endpoint": "http://s3.default.svc.cluster.local", "key": "test", "secret": "verysecret", "region": "",
    }  # fmt: skip
    assert spec.metrics[0] == TensorboardSource(folder=".job/logs/tb")
    assert any("tensorflow 1.5.0-py3" in warning for warning in found.warnings)
    assert "verysecret" not in str(spec)
    assert "verysecret" not in str(masked(read_manifest(CAFFE)))
    resolve(spec)  # a specification that can be submitted


def test_a_volume_is_a_folder_of_the_hosts() -> None:
    manifest = """
name: v 1!
framework: {name: pytorch, version: "1.0", command: python train.py}
data_stores:
  - {id: x, type: mount_volume, training_data: {container: in}, training_results: {container: out},
     connection: {type: host_mount, name: m, path: /cosdata}}
"""
    found = translate(read_manifest(manifest))
    assert (found.spec.name, found.spec.data, found.spec.outputs) == ("v-1", {"training": "/cosdata/in"}, {})
    assert found.spec.env == {"FFDL_RESULT_BUCKET": "/cosdata/out"}
    assert any("cpus is absent" in warning for warning in found.warnings)
    for wrong in ("path: cosdata", "path: /a/../etc"):
        with pytest.raises(ManifestError, match="absolute"):
            translate(read_manifest(manifest.replace("path: /cosdata", wrong)))
    with pytest.raises(ManifestError, match="below it"):
        translate(read_manifest(manifest.replace("container: in", "container: ../in")))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("name: x", "framework"),
        ("name: x\nframework: {name: a}", "command"),
        ("name: ''\nframework: {name: a, command: b}", "a name and a command"),
        ("name: x\nlearners: 0\nframework: {name: a, command: b}", "learners"),
        ("name: x\nlearners: two\nframework: {name: a, command: b}", "learners"),
        ("name: x\nmemory: lots\nframework: {name: a, command: b}", "memory must be"),
        ("name: x\nmemory: 1.5Gb\nframework: {name: a, command: b}", "memory must be"),
        ("name: x\ndata_stores: [{}, {}]\nframework: {name: a, command: b}", "one data store"),
        ("name: [", "YAML"),
        ("- 1", "mapping"),
        ("name: x\n" + "#" * (1 << 20), "1 MiB"),
    ],
)
def test_bad_manifests_are_refused_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(ManifestError, match=reason):
        read_manifest(text)


def test_memory_has_ffdls_units() -> None:
    assert [parse_memory(text) for text in ("1Gb", "8GiB", "512 MB", "3 mib", None)] == [
        10**9, 8 << 30, 512 * 10**6, 3 << 20, None,
    ]  # fmt: skip


def test_expressions_of_the_regex_extractor() -> None:
    group = {
        "regex": r"^%{GLOG_STAMP} .*Iteration %{INT:it}, loss = %{FLOAT:l} \(%{HEX:x}\)",
        "scalars": {"loss": {"type": "FLOAT", "value": "$l"}, "note": {"type": "STRING", "value": "$x"}},
        "etimes": {"iteration": {"type": "INT", "value": "$it"}},
    }
    pattern = re.compile(translate_group("train", group))
    match = pattern.search("I0911 12:00:01.5 solver: Iteration 20, loss = -1.5e-3 (0xff)")
    assert match is not None
    assert match.groupdict() == {"step": "20", "loss": "-1.5e-3"}
    for wrong in (
        {},
        {"regex": "("},
        group | {"regex": "%{WORD:l}"},
        group | {"regex": "x"},
        group | {"scalars": {}},
    ):
        with pytest.raises(PatternError):
            translate_group("g", wrong)


def test_sources_of_metrics() -> None:
    base = "name: x\nframework: {name: custom, version: img/x, command: go}\nevaluation_metrics: "
    emetrics = JsonLinesSource(path=".job/logs/evaluation-metrics.txt")
    regex = '{type: regex_extractor, in: $LOG_DIR/training-log.txt, groups: {t: {regex: "l=%{FLOAT:l}", ' \
            'scalars: {loss: {type: FLOAT, value: $l}}}, bad: {regex: "("}}}'  # fmt: skip
    found = translate(read_manifest(base + regex))
    assert isinstance(found.spec.metrics[0], RegexSource)
    assert found.spec.metrics[0].prefix == "t"  # its grouplabel
    assert found.spec.metrics[1:] == (emetrics,)
    assert any("bad" in warning for warning in found.warnings)
    assert any("img/x is not used" in warning for warning in found.warnings)
    assert translate(read_manifest(base + "{type: emetrics_file}")).spec.metrics == (emetrics,)
    moved = translate(read_manifest(base + "{type: emetrics_file, in: /job/logs/e.txt}")).spec.metrics
    assert moved == (JsonLinesSource(path=".job/logs/e.txt"), emetrics)
    assert any("smoke" in warning for warning in translate(read_manifest(base + "{type: smoke}")).warnings)


def test_lines_that_name_the_job_folder_are_found() -> None:
    script = b'a = 1\ndist.init(init_method="file:///job/" + name)\nopen("/job/x")\nopen("data/job/x")\nopen("/jobs")\n'
    found = hard_coded_places([("train.py", script), ("data.bin", b"/job")])
    assert [line.partition(": ")[0] for line in found] == ["train.py:2", "train.py:3"]
    manifest = read_manifest("name: x\nframework: {name: pytorch, command: ls /job}")
    translated = translate(manifest)
    assert "--with-job-folder" in translated.spec.run
    assert any("names /job" in warning for warning in translated.warnings)
    assert "--with-job-folder" not in translate(read_manifest(CAFFE)).spec.run


def test_learners_get_ffdls_variables() -> None:
    model = PurePosixPath("/w/code")
    weft = {
        "WEFT_JOB_ID": "7", "RANK": "1", "WORLD_SIZE": "3", "WEFT_OUTPUTS": "/w/outputs", "WEFT_CHECKPOINT": "/w/ck",
        "WEFT_DATA_TRAINING": "/cache/x",
    }  # fmt: skip
    found = learner_variables(weft, command="go", gpus=1.0, model_dir=model)
    assert found == {
        "DATA_DIR": "/cache/x", "RESULT_DIR": "/w/outputs/results", "RESULT_BUCKET_DIR": "/w/outputs",
        "CHECKPOINT_DIR": "/w/ck", "MODEL_DIR": "/w/code", "LOG_DIR": "/w/code/.job/logs",
        "JOB_STATE_DIR": "/w/code/.job", "TRAINING_ID": "training-7", "TRAINING_COMMAND": "go", "LEARNER_ID": "2",
        "NUM_LEARNERS": "3", "LEARNER_NAME_PREFIX": "learner", "GPU_COUNT": "1.000000",
    }  # fmt: skip
    volume = learner_variables(weft | {"FFDL_RESULT_BUCKET": "/v/out"}, command="go", gpus=0, model_dir=model)
    assert volume["RESULT_DIR"] == "/v/out/training-7"
    assert volume["CHECKPOINT_DIR"] == "/v/out/_wml_checkpoints"


def test_pages_are_cut_by_position_time_and_lines() -> None:
    items = [{"meta": {"time": 1000 * number}, "line": number} for number in range(20)]

    def lines(**more: object) -> list[object]:
        asked = {"pos": 0, "size": 5, "since": "", **more}
        return [item["line"] for item in page_of(items, **asked)]  # type: ignore[arg-type]

    assert lines() == [0, 1, 2, 3, 4]
    assert lines(pos=18) == [18, 19]
    assert lines(pos=-3) == [17, 18, 19]
    assert lines(since="17000") == [17, 18, 19]
    assert lines(since="-2") == [18, 19]
    assert lines(since="1970-01-01T00:00:18Z") == [18, 19]
    assert parse_since("1970-01-01T00:00:01+00:00") == (1000, None)
