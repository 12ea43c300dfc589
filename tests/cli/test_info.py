"""`octavo info`: geometry and sizes from the files' headers alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from octavo.cli import info as command
from octavo.cli.info import parameters, read_config
from tests.cli.conftest import Result

Run = Callable[..., Result]
LLAMA_70B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
}
GIB = 1 << 30


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder with a config and no weights, on a machine with 400 GiB left."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_70B))
    monkeypatch.setattr(command.machine, "available_bytes", lambda: 400 * GIB)
    return str(tmp_path)


def test_parameters(folder: str) -> None:
    assert parameters(read_config(Path(folder), None)) == 70_553_706_496


def test_json(octavo: Run, folder: str) -> None:
    done = octavo("info", folder, "--json", "--kv-cache-dtype", "bfloat16", "--num-blocks", "100")
    found = json.loads(done.out)
    assert (found["layers"], found["kv_heads"], found["head_dim"]) == (80, 8, 128)
    assert found["available_bytes"] == 400 * GIB
    (kv,) = found["kv"].values()
    assert kv["bytes_per_token"] == 327_680
    assert kv["block_bytes"] == 16 * 327_680
    assert (kv["num_blocks"], kv["tokens"]) == (100, 1600)
    assert kv["groups"] == [
        {
            "kind": "full",
            "window": None,
            "layers": 80,
            "kv_heads": 8,
            "head_dim": 128,
            "bytes_per_token": 327_680,
        }
    ]


def test_what_fits_is_half_of_what_the_weights_leave(octavo: Run, folder: str) -> None:
    done = octavo("info", folder, "--json", "--dtype", "bfloat16")
    (kv,) = json.loads(done.out)["kv"].values()
    left = 400 * GIB - 2 * 70_553_706_496
    assert kv["num_blocks"] == left // 2 // (16 * 327_680)


@pytest.mark.parametrize(("quantization", "bits"), [("int8", 8.5), ("int4", 5.0)])
def test_weights_rounded_at_load_leave_more(
    octavo: Run, folder: str, quantization: str, bits: float
) -> None:
    done = octavo("info", folder, "--json", "--quantization", quantization)
    kv = json.loads(done.out)["kv"]["float16"]
    tables = 2 * 128_256 * 8192  # embedding and head, of 8 bits in both
    vectors = 161 * 8192  # float32
    layers = 70_553_706_496 - tables - vectors
    left = 400 * GIB - int(tables * 8.5 / 8 + layers * bits / 8 + 4 * vectors)
    assert kv["num_blocks"] == left // 2 // (16 * 327_680)


def test_text(octavo: Run, folder: str) -> None:
    text = octavo("info", folder).out
    assert "64 heads, 8 KV heads of 128" in text
    assert "2 (K and V) · 80 · 8 heads · 128 · 2 B = 327,680 B a token (320.0 KiB)" in text
    assert "block of 16 tokens: 5.0 MiB" in text
    # In float32 the weights alone take 263 GiB of the 400.
    assert "the weights take 262.8 GiB" in text


GEMMA_12B: dict[str, Any] = {
    "architectures": ["Gemma3ForCausalLM"],
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 3840,
    "intermediate_size": 15360,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 256,
    "vocab_size": 262144,
    "max_position_embeddings": 131072,
    "sliding_window": 1024,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
}


def test_groups_with_windows(octavo: Run, folder: str) -> None:
    (Path(folder) / "config.json").write_text(json.dumps(GEMMA_12B))
    flags = ("--kv-cache-dtype", "bfloat16", "--num-blocks", "12000")
    (kv,) = json.loads(octavo("info", folder, "--json", *flags).out)["kv"].values()
    kinds = [(group["kind"], group["window"], group["layers"]) for group in kv["groups"]]
    assert kinds == [("full", None, 8)] + [("sliding", 1024, 8)] * 5
    assert kv["bytes_per_token"] == 48 * 8192
    assert kv["tokens"] == 2000 * 16
    assert (kv["sequence_tokens"], kv["sequence_blocks"]) == (131072, 8192 + 5 * 193)
    text = octavo("info", folder, *flags).out
    assert "8 full layers: 2 (K and V) · 8 · 8 heads · 256 · 2 B = 65,536 B a token" in text
    assert "5 × 8 sliding layers, window 1,024 tokens: 2 (K and V) · 8 · 8 heads" in text
    assert "block of 16 tokens: 1.0 MiB, the layers of any one of the 6 groups" in text
    assert "131,072 tokens holds at most 9,157 blocks, 8.9 GiB (49,152 without windows)" in text
    assert "fits: 32,000 tokens = 12,000 blocks" in text


def test_nothing_fits(octavo: Run, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command.machine, "available_bytes", lambda: GIB)
    done = octavo("info", folder)
    assert done.code == 0
    assert "does not fit: no KV block fits" in done.out


def test_loads_no_torch(folder: str) -> None:
    import os
    import subprocess
    import sys

    script = (
        "import sys\nfrom octavo.cli.main import main\n"
        f"try: main(['info', {folder!r}])\nfinally: print('torch' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        check=True,
    )
    assert done.stdout.endswith("False\n")


def test_no_such_model(octavo: Run) -> None:
    done = octavo("info", "smolm2")
    assert done.code == 2
    assert "smollm2" in done.err
    assert done.err.count("\n") == 1


def test_a_folder_without_a_config(octavo: Run, tmp_path: Path) -> None:
    done = octavo("info", str(tmp_path))
    assert (done.code, done.out) == (2, "")
    assert "config.json" in done.err


def test_recommended_sampling_and_where_it_stands(octavo: Run, folder: str) -> None:
    assert "Sampling: no defaults of the model" in octavo("info", folder).out
    (Path(folder) / "generation_config.json").write_text('{"temperature": 0.6}')
    assert "Sampling: temperature 0.6 (generation_config.json)" in octavo("info", folder).out
    found = json.loads(octavo("info", folder, "--json").out)
    assert found["sampling"] == {"temperature": 0.6}
    assert found["sampling_from"] == "generation_config.json"
    ignored = octavo("info", folder, "--json", "--generation-config", "none")
    assert json.loads(ignored.out)["sampling"] == {}


def test_a_draft_model_has_a_line_of_its_own(octavo: Run, folder: str) -> None:
    flags: tuple[str, ...] = ("--num-blocks", "100", "--speculative-method", "draft_model")
    flags += ("--speculative-model", folder, "--dtype", "bfloat16")
    assert "  draft model: 1,600 tokens = 100 blocks" in octavo("info", folder, *flags).out
    (kv,) = json.loads(octavo("info", folder, "--json", *flags).out)["kv"].values()
    assert kv["draft_blocks"] == 100
    assert kv["draft_block_bytes"] == kv["block_bytes"]
    scaled = octavo("info", folder, "--json", *flags, "--kv-cache-dtype", "int8")
    (other,) = json.loads(scaled.out)["kv"].values()
    assert other["draft_block_bytes"] == kv["block_bytes"] > other["block_bytes"]
    alone = octavo("info", folder, "--json", *flags[:2], *flags[-2:])
    (plain,) = json.loads(alone.out)["kv"].values()
    assert kv["weight_bytes"] == 2 * plain["weight_bytes"]
    assert plain["draft_blocks"] == 0
