"""Tokenizers from GGUF metadata: equal to the source tokenizer, and strict about a damaged file."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, pre_tokenizers

from octavo.core.errors import ModelFileError
from octavo.core.gguf_header import read_header
from octavo.engine.detokenize import TextStream
from octavo.engine.gguf_byte_level import PRE_TOKENIZERS, byte_level_bpe
from octavo.engine.gguf_tokenizer import from_metadata
from octavo.engine.gguf_vocab import Vocabulary
from octavo.engine.hf_tokenizer import from_folder
from octavo.engine.tokenizer import LibraryTokenizer

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4


def metadata_of(folder: Path, **changes: Any) -> dict[str, Any]:
    """GGUF metadata that says the same as a folder's byte-level tokenizer.json."""
    state = json.loads((folder / "tokenizer.json").read_text())
    vocab = dict(state["model"]["vocab"])
    vocab.update({token["content"]: token["id"] for token in state["added_tokens"]})
    kinds = [NORMAL] * len(vocab)
    for token in state["added_tokens"]:
        kinds[token["id"]] = CONTROL if token["special"] else USER_DEFINED
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": sorted(vocab, key=vocab.__getitem__),
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": [" ".join(pair) for pair in state["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": "template",
    }
    return {**metadata, **{f"tokenizer.ggml.{key}": value for key, value in changes.items()}}


@pytest.fixture
def metadata(folders: dict[str, Path]) -> dict[str, Any]:
    return metadata_of(folders["byte_level"])


def words(tokenizer: LibraryTokenizer, text: str) -> list[str]:
    return [tokenizer.token_bytes(i).decode() for i in tokenizer.encode(text)]


def test_equal_to_the_folder_it_was_made_from(
    metadata: dict[str, Any], folders: dict[str, Path], corpus: list[str]
) -> None:
    mine, source = from_metadata(metadata), from_folder(folders["byte_level"])
    assert (mine.vocab_size, mine.bos_id, mine.eos_ids) == (source.vocab_size, 0, (2,))
    assert mine.special_ids == source.special_ids
    assert mine.named_specials == source.named_specials
    assert mine.chat_template == "template"
    for text in corpus:
        assert mine.encode(text) == source.encode(text)
        rendered = f"<|im_start|>{text}<|im_end|>\n<tool>{text}"
        assert mine.encode_rendered(rendered) == source.encode_rendered(rendered)


@pytest.mark.parametrize(
    ("pre", "text", "expected"),
    [
        ("gpt-2", "7123", ["7", "123"]),
        ("smollm", "7123", ["7", "1", "2", "3"]),
        ("qwen2", "7123", ["7", "1", "2", "3"]),
        ("llama-bpe", "7123", ["712", "3"]),
        ("gpt-2", "a  7", ["a", " ", " 7"]),
        ("smollm", "a  7", ["a", "  ", "7"]),
        ("command-r", "a  7", ["a", "  ", "7"]),
        ("command-r", "\u0041\u030a", ["\u00c5"]),
        ("dbrx", "7123", ["712", "3"]),
        ("tekken", "7123", ["7", "1", "2", "3"]),
        ("tekken", "aL'LL", ["a", "L", "'LL"]),
        ("gpt-4o", "7123", ["712", "3"]),
        ("gpt-4o", "aL'LL", ["a", "L", "'LL"]),
        ("qwen2", "a  7", ["a", " ", " ", "7"]),
        ("gpt-2", "A'LL", ["A", "'", "LL"]),
        ("llama-bpe", "A'LL", ["A", "'LL"]),
        ("gpt-2", "\u0041\u030a", ["A", "\u030a"]),
        ("qwen2", "\u0041\u030a", ["\u00c5"]),
    ],
)
def test_each_pre_tokenizer_cuts_words_its_own_way(
    pre: str, text: str, expected: list[str]
) -> None:
    """A vocabulary with every merge these words could want shows where each one cuts."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = ["1 2", "12 3", "7 12", "Ġ 7", "Ġ Ġ", "L L", "' LL", "Ì Ĭ", "Ã ħ"]
    tokens = [*alphabet, *(merge.replace(" ", "") for merge in merges)]
    tokenizer = from_metadata(
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": pre,
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [NORMAL] * len(tokens),
            "tokenizer.ggml.merges": merges,
            "tokenizer.ggml.add_bos_token": False,
        }
    )
    assert words(tokenizer, text) == expected


TRICKY = "aA1 \n\r\t'sSllRE/.,_-!?éÉß漢字かなแั\u0301\u0308ǅʰª²½٣Ⅷ👍🏽\u200d\u00a0\u3000<|>"


def cuts(parts: Any, text: str) -> list[str]:
    return [part for part, _ in parts.pre_tokenize_str(text)]


@pytest.mark.parametrize("name", [name for name, pre in PRE_TOKENIZERS.items() if pre.split])
def test_words_are_cut_as_transformers_cuts_them_for_this_name(name: str) -> None:
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    ours, theirs = (
        pre_tokenizers.Split(Regex(split), behavior="isolated")
        for split in (PRE_TOKENIZERS[name].split, GGUF_PRE_TOKENIZER_SPLITS[name])
    )
    drawn = random.Random(name)
    for _ in range(2000):
        text = "".join(drawn.choices(TRICKY, k=drawn.randint(1, 24)))
        assert cuts(ours, text) == cuts(theirs, text)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("command-r", "CohereTokenizer"),
        ("qwen2", "Qwen2Tokenizer"),
        ("qwen35", "Qwen3_5Tokenizer"),
        ("phi-2", "CodeGenTokenizer"),
        ("gpt-2", "GPT2Tokenizer"),
    ],
)
def test_text_is_prepared_as_the_source_tokenizer_does(name: str, source: str) -> None:
    """Normalisation and cutting together, by the class that transformers has for the model."""
    import transformers

    theirs = getattr(transformers, source)().backend_tokenizer
    vocabulary = Vocabulary(
        {
            "tokenizer.ggml.tokens": [*sorted(pre_tokenizers.ByteLevel.alphabet()), "aa"],
            "tokenizer.ggml.token_type": [NORMAL] * 257,
            "tokenizer.ggml.merges": ["a a"],
        }
    )
    ours = byte_level_bpe(vocabulary, PRE_TOKENIZERS[name])
    drawn = random.Random(name)
    for _ in range(1000):
        text = "".join(drawn.choices(TRICKY, k=drawn.randint(1, 24)))
        prepared = [
            cuts(t.pre_tokenizer, t.normalizer.normalize_str(text) if t.normalizer else text)
            for t in (ours, theirs)
        ]
        assert prepared[0] == prepared[1]


def test_llama_takes_a_whole_word_without_merges(metadata: dict[str, Any]) -> None:
    metadata["tokenizer.ggml.tokens"].append("xqz")
    metadata["tokenizer.ggml.token_type"].append(NORMAL)
    assert len(words(from_metadata(metadata), "xqz")) > 1
    metadata["tokenizer.ggml.pre"] = "llama-bpe"
    metadata["tokenizer.ggml.add_bos_token"] = False
    assert words(from_metadata(metadata), "xqz") == ["xqz"]


@pytest.mark.parametrize(
    ("changes", "first", "last"),
    [
        ({}, False, False),
        ({"add_bos_token": True}, True, False),
        ({"add_bos_token": True, "add_eos_token": True}, True, True),
        ({"pre": "llama-bpe"}, True, False),
        ({"pre": "llama-bpe", "add_bos_token": False}, False, False),
        ({"add_bos_token": True, "eos_token_id": 0, "add_eos_token": True}, True, True),
    ],
)
def test_bos_and_eos_surround_a_prompt_as_the_file_says(
    changes: dict[str, Any], first: bool, last: bool, folders: dict[str, Path]
) -> None:
    metadata = metadata_of(folders["byte_level"], **changes)
    tokenizer = from_metadata(metadata)
    ids = tokenizer.encode("hello")
    assert (ids[0] == 0) == first
    assert (ids[-1] == metadata["tokenizer.ggml.eos_token_id"]) == last
    assert tokenizer.encode_rendered("hello") == ids[first : len(ids) - last]


def test_every_end_of_generation_counts(folders: dict[str, Path]) -> None:
    metadata = metadata_of(folders["byte_level"], eot_token_id=1, eom_token_id=2)
    assert from_metadata(metadata).eos_ids == (2, 1)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("model", "t5", "'gpt2'.*'llama'"),
        ("model", None, "not supported"),
        ("pre", "deepseek-v3", "known: smollm"),
        ("pre", 7, "not supported"),
        ("tokens", None, "missing"),
        ("tokens", [], "missing"),
        ("tokens", ["a", 1], "entry 1"),
        ("tokens", ["a" * 5000], "entry 0"),
        ("tokens", ["a", "a"], "twice"),
        ("token_type", [1, 1], "one entry for each"),
        ("token_type", None, "one entry for each"),
        ("merges", None, "missing"),
        ("merges", ["ab"], "entry 0"),
        ("merges", [" ab"], "entry 0"),
        ("merges", ["a b c"], "entry 0"),
        ("merges", ["a nonsense"], "not in the vocabulary"),
        ("bos_token_id", 10**9, "is not the id"),
        ("eos_token_id", -1, "is not the id"),
        ("eos_token_id", True, "is not the id"),
        ("eot_token_id", "2", "is not the id"),
        ("add_bos_token", 1, "true nor false"),
    ],
)
def test_damaged_metadata_is_refused_by_key(
    key: str, value: Any, message: str, metadata: dict[str, Any]
) -> None:
    metadata[f"tokenizer.ggml.{key}"] = value
    with pytest.raises(ModelFileError, match=message) as caught:
        from_metadata(metadata)
    assert "tokenizer.ggml." in caught.value.message


def test_other_damage_is_refused(metadata: dict[str, Any], folders: dict[str, Path]) -> None:
    twice = list(metadata["tokenizer.ggml.tokens"])
    twice[-1] = twice[-2]
    for changes, message in [
        ({"tokens": twice}, "twice"),
        ({"token_type": [9] * len(twice)}, "from 0 to 6"),
        ({"bos_token_id": None, "add_bos_token": True}, "there is no tokenizer.ggml.bos_token_id"),
    ]:
        with pytest.raises(ModelFileError, match=message):
            from_metadata(metadata_of(folders["byte_level"], **changes))
    with pytest.raises(ModelFileError, match="chat_template"):
        from_metadata({**metadata, "tokenizer.chat_template": 1})


def test_all_pre_tokenizers_keep_the_text(metadata: dict[str, Any], corpus: list[str]) -> None:
    for name, pre in PRE_TOKENIZERS.items():
        tokenizer = from_metadata({**metadata, "tokenizer.ggml.pre": name})
        for text in corpus:
            if not pre.nfc:
                assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.fixture(scope="module")
def default_tokenizer(default_gguf: Path) -> LibraryTokenizer:
    return from_metadata(read_header(default_gguf).metadata)


@pytest.fixture(scope="module")
def oracle(default_gguf: Path) -> Any:
    """The same file as transformers reads it, but with the digits of SmolLM's own tokenizer.

    transformers does not look at `tokenizer.ggml.pre` "smollm"; SmolLM's tokenizer.json isolates
    every digit before the byte-level split.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(
        str(default_gguf.parent), gguf_file=default_gguf.name, local_files_only=True
    )
    backend: Tokenizer = tokenizer.backend_tokenizer
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    return tokenizer


def test_the_default_model_is_tokenized_as_its_source_does(
    default_tokenizer: LibraryTokenizer, oracle: Any, corpus: list[str]
) -> None:
    mine = default_tokenizer
    for text in [*corpus, "".join(corpus), "".join(map(chr, range(0x20, 0x3000)))]:
        assert mine.encode(text) == oracle.encode(text)
        rendered = f"<|im_start|>user\n{text}<|im_end|>\n<file_sep>{text}<|im_start|>assistant\n"
        ids = mine.encode_rendered(rendered)
        assert ids == oracle.encode(rendered, add_special_tokens=False)
        assert mine.decode(ids, skip_special=False) == rendered == oracle.decode(ids)
        assert mine.decode(ids) == oracle.decode(ids, skip_special_tokens=True)
        stream = TextStream(mine)
        assert "".join(map(stream.push, ids)) + stream.finish() == mine.decode(ids)


def test_the_default_model_has_its_roles(default_tokenizer: LibraryTokenizer) -> None:
    assert (default_tokenizer.vocab_size, default_tokenizer.eos_ids) == (49152, (2,))
    assert default_tokenizer.special_ids == frozenset(range(17))
    ids = default_tokenizer.encode("12 <|im_end|>")
    assert words(default_tokenizer, "12")[:2] == ["1", "2"]
    assert not default_tokenizer.special_ids.intersection(ids)


def test_the_default_model_loads_fast(default_gguf: Path) -> None:
    metadata = read_header(default_gguf).metadata
    from_metadata(metadata)  # the first call also imports the library
    started = time.process_time()
    from_metadata(metadata)
    assert time.process_time() - started < 0.5
