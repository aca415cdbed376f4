"""Assistance in labelling: outlines of objects from a box or a point, by GrabCut, a wand, or a model of one's own.

A model is any ONNX file that segments by a prompt. `ModelAssistant` says what its inputs and outputs must be.
"""

from weft.vision.assist.outlines import grabcut, wand
from weft.vision.assist.prompted import ModelAssistant

__all__ = ["ModelAssistant", "grabcut", "wand"]
