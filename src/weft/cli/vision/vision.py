"""`weft vision`: from a folder of pictures to a deployed model. A verb's module is imported only when it is called."""

from __future__ import annotations

from importlib import import_module

import click

# verb: (module, what --help says of it)
VISION_VERBS = {
    "data": ("weft.cli.vision.data", "Keep, label, check and convert data sets of pictures."),
    "train": ("weft.cli.vision.train", "Train a model on pictures."),
    "evaluate": ("weft.cli.vision.evaluate", "Judge a trained model on a split of a data set."),
    "predict": ("weft.cli.vision.predict", "Say what is in pictures or a film."),
    "autolabel": ("weft.cli.vision.autolabel", "Label what nobody has, by a model."),
    "deploy": ("weft.cli.vision.deploy", "Serve a trained model, here or on a jobs service."),
    "export": ("weft.cli.vision.export", "Write a trained model as ONNX or as a zip."),
    "architectures": (
        "weft.cli.vision.architectures",
        "List the models that can be trained, and IBM's names.",
    ),
}


class VisionVerbs(click.Group):
    """A group that imports a verb when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VISION_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VISION_VERBS:
            return None
        found: click.Command = import_module(VISION_VERBS[cmd_name][0]).command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(verb, text) for verb, (_, text) in VISION_VERBS.items()])


@click.command("vision", cls=VisionVerbs)
def command() -> None:
    """Train detectors and classifiers of pictures, and keep their data."""
