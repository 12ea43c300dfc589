"""`octavo bench` from the command line to its files, on a tiny model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.checkpoints import tiny_llama
from tests.cli.conftest import Result
from tests.server.live import serving, talker

Run = Callable[..., Result]
SMALL = ("--skip-tokenizer-init", "--dtype", "float32", "--threads", "1", "--num-blocks", "256")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("cli_bench")
    tiny_llama(folder)
    return str(folder)


def test_throughput(octavo: Run, model: str, tmp_path: Path) -> None:
    figures_file, page_file = tmp_path / "out.json", tmp_path / "out.html"
    done = octavo(
        *("bench", "throughput", model, *SMALL, "--dataset-name", "prefix_repetition"),
        *("--num-prompts", "4", "--num-prefixes", "2", "--prefix-len", "64", "--suffix-len", "8"),
        *("--output-len", "3", "--json", str(figures_file), "--html", str(page_file)),
    )
    assert done.code == 0, done.err
    assert "saved prefill tokens" in done.out
    record = json.loads(figures_file.read_text())
    assert record["benchmark"] == "octavo bench throughput"
    assert record["settings"]["prefix_len"] == 64
    assert record["settings"]["num_blocks"] == 256
    assert record["figures"]["input_tokens"] == 4 * 72
    assert record["figures"]["output_tokens"] == 4 * 3
    assert record["figures"]["saved_prefill_tokens"] == 2 * 64
    assert "<svg" in page_file.read_text()


def test_latency(octavo: Run, model: str) -> None:
    done = octavo(
        *("bench", "latency", model, *SMALL, "--batch-size", "2", "--input-len", "8"),
        *("--output-len", "3", "--num-iters", "2", "--num-iters-warmup", "0"),
    )
    assert done.code == 0, done.err
    assert all(name in done.out for name in ("P99", "TTFT", "TPOT", "ITL", "E2E"))


def test_ablate(octavo: Run, model: str, tmp_path: Path) -> None:
    figures_file = tmp_path / "out.json"
    done = octavo(
        *("bench", "ablate", model, *SMALL[:-2], "--num-groups", "2", "--prompts-per-group", "4"),
        *("--system-prompt-len", "64", "--question-len", "8", "--output-len", "4"),
        *("--max-num-seqs", "3", "--num-iters", "1", "--json", str(figures_file)),
    )
    assert done.code == 0, done.err
    assert "no prefix cache" in done.out
    settings = json.loads(figures_file.read_text())["settings"]
    assert settings["range_ratio"] == 0.8
    # Two prefixes of 4 blocks, and 3 requests whose rest is at most 15 + 8 tokens.
    assert 8 + 3 <= settings["num_blocks"] <= 8 + 3 * 2


def test_sweep(octavo: Run, model: str, tmp_path: Path) -> None:
    page_file = tmp_path / "out.html"
    done = octavo(
        *("bench", "sweep", model, *SMALL, "--max-num-seqs", "4", "--num-streams", "2"),
        *("--max-num-batched-tokens", "16..32", "--num-prompts", "1", "--input-len", "40"),
        *("--stream-len", "64", "--html", str(page_file)),
    )
    assert done.code == 0, done.err
    assert "tokens a step" in done.out
    assert page_file.read_text().count("<svg") == 2


def test_kernels(octavo: Run, tmp_path: Path) -> None:
    figures_file = tmp_path / "out.json"
    done = octavo(
        *("bench", "kernels", "--ops", "norm,linear", "--formats", "Q4_1", "--rows", "1,2"),
        *("--hidden-size", "256", "--intermediate-size", "256", "--min-seconds", "0"),
        *("--threads", "1", "--json", str(figures_file)),
    )
    if "not built" in done.err:
        pytest.skip(done.err)
    assert done.code == 0, done.err
    assert "of ceiling" in done.out
    ops = json.loads(figures_file.read_text())["figures"]["ops"]
    assert list(ops) == [f"{op}, {n} rows" for op in ("linear Q4_1", "norm") for n in (1, 2)]


def test_serve(octavo: Run, tmp_path: Path) -> None:
    folder, figures_file = tmp_path / "model", tmp_path / "out.json"
    talker(folder)
    with serving(folder) as (engine, url):
        done = octavo(
            *("bench", "serve", "--base-url", url, "--tokenizer", str(folder), "--goodput"),
            *("ttft:1000000", "--request-rate", "300", "--num-prompts", "3"),
            *("--input-len", "9", "--output-len", "4", "--json", str(figures_file)),
        )
        assert done.code == 0, done.err
        assert engine.stats().sequences == 3 + 1  # one to warm up
    record = json.loads(figures_file.read_text())
    assert (record["figures"]["completed"], record["figures"]["output_tokens"]) == (3, 12)
    assert record["settings"]["request_rate"] == "300.0"
    assert "goodput" in done.out


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("latency", "--batch-size", "0"), "batch-size"),
        (("throughput", "--dataset-name", "sharegpt"), "dataset_name"),
        (("throughput", "--prefix-len", "4"), "prefix_len"),
        (("throughput", "--json", "/no/such/folder/x.json"), "cannot be written"),
        (("latency", "--block-size", "0"), "block_size"),
        (("ablate", "--static-batching"), "static_batching"),
        (("sweep", "--max-num-batched-tokens", "8..4"), "max_num_batched_tokens"),
        (("kernels", "--rows", "0"), "rows"),
        (("kernels", "--rows", "1,,2"), "rows"),
        (("kernels", "--formats", "Q9"), "formats"),
        (("serve", "--base-url", "127.0.0.1:8000"), "base_url"),
        (("serve", "--request-rate", "0"), "request_rate"),
        (("serve", "--goodput", "itl:5"), "goodput"),
        (("nonsense",), "nonsense"),
    ],
)
def test_refused_before_anything_is_loaded(
    octavo: Run, arguments: tuple[str, ...], hint: str
) -> None:
    done = octavo("bench", *arguments)
    assert (done.code, done.out) == (2, "")
    assert hint in done.err


def test_a_load_that_cannot_run_has_no_figures(octavo: Run, model: str) -> None:
    done = octavo("bench", "throughput", model, *SMALL, "--input-len", "9999")
    assert (done.code, done.out) == (2, "")
    assert "none of the 32 requests completed: the prompt has 9999 tokens" in done.err
