"""The engine on the native kernels from float weights: as stored, and rounded at load."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from octavo.compute.native.float_grids import round_matrix
from octavo.compute.weights import open_source
from octavo.core.config import EngineConfig
from octavo.core.errors import ConfigError, ModelFileError
from octavo.engine.build import build
from tests.checkpoints import save_folder, tiny_llama, write_gguf
from tests.compute.native.test_float_grids import values
from tests.engine.test_native import NATIVE, PROMPTS, assert_bits, assert_near
from tests.engine.tiny import GREEDY, Desk, prompt
from tests.families import FAMILIES, tiny_family

FEW = replace(GREEDY, max_tokens=8)
BUSY: dict[str, Any] = {"threads": 2, "max_num_batched_tokens": 48, "max_num_seqs": 4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("floats")
    tiny_llama(folder)
    return folder


def store_as(folder: Path, dtype: torch.dtype) -> None:
    """Round the checkpoint's tensors to `dtype`."""
    file = folder / "model.safetensors"
    tensors = {name: tensor.to(dtype) for name, tensor in load_file(file).items()}
    save_file(tensors, file, metadata={"format": "pt"})


def angle(got: torch.Tensor, wanted: torch.Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(got, wanted, dim=-1).min())


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_of_16_bits_agrees_with_plain_torch_and_with_itself(
    tmp_path: Path, family: str, stored: torch.dtype
) -> None:
    """Nothing is rounded on the way, so near is much nearer than with quantised weights."""
    tiny_family(tmp_path, family)
    store_as(tmp_path, stored)
    exact = {**NATIVE, "kv_cache_dtype": "float32"}
    first = Desk(tmp_path, enable_prefix_caching=False, **exact)
    oracle = Desk(tmp_path, attention_backend="torch")
    prompts = [prompt(n, seed=n) for n in (5, 67, 150)]
    expected = [first.answer(each, params=FEW)[0] for each in prompts]
    for each, (_, logits) in zip(prompts, expected, strict=True):
        wanted = oracle.answer(each, params=FEW)[0][1][:1]
        torch.testing.assert_close(logits[:1], wanted, atol=2e-3, rtol=0)
    desk = Desk(tmp_path, **{**exact, **BUSY})
    for _ in ("cold", "warm"):
        for got, answer in zip(desk.answer(*prompts, params=FEW), expected, strict=True):
            assert_bits(got, answer)


def test_16_bit_weights_give_their_own_bits_in_any_company(tmp_path: Path) -> None:
    tiny_llama(tmp_path)
    store_as(tmp_path, torch.bfloat16)
    alone = Desk(tmp_path, enable_prefix_caching=False, **NATIVE)
    expected = [alone.answer(each)[0] for each in PROMPTS]
    for options in (BUSY, {"max_num_batched_tokens": 512}, {"threads": 3}):
        desk = Desk(tmp_path, **{**NATIVE, **options})
        for got, wanted in zip(desk.answer(*PROMPTS), expected, strict=True):
            assert_bits(got, wanted)


def test_dtype_bfloat16_rounds_floats_as_a_bfloat16_file_has_them(tmp_path: Path) -> None:
    tiny_llama(tmp_path)
    options = {**NATIVE, "dtype": "bfloat16"}
    wide = Desk(tmp_path, **options).answer(PROMPTS[3])[0]
    store_as(tmp_path, torch.bfloat16)  # norms too, which the other keeps as they were
    assert_near(Desk(tmp_path, **options).answer(PROMPTS[3])[0][1][:1], wide[1][:1])


def test_a_gguf_file_may_mix_floats_and_blocks(tmp_path: Path) -> None:
    import gguf

    def stored(name: str) -> str:
        return {"blk.0.attn_q.weight": "F16", "blk.1.ffn_down.weight": "BF16"}.get(name, "Q8_0")

    class Mixed(gguf.GGUFWriter):
        """Of the tensors given as float arrays, those that `stored` names are kept as floats."""

        def add_tensor(self, name: str, tensor: Any, **options: Any) -> None:
            kind = stored(name)
            if "raw_dtype" in options and kind != "Q8_0":
                qtype = gguf.GGMLQuantizationType
                values = gguf.quants.dequantize(tensor, options["raw_dtype"])
                tensor = gguf.quants.quantize(values, qtype[kind])
                options["raw_dtype"] = qtype[kind]
            super().add_tensor(name, tensor, **options)

    model = tiny_llama(tmp_path / "folder")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gguf, "GGUFWriter", Mixed)
        write_gguf(tmp_path / "m.gguf", model, quant="Q8_0")
    types = set(open_source(tmp_path / "m.gguf").types().values())
    assert types == {"F32", "F16", "BF16", "Q8_0"}
    wanted = Desk(tmp_path / "m.gguf", attention_backend="torch").answer(PROMPTS[4], params=FEW)
    desk = Desk(tmp_path / "m.gguf", **NATIVE)
    assert_near(desk.answer(PROMPTS[4], params=FEW)[0][1][:1], wanted[0][1][:1])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"dtype": "auto"}, "weights of 32 bits have no kernel .*--dtype bfloat16"),
        ({"dtype": "float32"}, "dtype float32"),
    ],
)
def test_weights_of_32_bits_are_refused_or_run_on_plain_torch(
    folder: Path, options: dict[str, Any], reason: str
) -> None:
    options = {**NATIVE, "skip_tokenizer_init": True, "num_blocks": 64, **options}
    with pytest.raises(ConfigError, match=reason):
        build(EngineConfig.of(str(folder), **options))
    info = build(EngineConfig.of(str(folder), **{**options, "attention_backend": "auto"})).info
    assert info.backend == "torch"


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_weights_rounded_at_load_give_their_own_bits_in_any_company(
    folder: Path, quantization: str
) -> None:
    options = {**NATIVE, "quantization": quantization}
    alone = Desk(folder, enable_prefix_caching=False, **options)
    expected = [alone.answer(each)[0] for each in PROMPTS]
    desk = Desk(folder, **{**options, **BUSY})
    for _ in ("cold", "warm"):
        for got, wanted in zip(desk.answer(*PROMPTS), expected, strict=True):
            assert_bits(got, wanted)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_rounded_at_load_stays_near_its_floats(tmp_path: Path, family: str) -> None:
    tiny_family(tmp_path, family)
    oracle = Desk(tmp_path, attention_backend="torch")
    eight = Desk(tmp_path, **NATIVE, quantization="int8")
    four = Desk(tmp_path, **NATIVE, quantization="int4")
    for tokens in (prompt(5, seed=5), prompt(67, seed=67)):
        wanted = oracle.answer(tokens, params=FEW)[0][1][:1]
        found = eight.answer(tokens, params=FEW)[0][1][:1]
        # Weights and activations of 8 bits: with K and V in float32 the farthest is at 0.9983.
        assert_near(found, wanted, least=0.997)
        coarse = four.answer(tokens, params=FEW)[0][1][:1]
        assert 0.8 < angle(coarse, wanted) < angle(found, wanted)


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_answers_are_those_of_the_rounded_weights(tmp_path: Path, quantization: str) -> None:
    """Plain torch on a copy of the model whose matrices have the rounded values."""
    model = tiny_llama(tmp_path / "m", tie=False)
    desk = Desk(tmp_path / "m", **NATIVE, quantization=quantization)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                kind = quantization if ".layers." in name else "int8"
                parameter.copy_(values(round_matrix(parameter, kind, name=name)))
    (tmp_path / "rounded").mkdir()
    save_folder(tmp_path / "rounded", model)
    oracle = Desk(tmp_path / "rounded", attention_backend="torch")
    for tokens in PROMPTS[3:6]:
        wanted = oracle.answer(tokens, params=FEW)[0][1][:1]
        assert_near(desk.answer(tokens, params=FEW)[0][1][:1], wanted)


@pytest.mark.parametrize("stored", ["F16", "BF16"])
def test_float_matrices_of_a_gguf_file_are_rounded_too(tmp_path: Path, stored: str) -> None:
    write_gguf(tmp_path / "m.gguf", tiny_llama(tmp_path / "folder"), quant=stored)
    oracle = Desk(tmp_path / "m.gguf", attention_backend="torch")
    desk = Desk(tmp_path / "m.gguf", **NATIVE, quantization="int8")
    wanted = oracle.answer(PROMPTS[3], params=FEW)[0][1][:1]
    assert_near(desk.answer(PROMPTS[3], params=FEW)[0][1][:1], wanted)


def test_rounded_weights_share_no_blocks_with_others(folder: Path) -> None:
    def root(quantization: str) -> bytes | None:
        desk = Desk(folder, **NATIVE, quantization=quantization)
        return desk.submit(prompt(20)).requests[0].chain.root

    assert root("int8") == root("int8") != root("int4")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"attention_backend": "torch"}, "quantization int8 needs the native kernels, and plain"),
        ({"block_size": 8}, "block_size 8"),
        (
            {"attention_backend": "auto", "block_size": 8},
            "native kernels, and block_size 8",
        ),
        ({"dtype": "bfloat16"}, "dtype bfloat16"),
        ({"quantization": "int3"}, "quantization must be one of int8, int4"),
    ],
)
def test_rounding_that_cannot_be_is_refused(
    folder: Path, options: dict[str, Any], reason: str
) -> None:
    options = {**NATIVE, "skip_tokenizer_init": True, "quantization": "int8", **options}
    with pytest.raises(ConfigError, match=reason):
        build(EngineConfig.of(str(folder), **options))


def test_quantised_files_are_not_rounded_again(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", tiny_llama(tmp_path / "folder"), quant="Q8_0")
    with pytest.raises(ConfigError, match="for float weights, and these are stored as Q8_0"):
        Desk(tmp_path / "m.gguf", **NATIVE, quantization="int4")


def test_rows_that_are_no_multiple_of_32_are_refused_by_name(tmp_path: Path) -> None:
    tiny_llama(tmp_path, intermediate_size=72)
    with pytest.raises(ConfigError, match="intermediate_size 72 is not a multiple of 32"):
        Desk(tmp_path, **NATIVE, quantization="int8")


def test_weights_that_are_not_finite_are_refused_by_name(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path)
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[3, 5] = float("nan")
    save_folder(tmp_path, model)
    with pytest.raises(ModelFileError, match=r"tensor model\.layers\.1\.mlp\.down_proj\.weight"):
        Desk(tmp_path, **NATIVE, quantization="int8")
