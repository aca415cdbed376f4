"""Formats of labelled pictures: class folders, COCO, YOLO, Pascal VOC and the zip of IBM's PowerAI Vision.

What LabelMe, CVAT, Label Studio, VIA and Create ML write, tables of labels, and masks as pictures are
read alone (`plain`).

    version = read("cells.zip")                 any of them, by what is in it; a folder, a file or a zip
    write(version, "cells-coco.zip", "coco")

Writing and reading again gives the same version: what a format has no words for goes into fields that other
programs pass over, or into `weft.json` beside it.
"""

from weft.vision.formats.reading import read, scan
from weft.vision.formats.writing import FORMATS, write

__all__ = ["FORMATS", "read", "scan", "write"]
