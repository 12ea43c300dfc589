"""`octavo plan` from its flags to text, JSON and pages."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from octavo.plan.cards import card_names
from tests.cli.conftest import Result
from tests.families import tiny_family

Run = Callable[..., Result]
LLAMA = {
    "model_type": "llama",
    "hidden_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 1024,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
}


def test_json_has_stable_keys(octavo: Run) -> None:
    done = octavo("plan", "llama-3.1-8b", "--json", "--gpu-price", "3")
    assert done.code == 0, done.err
    record = json.loads(done.out)
    assert record["kv"]["bytes_per_token"] == 131_072
    assert record["kv"]["bytes_per_block"] == 16 * 131_072
    assert record["kv"]["bytes_per_sequence"]["131072"] == 16 << 30
    memory = record["memory"]
    used = sum(memory[f"{name}_bytes"] for name in ("weights", "activation", "non_torch"))
    usable = round(memory["gpu_bytes"] * memory["utilisation"])
    assert memory["kv_room_bytes"] == usable - used
    fits = record["fits"]
    assert [fits[k] for k in ("reserved_max", "reserved_pow2", "paged", "exact")] == [
        *(3, 205, 320, 320)
    ]
    assert record["rates"]["decode_ms_low"] < record["rates"]["decode_ms"]
    assert record["cost"]["gpu_dollars_per_hour"] == 3
    assert record["cost"]["output_dollars_per_million"] > 0
    prices = [one["output_dollars_per_million"] for one in fits["allocators"]]
    assert prices[0] > 20 * prices[-1]  # what the allocator costs


def test_tables_name_their_units_and_cut_nothing(octavo: Run) -> None:
    out = octavo("plan", "llama-3.1-70b", "--gpus", "4").out
    assert "…" not in out
    for text in ("bytes a token", "GiB", "ms a step", "$/M output", "requests"):
        assert text in out


def test_explain_prints_the_numbers(octavo: Run) -> None:
    out = octavo("plan", "llama-3.1-8b", "--explain", "--gpu-price", "3").out
    assert "32 layers · 8 KV heads · 2 · 256 B = 131,072 B a token" in out
    assert "0.9 · 79.18 GiB - 14.96 GiB - 4.80 GiB - 0.13 GiB = 51.37 GiB" in out
    assert "989 TFLOP/s" in out


def test_a_page_needs_nothing_from_outside(octavo: Run, tmp_path: Path) -> None:
    file = tmp_path / "plan.html"
    assert octavo("plan", "gemma-3-27b", "--html", str(file)).code == 0
    html = file.read_text()
    assert html.count("<svg") == 4
    assert not any(word in html for word in ("<script", "<link", "src=", "url(", "@import"))
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "")
    body = html[html.index("<body>") : html.index("</html>")]
    ElementTree.fromstring(body)
    missing = octavo("plan", "gemma-3-27b", "--html", str(tmp_path / "no" / "plan.html"))
    assert missing.code == 2
    assert "cannot be written" in missing.err


def test_each_plot_is_a_file(octavo: Run, tmp_path: Path) -> None:
    assert octavo("plan", "llama-3.1-8b", "--svg", str(tmp_path)).code == 0
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == ["bytes.svg", "decode.svg", "memory.svg", "requests.svg"]
    for file in tmp_path.iterdir():
        ElementTree.fromstring(file.read_text())
    assert octavo("plan", "llama-3.1-8b", "--svg", str(tmp_path / "no")).code == 2


def test_lengths_on_an_axis_are_whole_numbers_side_by_side(octavo: Run, tmp_path: Path) -> None:
    assert octavo("plan", "llama-4-scout", "--svg", str(tmp_path)).code == 0
    root = ElementTree.fromstring((tmp_path / "bytes.svg").read_text())
    texts = [one for one in root.iter() if one.tag.endswith("text")]
    placed = sorted(
        (float(one.attrib["x"]), one.text or "") for one in texts if one.attrib["y"] == "274.0"
    )
    assert placed[-1][1] == "10,485,760"
    assert all(name.replace(",", "").isdigit() for _, name in placed)
    for (left, one), (right, other) in pairwise(placed):
        assert right - left > 3.5 * (len(one) + len(other))


def test_compare(octavo: Run, tmp_path: Path) -> None:
    file = tmp_path / "compare.html"
    names = ("llama-3.1-8b", "qwen3-8b", "deepseek-v4-pro")
    done = octavo("plan", "compare", *names, "--html", str(file))
    assert done.code == 0, done.err
    assert all(name in done.out for name in names)
    assert file.read_text().count("<svg") == 2
    assert "at 1,000" in octavo("plan", "compare", *names, "--context", "1000").out
    record = json.loads(octavo("plan", "compare", *names, "--json").out)
    assert [one["kv"]["bytes_per_token"] for one in record["plans"]][:2] == [131_072, 147_456]
    assert record["plans"][2]["fits"]["paged"] is None  # its weights are not known


def test_what_is_unknown_stays_blank(octavo: Run) -> None:
    record = json.loads(octavo("plan", "llama-3.1-8b", "--gpu", "MI355X", "--json").out)
    assert record["cost"]["gpu_dollars_per_hour"] is None
    assert "no calibration" in record["rates"]["missing"]
    out = octavo("plan", "deepseek-v4-pro").out
    assert "Not shown: the number of weights is not known" in out


def test_odd_demands_are_remarked(octavo: Run) -> None:
    out = octavo("plan", "qwen3-8b", "--context", "131072", "--length", "200000").out
    assert "131,072 is beyond the 40,960 positions" in out
    assert "1 of 1 lengths are beyond the context" in out
    out = octavo("plan", "llama-3.1-8b", "--length", "120000", "--batch", "512").out
    assert "of 512 requests at once; 3 fit" in out


@pytest.mark.parametrize(("flag", "value"), [("--length", "2000000"), ("--batch", "5000")])
def test_beyond_the_calibration_there_are_bytes_and_no_times(
    octavo: Run, flag: str, value: str
) -> None:
    arguments = ("llama-4-scout", "--gpus", "8", "--weights", "int4", flag, value)
    record = json.loads(octavo("plan", *arguments, "--json").out)
    assert record["fits"]["paged"] > 0
    assert "calibrated up to" in record["rates"]["missing"]
    assert "calibrated up to" in octavo("plan", *arguments, "--itl-ms", "20").err


def test_cards_are_listed(octavo: Run) -> None:
    out = octavo("plan", "--cards").out
    assert out.count("\n") == len(card_names())


def test_a_folder_a_config_and_a_header(octavo: Run, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "hf_quant_config.json").write_text(
        json.dumps({"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}})
    )
    (tmp_path / "model.safetensors").write_bytes(bytes(1000))
    folder = json.loads(octavo("plan", str(tmp_path), "--json").out)
    assert folder["kv"]["dtype"] == "fp8"
    assert folder["memory"]["weights_bytes"] == 1000
    config = json.loads(octavo("plan", str(tmp_path / "config.json"), "--json").out)
    assert config["kv"]["dtype"] == "bfloat16"
    assert config["kv"]["bytes_per_token"] == 2 * folder["kv"]["bytes_per_token"] == 2048


def test_of_a_hub_id_only_the_config_is_fetched(
    octavo: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    patterns: list[str] = []

    def snapshot(name: str, **options: Any) -> str:
        assert name == "owner/name"
        patterns.extend(options["allow_patterns"])
        (tmp_path / "config.json").write_text(json.dumps(LLAMA))
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    record = json.loads(octavo("plan", "owner/name", "--json").out)
    assert patterns == ["config.json", "hf_quant_config.json"]
    assert record["model"]["source"] == "hub"
    assert record["kv"]["bytes_per_token"] == 2048


def test_a_checkpoint_that_the_engine_runs(octavo: Run, tmp_path: Path) -> None:
    tiny_family(tmp_path, "llama")
    plan = json.loads(octavo("plan", str(tmp_path), "--kv-cache-dtype", "fp16", "--json").out)
    info = json.loads(octavo("info", str(tmp_path), "--json").out)
    assert plan["kv"]["bytes_per_token"] == info["kv"]["float16"]["bytes_per_token"]
    assert plan["kv"]["bytes_per_block"] == info["kv"]["float16"]["block_bytes"]


def test_lengths_of_a_trace(octavo: Run, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\nx,1000,100\nx,3000,300\n")
    record = json.loads(octavo("plan", "llama-3.1-8b", "--lengths", str(trace), "--json").out)
    assert record["fits"]["mean_length_tokens"] == 2200
    both = octavo("plan", "llama-3.1-8b", "--lengths", str(trace), "--length", "5")
    assert both.code == 2


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ((), "--cards"),
        (("llama-3.1-8b", "qwen3-8b"), "compare"),
        (("compare", "llama-3.1-8b"), "compare"),
        (("compare", "llama-3.1-8b", "qwen3-8b", "--explain"), "--explain"),
        (("llama-3.1-8",), "did you mean llama-3.1-8b"),
        (("llama-3.1-8b", "--gpu", "H1000"), "gpu is"),
        (("llama-3.1-8b", "--memory", "80"), "80GB"),
        (("llama-3.1-8b", "--weights", "int3"), "weights is"),
        (("llama-3.1-8b", "--kv-cache-dtype", "fp3"), "kv_cache_dtype"),
        (("llama-3.1-8b", "--context", "0"), "context"),
        (("llama-3.1-8b", "--gpu", "MI355X", "--itl-ms", "20"), "calibration"),
        (("llama-3.1-8b", "--lengths", "/nonexistent"), "cannot be read"),
    ],
)
def test_mistakes_are_one_line(octavo: Run, arguments: tuple[str, ...], hint: str) -> None:
    done = octavo("plan", *arguments)
    assert (done.code, done.out) == (2, "")
    assert hint in done.err
    assert done.err.count("\n") == 1


def test_planning_loads_no_tensors() -> None:
    script = (
        "import sys\n"
        "from octavo.cli.main import main\n"
        "try: main(['plan', 'llama-3.1-8b', '--json'])\n"
        "finally: print(sorted({'torch', 'numpy', 'transformers'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.endswith("[]\n"), done.stdout[-500:] + done.stderr[-500:]
