"""The Python of the documents runs as it is printed."""

import json
import re

import pytest
from conftest import SOURCE

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = {
    str(path.relative_to(SOURCE)): found
    for path in (SOURCE / "README.md", *sorted((SOURCE / "docs").rglob("*.md")))
    if (found := BLOCK.findall(path.read_text()))
}


def run(document: str, block: str) -> None:
    exec(compile(block, document, "exec"), {})


@pytest.mark.parametrize("document", BLOCKS)
def test_blocks_run(document):
    for block in BLOCKS[document]:
        run(document, block)


def test_new_users_find_entmax():
    for document in ("README.md", "docs/methods/entmax.md"):
        assert any("hedgerow.ops.entmax_attention(" in block for block in BLOCKS[document])


def test_alphas_are_learned(capsys):
    document = "docs/methods/entmax.md"
    (block,) = (block for block in BLOCKS[document] if "AdamW" in block)
    run(document, block)
    lines = [line.split(" ", 2) for line in capsys.readouterr().out.splitlines()]
    steps, losses = [int(line[0]) for line in lines], [float(line[1]) for line in lines]
    first, last = json.loads(lines[0][2]), json.loads(lines[-1][2])
    assert steps[0] == 0 and steps[-1] == 199
    assert losses[-1] < losses[0] / 3
    assert first == [1.5, 1.5]
    assert last[0] > 1.9 and last[1] < 1.1
