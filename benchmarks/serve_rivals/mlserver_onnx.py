"""A custom runtime for MLServer: ONNX Runtime behind its own codecs, as its documentation shows."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class OnnxModel(MLModel):  # type: ignore[misc]
    """One ONNX file."""

    async def load(self) -> bool:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        path = self._settings.parameters.uri
        self._session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        feeds: dict[str, Any] = {
            given.name: NumpyCodec.decode_input(given).astype(np.float32) for given in payload.inputs
        }
        results = self._session.run(None, feeds)
        outputs = [
            NumpyCodec.encode_output(name=node.name, payload=result)
            for node, result in zip(self._session.get_outputs(), results, strict=True)
        ]
        return InferenceResponse(model_name=self.name, model_version=self.version, outputs=outputs)
