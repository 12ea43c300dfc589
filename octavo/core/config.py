"""Every option of the engine, by composition, and how an open choice is resolved.

Flag names are vLLM's where the same thing exists. Values only: reads no files and no environment.
"""

from __future__ import annotations

import difflib
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any

from octavo.core.ablations import Ablations
from octavo.core.errors import ConfigError
from octavo.core.policies import MAX_LENGTH, PAGED, POWER_OF_TWO, Policies
from octavo.core.spec import DTYPE_BYTES, SCALED_DTYPES, KVSpec

ALLOCATORS = {"paged": PAGED, "max_length": MAX_LENGTH, "power_of_two": POWER_OF_TWO}
BACKENDS = ("auto", "native", "torch")
QUANTIZATIONS = ("int8", "int4")
MOST_OF_ANYTHING = 1 << 48
_MOST = {
    "num_speculative_tokens": 64,
    "threads": 1024,
    "block_size": 1 << 16,
    "max_num_seqs": 1 << 16,
}


def _option(default: Any, text: str, *, choices: tuple[str, ...] = ()) -> Any:
    return field(default=default, metadata={"help": text, "choices": choices})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Which weights, in which numerics, where."""

    model: str = _option("smollm2", "alias, local folder, .gguf file or hub id")
    served_model_name: str | None = _option(None, "name in the API; default: the model as given")
    dtype: str = _option(
        "auto",
        "weights and activations; auto: weights as stored on native kernels, else bfloat16 where "
        "the device has it, else float32",
        choices=("auto", *DTYPE_BYTES),
    )
    quantization: str | None = _option(
        None,
        "round float weights to 8 or 4 bits at load, on native kernels; embedding and head to 8",
        choices=QUANTIZATIONS,
    )
    keep_quantized: bool = _option(
        True, "keep what quantization has rounded in the cache folder, for the next start"
    )
    max_model_len: int | None = _option(
        None, "longest prompt plus output in tokens; default: the model's own limit"
    )
    device: str = _option("cpu", "torch device that holds weights and KV cache")
    attention_backend: str = _option(
        "auto", "native kernels, plain torch, or auto: the first that can", choices=BACKENDS
    )
    threads: int | None = _option(None, "CPU threads; default: the cores this process may use")
    skip_tokenizer_init: bool = _option(False, "serve token ids only, without a tokenizer")
    generation_config: str = _option(
        "auto",
        "sampling of requests that do not set it; auto: what the model's files recommend",
        choices=("auto", "none"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOptions:
    """The KV cache: its size, its blocks, who shares them."""

    block_size: int = _option(16, "tokens per KV block")
    num_blocks: int | None = _option(None, "KV blocks; default: from kv_cache_memory_bytes")
    kv_cache_memory_bytes: int | None = _option(
        None, "memory for K and V; default: half of what the weights leave"
    )
    kv_cache_dtype: str = _option(
        "auto",
        "dtype of K and V; auto: float16 on native kernels, else that of the model",
        choices=("auto", *DTYPE_BYTES, *SCALED_DTYPES),
    )
    enable_prefix_caching: bool = _option(True, "reuse the blocks of equal prefixes")
    share_in_flight: bool = _option(True, "wait for equal blocks that are being computed")
    allocator: str = _option(
        "paged", "what a request holds: paged, or reserved ahead", choices=tuple(ALLOCATORS)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerOptions:
    """How much runs in one step, and how much may wait."""

    max_num_batched_tokens: int = _option(
        512, "token budget of one step: more is faster, less keeps running answers smoother"
    )
    max_num_seqs: int = _option(128, "requests that run at once")
    enable_chunked_prefill: bool = _option(True, "split prompts over steps")
    static_batching: bool = _option(False, "admit a new batch only when the last one has ended")
    max_num_queued_reqs: int = _option(1024, "requests that may wait; more are refused")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationOptions:
    """Guessing tokens ahead, to be verified in one step. Changes speed, not answers."""

    speculative_method: str = _option(
        "off",
        "lookup: guess what followed the same words before, in the request or a recent one; "
        "draft_model: guess with speculative_model",
        choices=("off", "lookup", "draft_model"),
    )
    speculative_model: str | None = _option(
        None, "a smaller model with the same vocabulary: alias, folder, .gguf file or hub id"
    )
    speculative_num_blocks: int | None = _option(
        None, "KV blocks of speculative_model; default: for speculative_max_seqs long requests"
    )
    num_speculative_tokens: int = _option(4, "tokens guessed at most per request and step")
    speculative_max_seqs: int = _option(8, "no guesses while more requests than this run")


_SECTIONS = (ModelOptions, CacheOptions, SchedulerOptions, SpeculationOptions)


@dataclass(frozen=True, slots=True)
class Option:
    """One option as a front end needs it. `default` None means: resolved at start."""

    name: str
    type: str
    default: Any
    help: str
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What resolving needs to know of the machine. `available_bytes` is what weights leave."""

    native_bf16: bool
    available_bytes: int
    threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """All options. As given, some are open (None, "auto"); `resolve` closes them."""

    model: ModelOptions = field(default_factory=ModelOptions)
    cache: CacheOptions = field(default_factory=CacheOptions)
    scheduler: SchedulerOptions = field(default_factory=SchedulerOptions)
    speculation: SpeculationOptions = field(default_factory=SpeculationOptions)
    ablations: Ablations = field(default_factory=Ablations)

    @classmethod
    def of(cls, model: str, **options: Any) -> EngineConfig:
        """From flat keyword options. An unknown name or a nonsense value raises ConfigError."""
        options["model"] = model
        ablations = Ablations.taken_from(options)
        known = {option.name: option for option in cls.options()}
        for name, value in options.items():
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                hint = f"; did you mean {close[0]}?" if close else ""
                raise ConfigError(f"unknown option {name}{hint}", param=name)
            _check(known[name], value)
        config = cls(
            model=ModelOptions(**_only(ModelOptions, options)),
            cache=CacheOptions(**_only(CacheOptions, options)),
            scheduler=SchedulerOptions(**_only(SchedulerOptions, options)),
            speculation=SpeculationOptions(**_only(SpeculationOptions, options)),
            ablations=ablations,
        )
        ablations.check(
            attention_backend=config.model.attention_backend,
            prefix_caching=config.cache.enable_prefix_caching,
        )
        _check_speculation(config.speculation)
        return config

    @staticmethod
    def options() -> list[Option]:
        """Every option in the order of the sections, for flags and reference pages."""
        return [
            Option(
                f.name,
                str(f.type),
                None if f.default is MISSING else f.default,
                f.metadata["help"],
                f.metadata["choices"],
            )
            for section in _SECTIONS
            for f in fields(section)
        ]

    def policies(self) -> Policies:
        return Policies(
            allocator=ALLOCATORS[self.cache.allocator],
            splits=self.scheduler.enable_chunked_prefill,
            continuous=not self.scheduler.static_batching,
            share_in_flight=self.cache.share_in_flight,
            copy_on_write=self.ablations.copy_on_write,
        )


def _only(section: type, options: dict[str, Any]) -> dict[str, Any]:
    return {f.name: options[f.name] for f in fields(section) if f.name in options}


def _check(option: Option, value: Any) -> None:
    """One option's value against its declared type, choices and sign."""
    if value is None and "None" in option.type:
        return
    expected = {"str": str, "int": int, "bool": bool}[option.type.split(" | ")[0]]
    wrong = not isinstance(value, expected) or (expected is int and isinstance(value, bool))
    if wrong:
        raise ConfigError(f"{option.name} must be {option.type}", param=option.name)
    if expected is int and value < 1:
        raise ConfigError(f"{option.name} must be at least 1, not {value}", param=option.name)
    if expected is int and value > _MOST.get(option.name, MOST_OF_ANYTHING):
        most = _MOST.get(option.name, MOST_OF_ANYTHING)
        raise ConfigError(f"{option.name} must be at most {most}", param=option.name)
    if option.choices and value not in option.choices:
        choices = ", ".join(option.choices)
        raise ConfigError(f"{option.name} must be one of {choices}", param=option.name)


def resolve_numerics(
    config: EngineConfig, machine: Machine, *, native: bool = False
) -> EngineConfig:
    """Close dtype, KV dtype and threads, which loading the weights needs.

    `native`: on the kernels, which keep weights as stored and compute between products in float32.
    """
    model, cache = config.model, config.cache
    if config.scheduler.max_num_seqs > config.scheduler.max_num_batched_tokens:
        raise ConfigError(
            "max_num_seqs must not exceed max_num_batched_tokens: every running request gets a "
            "token in each step",
            param="max_num_seqs",
        )
    dtype = model.dtype
    if dtype == "auto":
        dtype = "bfloat16" if machine.native_bf16 and not native else "float32"
    kv_dtype = cache.kv_cache_dtype
    if kv_dtype == "auto":
        kv_dtype = "float16" if native else dtype
    model = replace(model, dtype=dtype, threads=model.threads or machine.threads)
    return replace(config, model=model, cache=replace(cache, kv_cache_dtype=kv_dtype))


def _check_speculation(options: SpeculationOptions) -> None:
    """Raises ConfigError for a draft model that is missing, or given and not asked for."""
    drafts = options.speculative_method == "draft_model"
    if drafts and options.speculative_model is None:
        raise ConfigError(
            "speculative_method draft_model needs speculative_model: a smaller model with the same "
            "vocabulary",
            param="speculative_model",
        )
    for name in ("speculative_model", "speculative_num_blocks"):
        if not drafts and getattr(options, name) is not None:
            raise ConfigError(f"{name} needs speculative_method draft_model", param=name)


def resolve_length(config: EngineConfig, *, max_position: int) -> int:
    """Longest sequence in tokens. Needs only the model's config, so call it before the weights."""
    max_len = config.model.max_model_len or max_position
    if max_len < 2:
        raise ConfigError(
            "max_model_len must be at least 2: a prompt token and one to follow",
            param="max_model_len",
        )
    if max_len > max_position:
        raise ConfigError(
            f"max_model_len {max_len} exceeds the {max_position} positions of the model",
            param="max_model_len",
        )
    return max_len


def resolve_sizes(
    config: EngineConfig,
    machine: Machine,
    *,
    spec: KVSpec,
    max_position: int,
    draft: KVSpec | None = None,
) -> EngineConfig:
    """Close max_model_len and num_blocks. Call with what is left once the weights are loaded.

    The KV cache takes half of the available memory, at most what max_num_seqs sequences of
    max_model_len tokens hold. That of a draft model, whose geometry is `draft`, is part of it.
    """
    model, cache, block_bytes = config.model, config.cache, spec.block_bytes
    max_len = resolve_length(config, max_position=max_position)
    budget = cache.kv_cache_memory_bytes or machine.available_bytes // 2
    # A reserving allocator keeps what has left a window.
    reserves = ALLOCATORS[cache.allocator].reserves
    step_tokens = max_len if reserves else config.scheduler.max_num_batched_tokens
    most = config.scheduler.max_num_seqs * spec.blocks_at_peak(max_len, step_tokens)
    n_draft = 0 if draft is None else _draft_blocks(config, spec, draft, max_len, budget)
    draft_bytes = 0 if draft is None else n_draft * draft.block_bytes
    num_blocks = cache.num_blocks or min((budget - draft_bytes) // block_bytes, most)
    if num_blocks < 1:
        left = max(0, budget - draft_bytes)
        raise ConfigError(
            f"no KV block fits: one takes {block_bytes} B and {left} B are there; raise "
            "kv_cache_memory_bytes or lower block_size",
            param="kv_cache_memory_bytes",
        )
    memory = num_blocks * block_bytes + draft_bytes
    if memory > machine.available_bytes:
        beside = f" and {n_draft} of the draft model" if draft else ""
        raise ConfigError(
            f"{num_blocks} KV blocks of {block_bytes} B{beside} take {memory} B and only "
            f"{machine.available_bytes} B are available; lower num_blocks or block_size",
            param="num_blocks",
        )
    return replace(
        config,
        model=replace(model, max_model_len=max_len),
        cache=replace(cache, num_blocks=num_blocks, kv_cache_memory_bytes=memory),
        speculation=replace(config.speculation, speculative_num_blocks=n_draft or None),
    )


def _draft_blocks(
    config: EngineConfig, spec: KVSpec, draft: KVSpec, max_len: int, budget_bytes: int
) -> int:
    """Enough for all requests that are ever guessed for at once, at full length; but no more than
    what of equally many blocks for both models fits the budget."""
    options = config.speculation
    if options.speculative_num_blocks is not None:
        return options.speculative_num_blocks
    step_tokens = config.scheduler.max_num_batched_tokens
    most = options.speculative_max_seqs * draft.blocks_at_peak(max_len, step_tokens)
    beside = config.cache.num_blocks or budget_bytes // (spec.block_bytes + draft.block_bytes)
    return max(1, min(most, beside))
