"""Evaluation of a model: accuracy, confusion, precision and recall, mAP as COCO counts it, and its worst mistakes."""
