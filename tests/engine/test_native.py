"""The engine on the native kernels: bits that depend on nothing but the request, and true answers.

Equality here is of bits: alone or among others, cold or from the cache, whole or in chunks, with
one thread or several, before and after preemption.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from octavo.compute.native import library
from octavo.core.config import EngineConfig
from octavo.core.errors import ConfigError
from octavo.core.sampling import SamplingParams
from octavo.engine.build import build
from octavo.engine.info import EngineInfo
from tests.checkpoints import tiny_llama, write_gguf
from tests.engine.tiny import GREEDY, Desk, prompt
from tests.families import GGUF_FAMILIES, tiny_family, write_family_gguf

try:
    ISAS = library.usable_isas()
except library.NotBuilt:
    pytest.skip("the kernels were not built: no C++ compiler", allow_module_level=True)

Answer = tuple[list[int], torch.Tensor]

NATIVE: dict[str, Any] = {"dtype": "auto", "attention_backend": "native"}
PROMPTS = [prompt(length, seed=length) for length in (1, 15, 16, 17, 48, 131, 150, 290)]
SAMPLED = SamplingParams(temperature=0.9, seed=7, max_tokens=12, ignore_eos=True)
KV_DTYPES = ("float32", "float16", "bfloat16", "int8", "fp8")
OPTIONS: list[dict[str, Any]] = [
    {"enable_prefix_caching": False},
    {"threads": 2},
    {"threads": 3, "max_num_batched_tokens": 16, "max_num_seqs": 8},
    {"max_num_batched_tokens": 64, "max_num_seqs": 8},
    {"max_num_batched_tokens": 37, "max_num_seqs": 4},
    {"max_num_batched_tokens": 512},
    {"allocator": "max_length"},
    {"static_batching": True, "max_num_seqs": 3},
    {"block_size": 32},
    {"block_size": 64},
    {"num_blocks": 22, "max_num_batched_tokens": 64, "max_num_seqs": 8},
]


def assert_bits(got: Answer, expected: Answer) -> None:
    assert got[0] == expected[0]
    assert torch.equal(got[1], expected[1])


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    model = tiny_llama(folder / "m", hidden_size=64, intermediate_size=96)
    write_gguf(folder / "m.gguf", model, quant="Q4_1")
    return folder / "m.gguf"


@pytest.fixture(scope="module")
def alone(file: Path) -> dict[str, list[Answer]]:
    """By KV dtype: each prompt by itself, uncached, whole."""
    found = {}
    for dtype in KV_DTYPES:
        desk = Desk(file, enable_prefix_caching=False, kv_cache_dtype=dtype, **NATIVE)
        found[dtype] = [desk.answer(each)[0] for each in PROMPTS]
    return found


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_no_neighbour_size_or_policy_changes_a_bit(
    file: Path, alone: dict[str, list[Answer]], options: dict[str, Any]
) -> None:
    desk = Desk(file, **{**NATIVE, **options})
    cold = desk.answer(*PROMPTS)
    warm = desk.answer(*PROMPTS)
    for i, expected in enumerate(alone["float16"]):
        assert_bits(cold[i], expected)
        assert_bits(warm[i], expected)


@pytest.mark.parametrize("dtype", KV_DTYPES)
def test_every_kv_dtype_gives_its_own_bits_again(
    file: Path, alone: dict[str, list[Answer]], dtype: str
) -> None:
    small = {"num_blocks": 22, "max_num_batched_tokens": 48, "max_num_seqs": 8, "threads": 2}
    desk = Desk(file, kv_cache_dtype=dtype, **{**NATIVE, **small})
    for _ in ("cold", "warm"):
        for got, expected in zip(desk.answer(*PROMPTS), alone[dtype], strict=True):
            assert_bits(got, expected)


def test_rows_that_share_a_prefix_answer_as_alone(file: Path) -> None:
    common = prompt(260, seed=1)
    prompts = [[*common, *prompt(n, seed=n)] for n in (3, 20, 40, 7, 90)]
    one = Desk(file, enable_prefix_caching=False, **NATIVE)
    expected = [one.answer(each)[0] for each in prompts]
    desk = Desk(file, **{**NATIVE, "threads": 2})
    desk.answer(common)
    for got, wanted in zip(desk.answer(*prompts), expected, strict=True):
        assert_bits(got, wanted)


def test_sampled_answers_do_not_depend_on_neighbours(file: Path) -> None:
    one = Desk(file, enable_prefix_caching=False, **NATIVE)
    expected = [one.answer(each, params=SAMPLED)[0] for each in PROMPTS]
    desk = Desk(file, **{**NATIVE, "threads": 2})
    for got, wanted in zip(desk.answer(*PROMPTS, params=SAMPLED), expected, strict=True):
        assert_bits(got, wanted)


def test_guesses_change_no_token(file: Path) -> None:
    tokens = [*prompt(24, seed=3)] * 4
    params = replace(GREEDY, max_tokens=48)
    plain = Desk(file, **NATIVE).answer(tokens, params=params)[0]
    desk = Desk(file, speculative_method="lookup", **NATIVE)
    session = desk.submit(tokens, params)
    desk.run()
    assert session.requests[0].tokens[len(tokens) :] == plain[0]
    assert desk.engine.stats().drafted_tokens > 0


@pytest.mark.usefixtures("always_guess")
@pytest.mark.parametrize("kv_dtype", ["float16", "int8"])
@pytest.mark.parametrize("drafted_by", ["itself", "floats"])
def test_a_draft_model_changes_no_token(file: Path, drafted_by: str, kv_dtype: str) -> None:
    """The draft runs on the kernels where they can serve it, else beside them on plain torch, with
    K and V in float16 or float32 whatever the model's are in."""
    draft = {"itself": file, "floats": file.parent / "m"}[drafted_by]
    options = {**NATIVE, "kv_cache_dtype": kv_dtype, "threads": 2}
    params = replace(SAMPLED, max_tokens=24)
    expected = Desk(file, **options).answer(*PROMPTS[:5], params=params)
    options |= {"speculative_method": "draft_model", "speculative_model": str(draft)}
    desk = Desk(file, **options)
    sessions = [desk.submit(each, params) for each in PROMPTS[:5]]
    desk.run()
    for each, (tokens, _) in zip(sessions, expected, strict=True):
        assert each.requests[0].tokens[-len(tokens) :] == tokens
    stats = desk.engine.stats()
    assert stats.drafted_tokens > 50
    assert stats.accepted_tokens > 0
    if drafted_by == "itself" and kv_dtype == "float16":
        assert stats.accepted_tokens == stats.drafted_tokens
    assert torch.get_num_threads() == {"itself": 1, "floats": 2}[drafted_by]


@pytest.mark.usefixtures("always_guess")
def test_info_says_what_computes_the_draft_model(file: Path) -> None:
    def info(draft: Path, **options: Any) -> EngineInfo:
        options |= {"speculative_method": "draft_model", "speculative_model": str(draft)}
        options |= {"skip_tokenizer_init": True, "num_blocks": 64}
        return build(EngineConfig.of(str(file), **options)).info

    native = info(file, attention_backend="native")
    assert f"{file} on native-" in native.speculation_note
    assert not native.not_taken
    mixed = info(file.parent / "m", attention_backend="native")
    assert f"{file.parent / 'm'} on torch" in mixed.speculation_note
    assert mixed.not_taken[0].startswith("draft model, native: weights of 32 bits")
    plain = info(file, attention_backend="torch")
    assert f"{file} on torch" in plain.speculation_note
    assert not plain.not_taken


@pytest.mark.parametrize("isa", ISAS)
def test_every_build_agrees_with_plain_torch(
    file: Path, monkeypatch: pytest.MonkeyPatch, isa: str
) -> None:
    """Activations are rounded to 8 bits, so close, not equal; K and V in float32."""
    monkeypatch.setenv(library.FORCE, isa)
    desk = Desk(file, kv_cache_dtype="float32", **NATIVE)
    oracle = Desk(file, attention_backend="torch")
    for tokens in PROMPTS[3:6]:
        got = desk.answer(tokens, params=replace(GREEDY, max_tokens=1))[0][1]
        wanted = oracle.answer(tokens, params=replace(GREEDY, max_tokens=1))[0][1]
        assert_near(got, wanted)


def assert_near(got: torch.Tensor, wanted: torch.Tensor, *, least: float = 0.998) -> None:
    """Logits of the same direction and size: a wrong sign, layer or norm shows at once."""
    angle = torch.nn.functional.cosine_similarity(got, wanted, dim=-1)
    assert float(angle.min()) > least
    assert float((got - wanted).abs().max()) < 0.15 * float(wanted.abs().max())


@pytest.mark.parametrize("arch", GGUF_FAMILIES)
def test_every_family_agrees_with_plain_torch_and_with_itself(tmp_path: Path, arch: str) -> None:
    model = tiny_family(tmp_path / "folder", arch)
    path = tmp_path / "m.gguf"
    write_family_gguf(path, model, arch=arch, quant="Q8_0")
    first, params = Desk(path, enable_prefix_caching=False, **NATIVE), replace(GREEDY, max_tokens=8)
    oracle = Desk(path, attention_backend="torch")
    desk = Desk(path, **{**NATIVE, "threads": 2, "max_num_batched_tokens": 48, "max_num_seqs": 4})
    prompts = [prompt(n, seed=n) for n in (5, 67, 150)]
    expected = [first.answer(each, params=params)[0] for each in prompts]
    for each, answer in zip(prompts, expected, strict=True):
        assert_near(answer[1][:1], oracle.answer(each, params=params)[0][1][:1])
    for _ in ("cold", "warm"):
        for got, wanted in zip(desk.answer(*prompts, params=params), expected, strict=True):
            assert_bits(got, wanted)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"dtype": "float32"}, "dtype float32"),
        ({"block_size": 8}, "block_size 8"),
    ],
)
def test_what_the_kernels_cannot_do_is_refused_or_told(
    file: Path, options: dict[str, Any], reason: str
) -> None:
    options = {**NATIVE, "skip_tokenizer_init": True, "num_blocks": 64, **options}
    with pytest.raises(ConfigError, match=reason):
        build(EngineConfig.of(str(file), **options))
    info = build(EngineConfig.of(str(file), **{**options, "attention_backend": "auto"})).info
    assert info.backend == "torch"
    assert any(reason in each for each in info.not_taken)


def test_without_kernels_it_runs_on_plain_torch_and_says_so(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "FOLDER", tmp_path)
    library.usable_isas.cache_clear()
    try:
        info = build(EngineConfig.of(str(file), skip_tokenizer_init=True, num_blocks=64)).info
    finally:
        monkeypatch.undo()
        library.usable_isas.cache_clear()
    assert info.backend == "torch"
    assert any("not built" in each for each in info.not_taken)
