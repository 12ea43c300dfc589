"""Help, errors and exit codes; and that help loads nothing heavy."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

import octavo as package
from octavo.core.config import EngineConfig
from octavo.core.errors import (
    ConfigError,
    EngineClosed,
    ModelFileError,
    ModelNotFound,
    OctavoError,
    RequestError,
)
from tests.cli.conftest import FakeLocal, Result

Run = Callable[..., Result]
COMMANDS = ("serve", "chat", "generate", "pull", "info", "plan", "usage", "bench")
# Not pydantic: newer versions of typer check the arguments of a command with it.
HEAVY = ("torch", "numpy", "transformers", "tokenizers", "fastapi", "uvicorn", "rich")


@pytest.mark.parametrize(
    "command",
    [(), ("serve",), ("chat",), ("generate",), ("plan",), ("usage",), ("bench", "latency")],
)
def test_help_loads_nothing_heavy(command: tuple[str, ...]) -> None:
    script = (
        "import sys\n"
        "from octavo.cli.main import main\n"
        f"try: main({[*command, '--help']!r})\n"
        f"finally: print(sorted(set({HEAVY!r}) & set(sys.modules)))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.endswith("[]\n"), done.stdout


def test_help_lists_the_commands(octavo: Run) -> None:
    done = octavo("--help")
    assert done.code == 0
    assert all(f"  {command} " in done.out for command in COMMANDS)
    # The same without any argument, but that is a mistake.
    bare = octavo()
    assert "Usage: octavo" in bare.out + bare.err


def test_version(octavo: Run) -> None:
    assert octavo("--version").out == f"octavo {package.__version__}\n"


@pytest.mark.parametrize("command", ["serve", "chat", "generate", "info"])
def test_every_engine_option_is_a_flag(octavo: Run, command: str) -> None:
    text = octavo(command, "--help").out
    for option in EngineConfig.options():
        if option.name != "model":
            assert f"--{option.name.replace('_', '-')}" in text


def test_only_given_options_reach_the_engine(octavo: Run, engine: FakeLocal) -> None:
    assert octavo("generate", "hi").code == 0
    assert (engine.model, engine.options) == ("smollm2", {})
    octavo("generate", "hi", "--model", "m", "--num-blocks", "9", "--no-enable-prefix-caching")
    assert (engine.model, engine.options) == (
        "m",
        {"num_blocks": 9, "enable_prefix_caching": False},
    )


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("serve", "--port", "70000"), "--port"),
        (("serve", "--nonsense"), "--nonsense"),
        (("generate",), "prompt"),
        (("generate", "hi", "--max-tokens", "many"), "--max-tokens"),
        (("nonsense",), "nonsense"),
    ],
)
def test_wrong_arguments(octavo: Run, arguments: tuple[str, ...], hint: str) -> None:
    done = octavo(*arguments)
    assert done.code == 2
    assert hint in done.err.lower()
    assert "Traceback" not in done.err


def test_wrong_option_values_are_found_before_loading(octavo: Run) -> None:
    done = octavo("serve", "--port", "0", "--block-size", "0")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("octavo: block_size")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RequestError("the prompt is empty"), 2),
        (ConfigError("dtype must be\none of these"), 2),
        (ModelNotFound("no such model"), 2),
        (ModelFileError("damaged"), 2),
        (EngineClosed("the engine has stopped"), 1),
    ],
)
def test_errors_are_one_line(octavo: Run, engine: FakeLocal, error: OctavoError, code: int) -> None:
    engine.refusals = [error]
    done = octavo("generate", "hi")
    assert (done.code, done.out) == (code, "")
    assert done.err == f"octavo: {' '.join(error.message.split())}\n"
    assert engine.closed
