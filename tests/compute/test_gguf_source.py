"""GGUF weights: names, row order and values equal the Hugging Face model the file was made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.compute.gguf_library import LIBRARY_TYPES
from octavo.compute.gguf_names import hf_name
from octavo.compute.gguf_source import halves_first
from octavo.compute.weights import expected_shapes, open_source
from octavo.core.errors import ModelFileError
from tests.checkpoints import gguf_name, interleave, tiny_llama, write_gguf

LLAMA3: dict[str, Any] = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "tied": {},
    "untied": {"tie": False},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "wide heads": {"head_dim": 32, "num_key_value_heads": 4},
    "one kv head": {"num_key_value_heads": 1, "num_attention_heads": 8},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_float32_file_gives_the_models_own_parameters(tmp_path: Path, variant: str) -> None:
    model = tiny_llama(tmp_path / "hf", **VARIANTS[variant])
    path = tmp_path / "m.gguf"
    write_gguf(path, model)
    source = open_source(path)
    got = dict(source.tensors())
    wanted = dict(model.named_parameters())
    assert got.keys() == wanted.keys() == set(source.names())
    for name, value in got.items():
        assert torch.equal(value, wanted[name]), name
    assert source.total_bytes() == sum(value.nbytes for value in got.values())
    config = source.config()
    assert config.tie_embeddings == model.config.tie_word_embeddings
    assert config.kv_heads == model.config.num_key_value_heads
    assert config.head_dim == model.config.head_dim


@pytest.mark.parametrize("quant", ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_quantised_file_is_the_quantised_model(tmp_path: Path, quant: str) -> None:
    """Rows are reordered as whole rows of blocks: quantising commutes with it."""
    model = tiny_llama(tmp_path / "hf", num_hidden_layers=1)
    write_gguf(tmp_path / "m.gguf", model, quant=quant)
    kind = gguf.GGMLQuantizationType[quant]
    wanted = dict(model.named_parameters())
    for name, value in open_source(tmp_path / "m.gguf").tensors():
        plain = wanted[name].detach().numpy()
        if plain.ndim > 1:
            plain = gguf.quants.dequantize(gguf.quants.quantize(plain, kind), kind)
        np.testing.assert_array_equal(value.numpy(), plain, err_msg=name)


@pytest.mark.parametrize("quant", LIBRARY_TYPES)
def test_types_that_the_package_reads(tmp_path: Path, quant: str) -> None:
    sizes = {"hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1}
    model = tiny_llama(tmp_path / "hf", **sizes)
    path = tmp_path / "m.gguf"
    write_gguf(path, model, quant=quant)
    ours = dict(open_source(path).tensors())
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    for name, value in ours.items():
        tensor = stored[gguf_name(name)]
        theirs = torch.from_numpy(gguf.quants.dequantize(tensor.data.copy(), tensor.tensor_type))
        if "q_proj" in name or "k_proj" in name:
            theirs = halves_first(theirs, 4 if "q_proj" in name else 2)
        assert value.isfinite().all()
        assert torch.equal(value, theirs), name
    assert ours.keys() == dict(model.named_parameters()).keys()


def test_logits_equal_those_of_transformers_own_reader(tmp_path: Path) -> None:
    """The row order against a reader that is not ours and a writer that is not ours."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    model = tiny_llama(tmp_path / "hf")
    write_gguf(tmp_path / "m.gguf", model)
    theirs = load_gguf_checkpoint(
        str(tmp_path / "m.gguf"), return_tensors=True, model_to_load=LlamaForCausalLM(model.config)
    )["tensors"]
    ours = dict(open_source(tmp_path / "m.gguf").tensors())
    assert ours.keys() == theirs.keys() - {"lm_head.weight"}
    for name, value in ours.items():
        assert torch.equal(value, torch.as_tensor(theirs[name])), name
    rebuilt = LlamaForCausalLM(LlamaConfig(**model.config.to_dict())).eval()
    rebuilt.load_state_dict(ours, strict=False)
    tokens = torch.arange(20)[None]
    with torch.no_grad():
        assert torch.equal(rebuilt(tokens).logits, model(tokens).logits)


def test_rotating_pairs_equals_rotating_halves_of_reordered_rows() -> None:
    """Why the order matters: neighbours rotated in the file's order = halves rotated in ours."""
    heads, width = 3, 8
    stored = torch.randn(heads * width, 5, dtype=torch.float64)
    x, angles = torch.randn(5, dtype=torch.float64), torch.randn(width // 2, dtype=torch.float64)
    pairs = (stored @ x).reshape(heads, width // 2, 2)
    turned = torch.stack(
        [
            pairs[..., 0] * angles.cos() - pairs[..., 1] * angles.sin(),
            pairs[..., 0] * angles.sin() + pairs[..., 1] * angles.cos(),
        ],
        dim=1,
    )
    first, second = (halves_first(stored, heads) @ x).reshape(heads, 2, width // 2).unbind(1)
    halves = torch.stack(
        [
            first * angles.cos() - second * angles.sin(),
            second * angles.cos() + first * angles.sin(),
        ],
        dim=1,
    )
    torch.testing.assert_close(turned, halves)


def test_halves_first_undoes_interleave() -> None:
    rows = torch.arange(48).reshape(24, 2)
    assert torch.equal(halves_first(interleave(rows, 3), 3), rows)
    assert not torch.equal(interleave(rows, 3), rows)


def test_rope_divisors_go_into_the_config(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "hf", rope_parameters=LLAMA3)
    write_gguf(tmp_path / "m.gguf", model)
    source = open_source(tmp_path / "m.gguf")
    rope = source.config().rope
    assert rope.theta == 5e5
    assert rope.freq_factors is not None
    steps = torch.arange(8, dtype=torch.float32) / 8
    frequencies = 1.0 / (rope.theta**steps * torch.tensor(rope.freq_factors))
    torch.testing.assert_close(frequencies, model.model.rotary_emb.inv_freq)
    assert "rope_freqs.weight" not in source.names()


def test_names_round_trip(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "hf", tie=False, attention_bias=True, mlp_bias=True)
    for name, _ in model.named_parameters():
        assert hf_name(gguf_name(name), "llama") == name
    for odd in ("blk.00.attn_q.weight", "blk.0.ffn_gate_exps.weight", "x", "output.b.weight"):
        assert hf_name(odd, "llama") == odd


def write_edited(path: Path, model: Any, **edits: np.ndarray | None) -> None:
    """`model` as GGUF with some tensors replaced, added or (None) left out."""
    write_gguf(path, model)
    reader = gguf.GGUFReader(str(path))
    tensors = {t.name: np.array(t.data).reshape(t.shape[::-1]) for t in reader.tensors} | edits
    metadata = {k: f.contents() for k, f in reader.fields.items() if not k.startswith("GGUF.")}
    writer = gguf.GGUFWriter(str(path.with_suffix(".new")), "llama")
    for key, value in metadata.items():
        if key != "general.architecture":
            writer.add_key_value(key, value, reader.fields[key].types[0])
    for name, value in tensors.items():
        if value is not None:
            writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    del reader
    path.with_suffix(".new").replace(path)


STRICT: list[tuple[str, dict[str, np.ndarray | None], str]] = [
    (
        "missing",
        {"blk.1.ffn_up.weight": None},
        r"missing: 'model\.layers\.1\.mlp\.up_proj\.weight'",
    ),
    (
        "unknown",
        {"blk.0.attn_q_norm.weight": np.ones(4, np.float32)},
        r"unknown: 'blk\.0\.attn_q_n",
    ),
    (
        "extra layer",
        {"blk.3.attn_norm.weight": np.ones(64, np.float32)},
        r"unknown: 'model\.layers\.3",
    ),
    (
        "shape",
        {"output_norm.weight": np.ones(65, np.float32)},
        r"norm\.weight has shape \[65\].*\[64\]",
    ),
    ("type", {"output_norm.weight": np.ones(64, np.float64)}, "F64"),
    ("integer", {"output_norm.weight": np.ones(64, np.int8)}, "I8"),
    (
        "divisors",
        {"rope_freqs.weight": np.zeros(8, np.float32)},
        r"rope_freqs\.weight must be above",
    ),
    ("divisors", {"rope_freqs.weight": np.ones(7, np.float32)}, "8 F32 values"),
]


@pytest.mark.parametrize(("case", "edits", "message"), STRICT)
def test_odd_tensors_are_refused_by_name(
    tmp_path: Path, case: str, edits: dict[str, np.ndarray | None], message: str
) -> None:
    del case
    write_edited(tmp_path / "m.gguf", tiny_llama(tmp_path / "hf"), **edits)
    with pytest.raises(ModelFileError, match=message):
        open_source(tmp_path / "m.gguf")


def test_a_file_cut_after_opening_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path, tiny_llama(tmp_path / "hf"))
    source = open_source(path)
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(ModelFileError, match="ends inside tensor"):
        list(source.tensors())
    with pytest.raises(ModelFileError, match="shorter"):
        source.fingerprint()


def test_fingerprint_follows_content_not_place(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "hf")
    for name, quant in (("a", "F32"), ("b", "F32"), ("c", "Q8_0")):
        write_gguf(tmp_path / f"{name}.gguf", model, quant=quant)
    a, b, c = (open_source(tmp_path / f"{name}.gguf").fingerprint() for name in "abc")
    assert len(a) == 32
    assert a == b
    assert a != c
    raw = bytearray((tmp_path / "b.gguf").read_bytes())
    raw[-40] ^= 1
    (tmp_path / "b.gguf").write_bytes(raw)
    assert open_source(tmp_path / "b.gguf").fingerprint() != a


def test_expected_shapes_are_those_of_transformers(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "hf", tie=False, attention_bias=True, mlp_bias=True, head_dim=32)
    wanted = {name: tuple(value.shape) for name, value in model.named_parameters()}
    assert expected_shapes(open_source(tmp_path / "hf").config()) == wanted


@pytest.fixture(scope="module")
def small_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("small")
    model = tiny_llama(folder / "hf", num_hidden_layers=1, vocab_size=32)
    write_gguf(folder / "m.gguf", model, quant="Q8_0")
    return (folder / "m.gguf").read_bytes()


@settings(
    max_examples=150, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_mutations_load_or_raise_model_file_error(
    tmp_path: Path, small_file: bytes, data: st.DataObject
) -> None:
    raw = bytearray(small_file)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, 5000))
        raw[at : at + 4] = data.draw(st.binary(min_size=1, max_size=4))
    path = tmp_path / "m.gguf"
    path.write_bytes(raw)
    try:
        source = open_source(path)
        loaded = dict(source.tensors())
    except ModelFileError:
        return
    assert {k: tuple(v.shape) for k, v in loaded.items()} == expected_shapes(source.config())
