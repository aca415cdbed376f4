"""Plain labels: folders of classes, tables and masks, and files of other labelling programs, which are only read."""
