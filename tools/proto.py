"""Compiles the server's `.proto` into the Python modules beside it.

    python tools/proto.py            write the modules
    python tools/proto.py --check    exit 1 and name the modules that the `.proto` no longer matches

The modules are committed, so that an install, editable or not, needs no compiler; `test_proto.py` keeps
them up to date. The version of grpcio-tools is pinned in pyproject.toml, since it decides the output and the oldest
protobuf and grpcio that can load it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc_tools.protoc

SOURCES = Path(__file__).resolve().parent.parent / "src"
PROTO = "weft/serve/server/protocols/inference.proto"

# The messages get a descriptor pool of their own. In the default pool, their names would clash with those of any other
# compiled copy of the protocol in the same process, such as the one in tritonclient.
_DEFAULT_POOL = "_descriptor_pool.Default()"
_OWN_POOL = "_descriptor_pool.DescriptorPool()"


def compiled() -> dict[Path, str]:
    """Return the text of each module that the `.proto` compiles to, by the module's path."""
    with TemporaryDirectory() as folder:
        outputs = [f"--{kind}_out={folder}" for kind in ("python", "pyi", "grpc_python")]
        if grpc_tools.protoc.main(["protoc", f"-I{SOURCES}", *outputs, PROTO]):
            raise SystemExit(1)
        made = sorted(Path(folder).rglob("*_pb2*"))
        return {SOURCES / path.relative_to(folder): _with_own_pool(path.read_text()) for path in made}


def _with_own_pool(text: str) -> str:
    return text.replace(_DEFAULT_POOL, _OWN_POOL)


def stale(modules: dict[Path, str]) -> list[Path]:
    """Return the modules whose file differs from what the `.proto` compiles to."""
    return [path for path, text in modules.items() if not path.exists() or path.read_text() != text]


def main() -> None:
    modules = compiled()
    if "--check" in sys.argv:
        if found := stale(modules):
            raise SystemExit(f"{', '.join(path.name for path in found)} must match {PROTO}; run `make proto`")
        return
    for path, text in modules.items():
        path.write_text(text)


if __name__ == "__main__":
    main()
