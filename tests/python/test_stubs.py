"""ops.pyi says of every function what ops.py does."""

import ast

import pytest
from conftest import SOURCE


def functions(name):
    tree = ast.parse((SOURCE / "python" / "hedgerow" / name).read_text())
    return {
        node.name: node.args
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    }


CODE, STUBS = functions("ops.py"), functions("ops.pyi")


def parameters(arguments: ast.arguments):
    """(name, kind, has a default) in order."""
    plain = arguments.posonlyargs + arguments.args
    first = len(plain) - len(arguments.defaults)
    found = [(a.arg, "plain", i >= first) for i, a in enumerate(plain)]
    found += [
        (a.arg, "keyword", default is not None)
        for a, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    return found


def test_the_same_functions():
    assert CODE.keys() == STUBS.keys() and len(CODE) > 10


@pytest.mark.parametrize("name", sorted(CODE.keys() & STUBS.keys()))
def test_the_same_parameters(name):
    assert parameters(CODE[name]) == parameters(STUBS[name])


def test_exported():
    tree = ast.parse((SOURCE / "python" / "hedgerow" / "ops.py").read_text())
    exported = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
    )
    assert set(CODE) <= set(exported)
