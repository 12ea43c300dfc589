"""Small tokenizers of the kinds that models use, trained here, saved as the hub lays them out.

And the switch that lets models guess which are too small for it to pay.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from octavo.core import draft_gain

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + "
    "message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TRAINING = [
    "the quick brown fox jumps over the lazy dog and the cat sat on the mat",
    "system user assistant hello world, this is some text for training a small tokenizer",
    "def main():\n    return [x for x in range(10)]\n\tprint('1234567890')",
    "größe café naïve 漢字かな交じり文 Привет мир 👩‍👩‍👧",
] * 3
CORPUS = [
    "",
    " ",
    "hello world",
    "  two spaces, then   three\n\n\nlines\r\n\ttabs\t\t",
    "def f(x):\n    if x > 1_000:\n        return {'a': [1, 2, 3]}\n",
    "x  123 4567,89 0x1F ½ ³ ٣ 10",
    "👩‍👩‍👧‍👦 emoji 🏳️‍🌈 and 👍🏽",
    "漢字かな交じり文、한국어 텍스트。ไทย",
    "e\u0301 a\u0308\u0323 \u1e9b\u0323 Å \ufb01",
    "control \x00\x01\x1b[31m\x7f \u200b\u200e\ufeff\u2028",
    "It's they'RE we'll I'D isn't",
    "trailing space ",
    "a" * 3000,
    "word " * 500,
]

SaveFolder = Callable[..., Path]


def trained(model: models.BPE, trainer: trainers.BpeTrainer, **parts: Any) -> Tokenizer:
    tokenizer = Tokenizer(model)
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    tokenizer.train_from_iterator(TRAINING, trainer)
    return tokenizer


def byte_level(*, bos: bool = False) -> Tokenizer:
    tokenizer = trained(
        models.BPE(),
        trainers.BpeTrainer(
            vocab_size=420,
            special_tokens=SPECIALS,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
        pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoder=decoders.ByteLevel(),
    )
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False)])
    tokenizer.add_special_tokens([AddedToken("<|pad|>", rstrip=True, normalized=False)])
    tokenizer.post_processor = (
        processors.TemplateProcessing(
            single=["<|endoftext|>", "$A"], special_tokens=[("<|endoftext|>", 0)]
        )
        if bos
        else processors.ByteLevel(trim_offsets=False)
    )
    return tokenizer


def sentencepiece_like(*, metaspace: bool = False) -> Tokenizer:
    """Llama 2's conventions; with `metaspace`, the same by a pre-tokenizer."""
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer = trained(
        models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True),
        trainers.BpeTrainer(
            vocab_size=460,
            special_tokens=["<unk>", "<s>", "</s>"],
            show_progress=False,
            limit_alphabet=40,
        ),
        pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="first", split=False),
    )
    # The trainer knows no byte tokens: put them into the trained vocabulary.
    state = json.loads(tokenizer.to_str())
    vocab = state["model"]["vocab"]
    vocab.update({token: len(vocab) + i for i, token in enumerate(byte_tokens)})
    tokenizer = Tokenizer.from_str(json.dumps(state))
    if metaspace:
        tokenizer.decoder = decoders.Sequence(
            [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")]
        )
    else:
        tokenizer.pre_tokenizer = None
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
        tokenizer.decoder = decoders.Sequence(
            [
                decoders.Replace("▁", " "),
                decoders.ByteFallback(),
                decoders.Fuse(),
                decoders.Strip(" ", 1, 0),
            ]
        )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=["<s>", "$A"], special_tokens=[("<s>", 1)]
    )
    return tokenizer


@pytest.fixture(scope="session")
def save_folder(tmp_path_factory: pytest.TempPathFactory) -> SaveFolder:
    """Write a tokenizer and its configuration into a new folder."""

    def save(tokenizer: Tokenizer, **config: Any) -> Path:
        folder = tmp_path_factory.mktemp("model")
        tokenizer.save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(
            json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **config})
        )
        return folder

    return save


@pytest.fixture(scope="session")
def folders(save_folder: SaveFolder) -> dict[str, Path]:
    """One folder of each kind."""
    chatml = {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>", "chat_template": CHATML}
    llama = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return {
        "byte_level": save_folder(byte_level(), **chatml),
        "byte_level_bos": save_folder(byte_level(bos=True), **chatml),
        "sentencepiece": save_folder(sentencepiece_like(), **llama),
        "metaspace": save_folder(sentencepiece_like(metaspace=True), **llama),
    }


@pytest.fixture(scope="session")
def corpus() -> list[str]:
    return CORPUS


@pytest.fixture(scope="module")
def always_guess() -> Iterator[None]:
    """Models this small never pay: leave cost aside, measure no steps before the first guess."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draft_gain._Costs, "ratio", None)
        patch.setattr(draft_gain, "BASELINE_STEPS", 0)
        yield
