"""Report the size of files and functions, and fail on those far over the limits of CONTRIBUTING.

Limits: a file about 300 lines and 400 at most, a function about 40 lines and 60 at most.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60


def main() -> int:
    files: list[tuple[int, str]] = []
    functions: list[tuple[int, str]] = []
    for path in sorted((ROOT / "octavo").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        name = str(path.relative_to(ROOT))
        files.append((source.count("\n"), name))
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
                size = node.end_lineno - node.lineno + 1
                functions.append((size, f"{name}:{node.lineno} {node.name}"))
    total = sum(lines for lines, _ in files)
    median = sorted(lines for lines, _ in functions)[len(functions) // 2]
    print(f"octavo: {len(files)} files, {total} lines, median function {median} lines")
    for lines, name in sorted(files, reverse=True)[:3] + sorted(functions, reverse=True)[:3]:
        print(f"  {lines:4} {name}")
    too_long = [f for f in files if f[0] > MAX_FILE_LINES]
    too_long += [f for f in functions if f[0] > MAX_FUNCTION_LINES]
    for lines, name in too_long:
        print(f"too long: {name} has {lines} lines", file=sys.stderr)
    return 1 if too_long else 0


if __name__ == "__main__":
    sys.exit(main())
