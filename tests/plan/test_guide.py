"""The commands of the guide run, and its plots are there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from octavo.cli.main import main

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
TEXT = (DOCS / "what-your-kv-cache-costs.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.replace("\\\n", " ").splitlines()]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_runs(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(command)
    assert words[:2] == ["octavo", "plan"]
    with pytest.raises(SystemExit) as caught:
        main(words[1:])
    assert caught.value.code == 0
    assert capsys.readouterr().out


def test_its_plots_are_there() -> None:
    plots = re.findall(r"\]\((plots/[^)]+)\)", TEXT)
    assert len(plots) == 3
    assert all((DOCS / plot).is_file() for plot in plots)
