"""The compiled messages of the gRPC service."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[3] / "tools" / "proto.py"


def test_the_compiled_modules_match_the_proto_file() -> None:
    pytest.importorskip("grpc_tools", reason="make test-all installs grpcio-tools")
    done = subprocess.run(
        [sys.executable, str(TOOL), "--check"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


def test_another_compiled_copy_of_the_protocol_may_be_loaded_beside() -> None:
    script = (
        "import tritonclient.grpc.service_pb2 as theirs; "
        "import weft.serve.server.protocols.inference_pb2 as ours; "
        "print(ours.ModelInferRequest is not theirs.ModelInferRequest)"
    )
    for order in (script, "import weft.serve.server.protocols.inference_pb2; " + script):
        done = subprocess.run(
            [sys.executable, "-c", order], capture_output=True, text=True, timeout=120, check=True
        )
        assert done.stdout.strip() == "True"


def test_messages_are_the_protocols_on_the_wire() -> None:
    """Bytes that Triton's own compiled messages write are read, and the other way round."""
    from tritonclient.grpc import model_config_pb2, service_pb2

    from weft.serve.server.protocols import inference_pb2

    theirs = service_pb2.DESCRIPTOR.pool
    for name, message in inference_pb2.DESCRIPTOR.message_types_by_name.items():
        known = theirs.FindMessageTypeByName(f"inference.{name}")
        for field in message.fields:
            other = known.fields_by_name[field.name]
            assert (field.number, field.type, field.is_repeated) == (
                other.number,
                other.type,
                other.is_repeated,
            )
    types = inference_pb2.DataType.items()
    assert dict(types) == dict(model_config_pb2.DataType.items())
