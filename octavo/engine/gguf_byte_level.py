"""Byte-level BPE from a GGUF vocabulary. Owns the table of pre-tokenizers; reads no metadata keys.

A file names its pre-tokenizer and says nothing else about how text is cut into words. A name is in
the table where the source tokenizer's own rules for it are known; others are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octavo.engine.gguf_vocab import PREFIX, Vocabulary, damaged

if TYPE_CHECKING:
    import tokenizers

# How the models' own tokenizer files cut text into words: a contraction, letters, digits, signs,
# line ends, spaces. %s is how many digits make a word.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# The same where marks count as letters.
_WORDS_WITH_MARKS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Where a capital begins a word: letters of either case, those without case and marks are in both.
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def _cased_words(contraction: str, digits: str) -> str:
    start = r"[^\r\n\p{L}\p{N}]?"
    return (
        rf"{start}{_UPPER}*{_LOWER}+{contraction}|{start}{_UPPER}+{_LOWER}*{contraction}|{digits}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


@dataclass(frozen=True, slots=True)
class Pre:
    """One pre-tokenizer. `add_bos` is what holds when the file does not say.

    split          a regular expression for words; None for GPT-2's.
    single_digits  every digit is a word of its own, before anything else.
    nfc            text is normalised to NFC first.
    whole_words    a word that is a vocabulary entry is taken whole, without merges.
    """

    split: str | None = None
    single_digits: bool = False
    nfc: bool = False
    whole_words: bool = False
    add_bos: bool = False


_LLAMA_3 = Pre(split=_WORDS % r"\p{N}{1,3}", whole_words=True, add_bos=True)
_O200K = Pre(split=_cased_words(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?", r"\p{N}{1,3}"), whole_words=True)
PRE_TOKENIZERS: dict[str, Pre] = {
    "smollm": Pre(single_digits=True),
    "starcoder": Pre(single_digits=True),
    "command-r": Pre(single_digits=True, nfc=True),
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "lfm2"), _LLAMA_3
    ),
    "dbrx": Pre(split=_WORDS % r"\p{N}{1,3}"),
    "smaug-bpe": Pre(split=_WORDS % r"\p{N}{1,3}"),
    "qwen2": Pre(split=_WORDS % r"\p{N}", nfc=True),
    "qwen35": Pre(split=_WORDS_WITH_MARKS, nfc=True),
    "tekken": Pre(split=_cased_words("", r"\p{N}"), whole_words=True, add_bos=True),
    "gpt-4o": _O200K,
    "llama4": _O200K,
    "gpt-2": Pre(),
    "phi-2": Pre(),
    "default": Pre(),
}


def pre_tokenizer(name: object) -> Pre:
    """The row of the table. Raises ModelFileError naming those there are."""
    pre = PRE_TOKENIZERS.get(name) if isinstance(name, str) else None
    if pre is None:
        raise damaged(
            PREFIX + "pre",
            f"is {str(name)[:40]!r}, which is not supported; known: {', '.join(PRE_TOKENIZERS)}. "
            "Give a folder with the model's tokenizer.json instead",
        )
    return pre


def byte_level_bpe(vocabulary: Vocabulary, pre: Pre) -> tokenizers.Tokenizer:
    """The tokenizer without its marked tokens and without what surrounds a prompt."""
    from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers
    from tokenizers.models import BPE

    merges = vocabulary.merges()
    source = Tokenizer(BPE(vocabulary.ids_by_token(), merges, ignore_merges=pre.whole_words))
    steps: list[Any] = [pre_tokenizers.Digits(individual_digits=True)] if pre.single_digits else []
    if pre.split is not None:
        steps.append(pre_tokenizers.Split(Regex(pre.split), behavior="isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre.split is None))
    source.pre_tokenizer = pre_tokenizers.Sequence(steps)
    source.decoder = decoders.ByteLevel()
    if pre.nfc:
        source.normalizer = normalizers.NFC()
    return source
