"""Models kept in a folder: names, versions, aliases, checksums; plain files that any tool can read.

`catalogue.py` decides what is in a name's catalogue; `folder.py` carries it out on disk, with `copying.py`. None of it
needs torch or onnx.
"""

from weft.serve.store.catalogue import LATEST, StoredFile, VersionRecord
from weft.serve.store.entry import Entry, default_store
from weft.serve.store.folder import Store

__all__ = ["LATEST", "Entry", "Store", "StoredFile", "VersionRecord", "default_store"]
