"""Every test that docs/known-bugs.md names is there: a renamed one would leave a bug unguarded."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROWS = [
    line.split(" | ")
    for line in (ROOT / "docs/known-bugs.md").read_text(encoding="utf-8").splitlines()
    if re.match(r"\| [0-9]+ \|", line)
]
NODE = re.compile(r"`(tests/[^`]+)::([^`]+)`")


@cache
def names(file: str) -> frozenset[str]:
    """Tests at the top level of a file: functions, and names that a state machine is bound to."""
    found: set[str] = set()
    for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            targets = [each.id for each in node.targets if isinstance(each, ast.Name)]
            found.update(name for name in targets if name.startswith("Test"))
    return frozenset(found)


def test_every_named_test_exists() -> None:
    nodes = [node for row in ROWS for node in NODE.findall(row[-1])]
    assert len(nodes) > 50
    missing = [f"{file}::{name}" for file, name in nodes if name not in names(file)]
    assert missing == []


def test_every_row_names_a_test_or_says_why_it_has_none() -> None:
    assert len(ROWS) == len({row[0] for row in ROWS})
    for row in ROWS:
        assert len(row) == 4, row[0]
        assert NODE.search(row[-1]) or "Out of scope today" in row[-1], row[0]
