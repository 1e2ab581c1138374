"""ops.py gathers its functions from the package's modules; ops.pyi, docstrings and schemas agree with them."""

import ast
import inspect

import pytest
import torch
from conftest import SOURCE
from hedgerow import ops

PACKAGE = SOURCE / "python" / "hedgerow"


def _signatures(path) -> dict[str, tuple[str, str]]:
    """Arguments and result of every function of a file, as text."""
    return {
        node.name: (ast.unparse(node.args), ast.unparse(node.returns))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
    }


def _imported() -> dict[str, str]:
    """Module of every name that ops.py imports from the package."""
    tree = ast.parse((PACKAGE / "ops.py").read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.level == 1]
    return {alias.name: node.module for node in imports for alias in node.names}


STUBS = _signatures(PACKAGE / "ops.pyi")


def test_the_same_functions():
    assert sorted(STUBS) == sorted(_imported()) == ops.__all__


@pytest.mark.parametrize("name", ops.__all__)
def test_stub_is_the_function(name):
    assert STUBS[name] == _signatures(PACKAGE / f"{_imported()[name]}.py")[name]


@pytest.mark.parametrize("name", ops.__all__)
def test_arguments_are_those_of_the_schema(name):
    schema = getattr(torch.ops.hedgerow, name).default._schema
    function = getattr(ops, name)
    assert [a.name for a in schema.arguments] == list(inspect.signature(function).parameters)
    assert inspect.getdoc(function)
