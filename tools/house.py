"""Counts what makes a package hard to find one's way in, and names the offenders.

    python tools/house.py             a table: what, how many, how many at most
    python tools/house.py --verbose   and every offender, file by file
    python tools/house.py --json      the same as data

`tests/test_house.py` keeps the counts within their bounds.
"""

from __future__ import annotations

import ast
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "weft"
GENERATED = ("_pb2", "_pb2_grpc")  # stems of the modules that tools/proto.py makes
MUTATORS = frozenset(
    [
        "add",
        "append",
        "clear",
        "discard",
        "extend",
        "insert",
        "pop",
        "popitem",
        "popleft",
        "remove",
        "setdefault",
        "update",
        "appendleft",
    ]
)
CONTAINERS = frozenset(
    [
        "dict",
        "list",
        "set",
        "defaultdict",
        "deque",
        "OrderedDict",
        "Counter",
        "WeakKeyDictionary",
        "WeakValueDictionary",
        "WeakSet",
    ]
)
# Places that may write to os.environ, each with its reason.
MAY_WRITE_ENVIRONMENT = {
    "weft.compat.horovod.engine.place": "scripts of Horovod read HOROVOD_RANK and its kin, which its library sets",
    "weft.elastic.worker.group": "scripts and torch read RANK and WORLD_SIZE, which change with the view",
}
# Containers and names of modules that functions change, each with its reason.
MAY_CHANGE = {
    "weft.context._context": "a process is in one world, as torch.distributed has it",
    "weft.reporting.steps._clock": "torch has one list of hooks of optimizers, and this stands in it once",
    "weft.tune.study.journal._OPEN": "two studies of one process share the lock of a folder",
}
OPENINGS = frozenset(
    ["what", "which", "how", "who", "whose", "where", "whether", "when", "why", "that", "those"]
)


@dataclass(frozen=True)
class Module:
    """One file of the package, parsed."""

    name: str
    path: Path
    tree: ast.Module
    nodes: tuple[ast.AST, ...]  # all of the tree: walking it takes longer than looking

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"


@dataclass(frozen=True)
class Count:
    """One figure of the house: its offenders, how large it is, and how large it may be."""

    what: str
    figure: int
    bound: int
    offenders: tuple[str, ...]


def modules(package: Path = PACKAGE) -> dict[str, Module]:
    """Return every module below a package by its dotted name, but for those that a compiler wrote."""
    found = {}
    written = (path for path in package.rglob("*.py") if not path.stem.endswith(GENERATED))
    for path in sorted(written):
        parts = (package.name, *path.relative_to(package).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        tree = ast.parse(path.read_text())
        found[name] = Module(name, path, tree, tuple(ast.walk(tree)))
    return found


def files_in_a_folder(found: dict[str, Module], bound: int) -> Count:
    """Count the Python files of the fullest folder."""
    folders: dict[str, int] = defaultdict(int)
    for module in found.values():
        folders[str(module.path.parent.relative_to(PACKAGE.parent))] += 1
    most = sorted(folders.items(), key=lambda item: -item[1])
    offenders = tuple(f"{folder}: {files} files" for folder, files in most if files > bound)
    return Count("most files in one folder", most[0][1], bound, offenders)


def repeated_class_names(found: dict[str, Module], bound: int) -> Count:
    """Count the class names that several files define."""
    homes: dict[str, list[str]] = defaultdict(list)
    for module in found.values():
        for name in sorted({node.name for node in module.nodes if isinstance(node, ast.ClassDef)}):
            homes[name].append(module.name)
    repeated = {name: where for name, where in homes.items() if len(where) > 1}
    offenders = tuple(f"{name}: {', '.join(where)}" for name, where in sorted(repeated.items()))
    return Count("class names defined in several files", len(repeated), bound, offenders)


def largest_import_cycle(found: dict[str, Module], bound: int) -> Count:
    """Count the modules of the largest import cycle; imports in functions and under TYPE_CHECKING count."""
    edges = {name: sorted(set(_imported(module, found))) for name, module in found.items()}
    cycles = [ring for ring in _components(edges) if len(ring) > 1]
    largest = max(map(len, cycles), default=0)
    return Count("largest import cycle", largest, bound, tuple(" <-> ".join(sorted(ring)) for ring in cycles))


def _imported(module: Module, found: dict[str, Module]) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in found)
        elif isinstance(node, ast.ImportFrom) and node.module in found:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in found else node.module for name in inner)


def _components(edges: dict[str, list[str]]) -> list[list[str]]:
    """Return the strongly connected components of a graph, by Kosaraju's two passes."""
    order: list[str] = []
    seen: set[str] = set()
    for start in edges:
        _visit(start, edges, seen, order.append)
    backwards: dict[str, list[str]] = {name: [] for name in edges}
    for name, targets in edges.items():
        for target in targets:
            backwards[target].append(name)
    seen = set()
    components = []
    for start in reversed(order):
        component: list[str] = []
        _visit(start, backwards, seen, component.append)
        if component:
            components.append(component)
    return components


def _visit(start: str, edges: dict[str, list[str]], seen: set[str], done: Callable[[str], None]) -> None:
    """Walk a graph depth first from one node, and call `done` for each node once all behind it are done."""
    stack = [(start, iter(edges[start]))] if start not in seen else []
    seen.add(start)
    while stack:
        name, targets = stack[-1]
        following = next((target for target in targets if target not in seen), None)
        if following is None:
            done(name)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(edges[following])))


def mutable_module_state(found: dict[str, Module], bound: int) -> Count:
    """Count the module-level containers that functions change, and the names that `global` rebinds."""
    offenders = []
    for module in found.values():
        for name in sorted(_containers(module.tree) & _changed(module) | _rebound(module)):
            offenders.append(f"{module.name}.{name}")
    return Count("mutable module state", len(offenders), bound, tuple(offenders))


def _containers(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in tree.body:
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, ast.AnnAssign)
            else []
        )
        if targets and _is_container(getattr(node, "value", None)):
            names.update(target.id for target in targets if isinstance(target, ast.Name))
    return names


def _is_container(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Call):
        called = value.func.value if isinstance(value.func, ast.Subscript) else value.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        return name in CONTAINERS
    return isinstance(value, (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp))


def _changed(module: Module) -> set[str]:
    """Return the names whose items are set, deleted or changed by a method, anywhere in a module."""
    names = set()
    for node in module.nodes:
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, (ast.Store, ast.Del)):
            names.add(getattr(node.value, "id", ""))
        elif (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS
        ):
            names.add(getattr(node.func.value, "id", ""))
        elif isinstance(node, ast.AugAssign):
            names.add(getattr(node.target, "id", ""))
    return names


def _rebound(module: Module) -> set[str]:
    return {name for node in module.nodes if isinstance(node, ast.Global) for name in node.names}


def environment_writes(found: dict[str, Module], bound: int) -> Count:
    """Count the places that write to os.environ, and the functions that may write to an `environ` they are given."""
    offenders = []
    for module in found.values():
        for node in module.nodes:
            if _writes_environment(node) or _takes_environment(node):
                offenders.append(f"{module.name}:{node.lineno}")
    return Count("writes to os.environ", len(offenders), bound, tuple(offenders))


def _writes_environment(node: ast.AST) -> TypeGuard[ast.expr]:
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, (ast.Store, ast.Del)):
        return _dotted(node.value) == "os.environ"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        changes = _dotted(node.func.value) == "os.environ" and node.func.attr in MUTATORS
        return changes or _dotted(node.func) in ("os.putenv", "os.unsetenv")
    return False


def _takes_environment(node: ast.AST) -> TypeGuard[ast.arg]:
    return (
        isinstance(node, ast.arg)
        and node.arg == "environ"
        and node.annotation is not None
        and ast.unparse(node.annotation).startswith("MutableMapping")
    )


def _dotted(node: ast.expr) -> str:
    """Return an attribute of a name as it is written; of anything else nothing."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return ""


def private_torch(found: dict[str, Module], bound: int) -> Count:
    """Count the uses of private names of torch outside the file `torch_private.py` that each package has for them."""
    offenders = []
    for module in found.values():
        if module.path.stem != "torch_private":
            offenders += [f"{module.name}:{name}" for node in module.nodes for name in _private_names(node)]
    return Count("private names of torch at large", len(offenders), bound, tuple(offenders))


def _private_names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    elif isinstance(node, ast.Attribute) and ast.unparse(node).startswith(("torch.", "dist.")):
        names = [ast.unparse(node)]
    else:
        return
    for name in names:
        last = name.split(".")[-1] if isinstance(node, ast.Attribute) else name
        if any(part.startswith("_") and not part.startswith("__") for part in last.split(".")):
            yield name


def docstrings_without_subject(found: dict[str, Module], bound: int) -> Count:
    """Count the modules and public classes whose docstring is missing or opens with a question word."""
    offenders = []
    for module in found.values():
        named: list[tuple[str, ast.Module | ast.ClassDef]] = [(module.name, module.tree)]
        classes = (node for node in module.tree.body if isinstance(node, ast.ClassDef))
        named += [(f"{module.name}.{node.name}", node) for node in classes if not node.name.startswith("_")]
        for name, node in named:
            words = (ast.get_docstring(node) or "").split()
            if not words or words[0].lower().strip(",:;") in OPENINGS:
                offenders.append(f"{name}: {' '.join(words[:12])}")
    return Count("docstrings that do not name their subject", len(offenders), bound, tuple(offenders))


def counts() -> list[Count]:
    """Return all figures of the house, each with its bound."""
    found = modules()
    return [
        files_in_a_folder(found, 15),
        repeated_class_names(found, 2),
        largest_import_cycle(found, 0),
        mutable_module_state(found, len(MAY_CHANGE)),
        environment_writes(found, len(MAY_WRITE_ENVIRONMENT)),
        private_torch(found, 0),
        docstrings_without_subject(found, 0),
    ]


def main() -> None:
    figures = counts()
    if "--json" in sys.argv:
        print(json.dumps([vars(count) for count in figures], indent=2))
        return
    for count in figures:
        print(f"{count.what:42} {count.figure:4}   at most {count.bound}")
        if "--verbose" in sys.argv:
            print("".join(f"    {offender}\n" for offender in count.offenders), end="")


if __name__ == "__main__":
    main()
