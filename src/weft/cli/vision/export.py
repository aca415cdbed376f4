"""`weft vision export`: a trained model as one ONNX file, or as a zip."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import click

from weft.cli.paths import ExistingFolder, OutputFile
from weft.errors import UsageError


@click.command("export")
@click.argument("model", type=ExistingFolder())
@click.option("-o", "--out", type=OutputFile(), required=True, help="A file that ends in .onnx or .zip.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as data.")
def command(model: Path, out: Path, as_json: bool) -> None:
    """Write MODEL, a folder of `weft vision train`, as ONNX with its pre-processing inside, or as a zip.

    `weft serve FILE.onnx` then answers /classify_upload or /detect_upload with JPEGs and PNGs.
    """
    from weft.vision.export.ibm import write_zip
    from weft.vision.inference.predictor import load_network, read_folder

    if out.suffix == ".zip":
        write_zip(model, out)
    elif out.suffix == ".onnx":
        if (model / "model.onnx").is_file():
            shutil.copyfile(model / "model.onnx", out)
        else:
            from weft.vision.export.onnx import export_onnx

            folder = read_folder(model)
            export_onnx(load_network(folder, "cpu")[0].model, folder.config, folder.classes, out)
    else:
        raise UsageError(f"--out must end in .onnx or .zip, got {out}; name another file")
    size = out.stat().st_size
    click.echo(json.dumps({"file": str(out), "bytes": size}) if as_json else f"{out}: {size:,} bytes")
