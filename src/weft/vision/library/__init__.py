"""The library: data sets of pictures and films in a folder, with their labels, versions and background work."""

from weft.vision.library.changing import ClassEntry
from weft.vision.library.files import FileFilter
from weft.vision.library.importing import ImportResult
from weft.vision.library.library import Library, default_library

__all__ = ["ClassEntry", "FileFilter", "ImportResult", "Library", "default_library"]
