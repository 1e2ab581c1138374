#!/usr/bin/env python3
"""Enforce the table of layers: arrows point down only.

    check_layers.py [ROOT]

A folder may include itself, what its row lists, and what those list in turn. Beyond that:
torch-free folders include no torch header; fmt and spdlog appear in .cc files of torch-free folders
only (torch ships an fmt of its own); every include of the project's names an existing file; the
files form no cycle. One line per fault; exit status 1 if there is any.
"""

from __future__ import annotations

import pathlib
import posixpath
import re
import sys
from typing import NamedTuple

# folder: what its row lists. "torch" stands for torch's headers.
LAYERS: dict[str, tuple[str, ...]] = {
    "include/hedgerow/kernels": (),
    "include/hedgerow": ("include/hedgerow/kernels", "torch"),
    "src/base": ("include/hedgerow/kernels",),
    "src/kernels": ("src/base",),
    "src/formats": ("src/base",),
    "src/tokenizers": ("src/formats",),
    "src/metrics": ("src/base",),
    "src/report": ("src/formats",),
    "src/ops": ("src/kernels", "torch"),
    "src/nn": ("src/ops",),
    "src/io": ("src/formats", "torch"),
    "src/models": ("src/nn", "src/io"),
    "src/data": ("src/tokenizers", "torch"),
    "src/analysis": ("src/models", "src/data", "src/metrics"),
    "src/train": ("src/models", "src/data", "src/metrics"),
    "src/eval": ("src/models", "src/data", "src/metrics"),
    "src/generate": ("src/models", "src/data", "src/metrics"),
    "src/convert": ("src/train", "src/eval", "src/analysis"),
    "src/cli": ("src/convert", "src/generate", "src/report"),
}
# Files of include/hedgerow without torch, which the layers below the torch line may include too.
TORCH_FREE_CONTRACT = ("include/hedgerow/error.h", "include/hedgerow/version.h")
# Outside the layers: tests, benchmarks and what they share.
FREE = ("testing", "tests", "bench", "examples", "cmake")

TORCH_HEADER = re.compile(r"(torch|ATen|c10|caffe2)/")
TEXT_HEADER = re.compile(r"(fmt|spdlog)/")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SOURCES = (".h", ".hpp", ".cc", ".cpp")


class Include(NamedTuple):
    line: int
    name: str


def layer_of(path: str) -> str | None:
    """The row that a file belongs to, None for a file outside the layers."""
    best = None
    for layer in LAYERS:
        if path.startswith(layer + "/") and (best is None or len(layer) > len(best)):
            best = layer
    return best


def reachable(layer: str) -> set[str]:
    """The layer, what its row lists, and what those list in turn."""
    found = {layer}
    todo = [layer]
    while todo:
        for other in LAYERS.get(todo.pop(), ()):
            if other not in found:
                found.add(other)
                todo.append(other)
    return found


def includes_of(path: pathlib.Path) -> list[Include]:
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            found.append(Include(number, match[2]))
    return found


def resolve(root: pathlib.Path, path: str, name: str) -> str | None:
    """The project's file that an include names: rooted at include/, src/ or the project."""
    for folder in ("include", "src", "", posixpath.dirname(path)):
        target = posixpath.normpath(posixpath.join(folder, name))
        if not target.startswith("..") and (root / target).is_file():
            return target
    return None


def is_project_name(root: pathlib.Path, name: str) -> bool:
    """Whether an include that names no file looks like one of the project's."""
    first = name.partition("/")[0]
    folders = {pathlib.PurePosixPath(layer).name for layer in LAYERS} | {"hedgerow", "testing"}
    return (
        "/" in name
        and first in folders
        and ((root / "src" / first).is_dir() or first == "hedgerow")
    )


def check_file(root: pathlib.Path, path: str, includes: list[Include]) -> list[str]:
    layer = layer_of(path)
    if layer is None:
        if path == "src/library.cc" or path.split("/", 1)[0] in FREE:
            return []
        return [f"{path}:1: belongs to no layer of the table; see tools/check_layers.py"]
    allowed = reachable(layer)
    is_test = re.search(r"_(test|bench|fuzz|main|case|cases)\.(cc|h)$", path) is not None
    faults = []

    def fault(include: Include, text: str) -> None:
        faults.append(f"{path}:{include.line}: {text} ({include.name})")

    for include in includes:
        target = resolve(root, path, include.name)
        if target is None:
            if TORCH_HEADER.match(include.name) and (
                "torch" not in allowed or path in TORCH_FREE_CONTRACT
            ):
                fault(include, f"{layer} is torch-free and includes a torch header")
            elif TEXT_HEADER.match(include.name) and (
                "torch" in allowed or not path.endswith(".cc")
            ):
                fault(include, "fmt and spdlog are for .cc files of torch-free folders only")
            elif is_project_name(root, include.name):
                fault(include, "no such file")
            continue
        other = layer_of(target)
        if other is None:
            if target.startswith("testing/") and not is_test:
                fault(include, "only tests, cases, benchmarks and fuzzers include testing/")
        elif target in TORCH_FREE_CONTRACT:
            continue
        elif other == "include/hedgerow":
            if "torch" not in allowed:
                fault(include, f"{layer} is torch-free and includes a header of operators")
        elif other not in allowed:
            fault(include, f"{layer} may not include {other}")
    return faults


def find_cycle(graph: dict[str, list[str]]) -> list[str] | None:
    """A cycle of files, first file repeated at the end, or None."""
    state: dict[str, int] = {}
    for start in graph:
        if start in state:
            continue
        trail, stack = [], [(start, iter(graph[start]))]
        state[start] = 1
        trail.append(start)
        while stack:
            _, children = stack[-1]
            for child in children:
                if state.get(child) == 1:
                    return trail[trail.index(child) :] + [child]
                if child in graph and child not in state:
                    state[child] = 1
                    trail.append(child)
                    stack.append((child, iter(graph[child])))
                    break
            else:
                state[trail.pop()] = 2
                stack.pop()
    return None


def check(root: pathlib.Path) -> list[str]:
    """All faults of a source tree."""
    faults: list[str] = []
    graph: dict[str, list[str]] = {}
    for folder in ("include", "src", "testing", "tests", "bench"):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in SOURCES or not file.is_file():
                continue
            path = file.relative_to(root).as_posix()
            includes = includes_of(file)
            faults += check_file(root, path, includes)
            # A file of Highway's per-target code includes itself; that is no cycle.
            targets = [resolve(root, path, include.name) for include in includes]
            graph[path] = [target for target in targets if target is not None and target != path]
    if not graph:
        return [f"{root}: no sources found"]
    cycle = find_cycle(graph)
    if cycle:
        faults.append("cycle of includes: " + " -> ".join(cycle))
    return faults


def main() -> int:
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1]
    faults = check(root)
    for fault in faults:
        print(fault)
    print(f"check_layers: {len(faults)} faults" if faults else "check_layers: fine")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
