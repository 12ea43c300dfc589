"""The comparison with other engines: what is counted, and how it is told. Runs no peer."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.peers import run, runner, setup, table, turn
from benchmarks.peers.case import CASES
from benchmarks.peers.entry import ENTRIES, Entry
from benchmarks.peers.timing import Timing
from scripts import reference

SHARED = next(case for case in CASES if case.common_tokens)


class FakeEngine:
    """Takes a second for each first token and a quarter for each later step."""

    def __init__(self) -> None:
        self.loads: list[tuple[list[list[int]], int]] = []

    def version(self) -> str:
        return "9.9"

    def generate(self, prompts: list[list[int]], out_tokens: int) -> Timing:
        self.loads.append((prompts, out_tokens))
        first = (1.0,) * len(prompts)
        return Timing(seconds=1 + (out_tokens - 1) / 4, first_s=first)


def test_prefill_is_prompt_tokens_over_time_to_first_token() -> None:
    assert Timing(seconds=9.0, first_s=(0.5,)).prefill_rate(1024) == 2048


def test_decode_counts_from_the_last_first_token() -> None:
    together = Timing(seconds=4.0, first_s=(2.0, 2.0))
    assert together.decode_rate(11) == 2 * 10 / 2


def test_decode_leaves_out_what_came_while_others_began() -> None:
    # Request 0 decodes one token in each of the two steps in which the others begin.
    staggered = Timing(seconds=5.0, first_s=(1.0, 2.0, 3.0))
    assert staggered.decode_rate(6) == (3 + 4 + 5) / 2


def test_prompts_are_equal_for_every_engine_and_new_each_time() -> None:
    prompts = SHARED.prompts("0 0")
    assert prompts == SHARED.prompts("0 0")
    assert {len(prompt) for prompt in prompts} == {SHARED.prompt_tokens}
    heads = {tuple(prompt[: SHARED.common_tokens]) for prompt in prompts}
    assert len(heads) == 1
    assert len({tuple(prompt) for prompt in prompts}) == SHARED.n_requests
    assert heads.isdisjoint(tuple(p[: SHARED.common_tokens]) for p in SHARED.prompts("1 0"))


def test_a_runner_tells_every_figure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = FakeEngine()
    module = SimpleNamespace(load=lambda model, threads: engine)
    monkeypatch.setitem(sys.modules, "benchmarks.peers.fake_engine", module)
    monkeypatch.setattr(sys, "argv", ["runner", "fake_engine", "model", "2", "0"])
    runner.main()
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert told[0] == {"first_token": "9.9"}
    names = [line["case"] for line in told[1:]]
    assert names == [c.name for c in CASES for _ in range(c.repeats)] + ["peak_memory"]
    values = {line["case"]: line["value"] for line in told[1:]}
    assert values["prefill_1024"] == 1024
    assert values["decode_8"] == 8 * 4
    assert values["shared_prefix"] == 1 + (SHARED.out_tokens - 1) / 4


def test_the_common_prefix_is_cached_before_the_clock_starts() -> None:
    engine = FakeEngine()
    prompts = runner.prompts_of(SHARED, "0 0", engine)
    ((warm_up,),) = [load for load, _ in engine.loads]
    assert warm_up[: SHARED.common_tokens] == prompts[0][: SHARED.common_tokens]
    assert len(warm_up) == SHARED.prompt_tokens
    assert warm_up not in prompts


def test_an_engine_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_PEERS", str(tmp_path))
    entry = Entry(
        engine="Octavo", weights="none", adapter="octavo_engine", environment="", model="no.gguf"
    )
    with pytest.raises(SystemExit, match="Octavo none ended with 1"):
        turn.take(entry, 0, 2)


def test_every_engine_goes_first_in_turn() -> None:
    orders = [run.order(list(ENTRIES), n) for n in range(len(ENTRIES))]
    assert {order[0].title for order in orders} == {entry.title for entry in ENTRIES}
    assert all(len(set(order)) == len(ENTRIES) for order in orders)


def test_figures_are_medians_over_all_rounds() -> None:
    turns = [turn.Turn("1", {"decode_1": [1.0, 9.0]}), turn.Turn("1", {"decode_1": [2.0]})]
    told = run.figures({"Octavo Q4_1": turns})
    assert told == {
        "Octavo Q4_1": {"version": "1", "decode_1": {"median": 2, "least": 1, "greatest": 9}}
    }


def results(**medians: float) -> dict[str, Any]:
    """Results in which an entry has the same median in every row."""
    engines = {
        title: {"version": "1", **{row.name: {"median": value} for row in table.ROWS}}
        for title, value in medians.items()
    }
    run_of = {"rounds": 3, "threads": 2, "load before": 0.1}
    return {**run_of, "left out": {"vllm": "it was not run"}, "engines": engines}


def test_the_short_table_takes_each_engine_at_its_best() -> None:
    figures = results(
        **{
            "Octavo Q4_1": 40.0,
            "llama.cpp Q4_1": 20.0,
            "llama.cpp Q4_0": 80.0,
            "OpenVINO int8": 50.0,
        }
    )
    head, _, *lines = table.short(figures).splitlines()
    assert head == "|  | Octavo | llama.cpp | OpenVINO | Octavo to the best peer |"
    rates = next(line for line in lines if "decode ×8" in line)
    assert rates.endswith("| 40.0 | **80.0** | 50.0 | 0.50× |")
    seconds = next(line for line in lines if "shared prefix" in line)
    assert seconds.endswith("| 40.0 | **20.0** | 50.0 | 0.50× |")


def test_the_full_table_says_who_is_left_out_and_why() -> None:
    text = table.full(results(**{"Octavo Q4_1": 1.0, "OpenVINO fp16": 2.0}))
    assert "vllm is left out: it was not run." in text
    assert text.count("**2.00**") == sum(row.more_is_better for row in table.ROWS)


def test_a_wheel_is_installed_with_what_it_asks_for_less_what_it_runs_without(
    tmp_path: Path,
) -> None:
    wheel = tmp_path / "peer-1-py3-none-any.whl"
    asked = ["torch==2; platform_machine == 'x'", "torchvision", "numpy", 'scipy; extra == "audio"']
    asked += ["fastapi[standard]<0.137,>=0.133", "torch-like>=1"]
    lines = ["Name: peer", *(f"Requires-Dist: {requirement}" for requirement in asked)]
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("peer-1.dist-info/METADATA", "\n".join(lines))
    kept = setup.requirements(wheel)
    assert kept == ["numpy", "fastapi[standard]<0.137,>=0.133", "torch-like>=1"]


def test_the_readme_takes_its_table_from_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{reference.PEERS_MARK}\nold\n{reference.PEERS_END}\nafter\n")
    monkeypatch.setattr(reference, "README", readme)
    monkeypatch.setattr(reference, "RESULTS", tmp_path)
    assert "no results" in reference.readme_page()
    figures = results(**{"Octavo Q4_1": 1.0, "vLLM bf16": 2.0})
    (tmp_path / "peers.json").write_text(json.dumps({"figures": figures}))
    page = reference.readme_page()
    assert table.short(figures) in page
    assert page.startswith("before\n")
    assert page.endswith("after\n")
    assert "old" not in page
    readme.write_text(page)
    assert reference.readme_page() == page
