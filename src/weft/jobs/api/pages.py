"""The pages of the console: built files, served with the headers that keep other sites and injected scripts out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from starlette.responses import FileResponse, HTMLResponse, Response

from weft.jobs.api.failures import not_found

POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; "
    "frame-ancestors 'none'; form-action 'self'"
)
_TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
    ".map": "application/json",
}
_FOREVER = "public, max-age=31536000, immutable"  # names under assets/ change with their content
_NOT_BUILT = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Weft</title>
<body><h1>Weft runs</h1><p>Its pages are not built in this installation: run <code>make pages</code>.
The command line works: <code>weft jobs</code>, <code>weft submit -- train.py</code>.</p></body></html>"""


class Pages:
    """The folder of built pages; every path that is no file is the console's own to show."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder.resolve() if folder is not None else None

    def answer(self, path: str) -> Response:
        """Return the file of a path, or the page that shows it."""
        name = path.lstrip("/")
        found = self._file(name)
        if found is not None and name != "index.html":
            kind = _TYPES.get(found.suffix, "application/octet-stream")
            kept = _FOREVER if name.startswith("assets/") else "no-cache"
            return FileResponse(found, headers={"cache-control": kept}, media_type=kind)
        if name.startswith("assets/"):
            raise not_found("the file")
        index = self._file("index.html")
        if index is None:
            return HTMLResponse(_NOT_BUILT, headers={"cache-control": "no-cache"})
        return FileResponse(index, headers={"cache-control": "no-cache"}, media_type=_TYPES[".html"])

    def _file(self, name: str) -> Path | None:
        """Return a file of the folder, as it is now: the pages may be built again while the service runs."""
        if self._folder is None or not name or "\0" in name:
            return None
        try:
            found = (self._folder / name).resolve()
            return found if found.is_relative_to(self._folder) and found.is_file() else None
        except (OSError, RuntimeError):  # too long a name, links in a circle
            return None
