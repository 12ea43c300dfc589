"""A tokenizer from the metadata of a GGUF file, equal to the source model's own tokenizer.

Owns the meaning of `tokenizer.ggml.*` and the table of pre-tokenizers. Reads no file: takes the
metadata as checked values, and still trusts none of its lengths and ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octavo.core.errors import ModelFileError
from octavo.engine.tokenizer import LibraryTokenizer, SpecialRoles

if TYPE_CHECKING:
    import tokenizers

MAX_VOCAB = 1 << 20
MAX_TOKEN_CHARS = 1 << 12
_PREFIX = "tokenizer.ggml."
_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4
_ROLES = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}

# How Llama 3's and Qwen 2's tokenizers cut text into words, as their tokenizer files give it.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
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
_QWEN_2 = Pre(split=_WORDS % r"\p{N}", nfc=True)
PRE_TOKENIZERS: dict[str, Pre] = {
    "smollm": Pre(single_digits=True),
    "starcoder": Pre(single_digits=True),
    "llama-bpe": _LLAMA_3,
    "llama3": _LLAMA_3,
    "llama-v3": _LLAMA_3,
    "qwen2": _QWEN_2,
    "gpt-2": Pre(),
    "default": Pre(),
}


def from_metadata(metadata: Mapping[str, Any]) -> LibraryTokenizer:
    """The tokenizer described by a GGUF file's metadata.

    Raises ModelFileError naming the key that is missing, damaged or not supported.
    """
    pre = _pre_tokenizer(metadata)
    tokens = _strings(metadata, "tokens", MAX_VOCAB)
    kinds = _token_types(metadata, len(tokens))
    source = _byte_level_bpe(tokens, _merges(metadata), pre)
    _add_marked_tokens(source, tokens, kinds)
    ids = {name: _token_id(metadata, name, len(tokens)) for name in _ROLES}
    source.post_processor = _post_processor(metadata, tokens, ids, pre)
    eos = [ids["eos"], *(_token_id(metadata, name, len(tokens)) for name in ("eot", "eom"))]
    template = metadata.get("tokenizer.chat_template")
    if template is not None and not isinstance(template, str):
        raise _damaged("tokenizer.chat_template", "is not a string")
    roles = SpecialRoles(
        bos_id=ids["bos"],
        eos_ids=tuple(dict.fromkeys(i for i in eos if i is not None)),
        named={_ROLES[name]: tokens[i] for name, i in ids.items() if i is not None},
        chat_template=template,
    )
    return LibraryTokenizer(source, roles)


def _damaged(key: str, what: str) -> ModelFileError:
    return ModelFileError(f"the GGUF file's {key} {what}", param=key)


def _pre_tokenizer(metadata: Mapping[str, Any]) -> Pre:
    model = metadata.get(_PREFIX + "model")
    if model != "gpt2":
        raise _damaged(
            _PREFIX + "model",
            f"is {str(model)[:40]!r}, which is not supported; the supported one is 'gpt2' "
            "(byte-level BPE). Give a folder with the model's tokenizer.json instead",
        )
    name = metadata.get(_PREFIX + "pre", "default")
    pre = PRE_TOKENIZERS.get(name) if isinstance(name, str) else None
    if pre is None:
        raise _damaged(
            _PREFIX + "pre",
            f"is {str(name)[:40]!r}, which is not supported; known: {', '.join(PRE_TOKENIZERS)}. "
            "Give a folder with the model's tokenizer.json instead",
        )
    return pre


def _strings(metadata: Mapping[str, Any], name: str, limit: int) -> list[str]:
    key = _PREFIX + name
    values = metadata.get(key)
    if not isinstance(values, list | tuple) or not values:
        raise _damaged(key, "is missing or not a list of strings")
    if len(values) > limit:
        raise _damaged(key, f"has {len(values)} entries; the limit is {limit}")
    for place, value in enumerate(values):
        if not isinstance(value, str) or len(value) > MAX_TOKEN_CHARS:
            raise _damaged(
                key, f"entry {place} is not a string of at most {MAX_TOKEN_CHARS} characters"
            )
    return list(values)


def _token_types(metadata: Mapping[str, Any], n_tokens: int) -> list[int]:
    key = _PREFIX + "token_type"
    kinds = metadata.get(key)
    if not isinstance(kinds, list | tuple) or len(kinds) != n_tokens:
        raise _damaged(key, f"does not have one entry for each of the {n_tokens} tokens")
    if not all(isinstance(kind, int) and 0 <= kind <= 6 for kind in kinds):
        raise _damaged(key, "has an entry that is not a token type from 0 to 6")
    return list(kinds)


def _merges(metadata: Mapping[str, Any]) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for place, line in enumerate(_strings(metadata, "merges", 2 * MAX_VOCAB)):
        left, space, right = line.partition(" ")
        if not left or not space or not right or " " in right:
            raise _damaged(_PREFIX + "merges", f"entry {place} is not two tokens and one space")
        pairs.append((left, right))
    return pairs


def _byte_level_bpe(
    tokens: list[str], merges: list[tuple[str, str]], pre: Pre
) -> tokenizers.Tokenizer:
    from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers
    from tokenizers.models import BPE

    vocab = {token: i for i, token in enumerate(tokens)}
    if len(vocab) != len(tokens):
        raise _damaged(_PREFIX + "tokens", "names a token twice")
    for left, right in merges:
        if left not in vocab or right not in vocab or left + right not in vocab:
            raise _damaged(_PREFIX + "merges", "names a token that is not in the vocabulary")
    source = Tokenizer(BPE(vocab, merges, ignore_merges=pre.whole_words))
    steps: list[Any] = [pre_tokenizers.Digits(individual_digits=True)] if pre.single_digits else []
    if pre.split is not None:
        steps.append(pre_tokenizers.Split(Regex(pre.split), behavior="isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre.split is None))
    source.pre_tokenizer = pre_tokenizers.Sequence(steps)
    source.decoder = decoders.ByteLevel()
    if pre.nfc:
        source.normalizer = normalizers.NFC()
    return source


def _add_marked_tokens(source: tokenizers.Tokenizer, tokens: list[str], kinds: list[int]) -> None:
    """Control tokens become special; user-defined ones are matched whole but stay ordinary text."""
    from tokenizers import AddedToken

    marked = [
        AddedToken(token, special=kind != _USER_DEFINED, normalized=False)
        for token, kind in zip(tokens, kinds, strict=True)
        if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED) and token
    ]
    source.add_tokens(marked)


def _token_id(metadata: Mapping[str, Any], name: str, n_tokens: int) -> int | None:
    key = f"{_PREFIX}{name}_token_id"
    value = metadata.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < n_tokens:
        raise _damaged(key, f"is not the id of one of the {n_tokens} tokens")
    return value


def _post_processor(
    metadata: Mapping[str, Any], tokens: list[str], ids: Mapping[str, int | None], pre: Pre
) -> Any:
    """What is put around a plain prompt: BOS, EOS or nothing, as the file says."""
    from tokenizers import processors

    ends: dict[str, tuple[str, int] | None] = {}
    for name, default in (("bos", pre.add_bos), ("eos", False)):
        key = f"{_PREFIX}add_{name}_token"
        wanted = metadata.get(key, default)
        if not isinstance(wanted, bool):
            raise _damaged(key, "is neither true nor false")
        token_id = ids[name]
        if wanted and token_id is None and key in metadata:
            raise _damaged(key, f"is true, but there is no {_PREFIX}{name}_token_id")
        ends[name] = (tokens[token_id], token_id) if wanted and token_id is not None else None
    return processors.TemplateProcessing(
        single=[*([ends["bos"][0]] if ends["bos"] else []), "$A"]
        + ([ends["eos"][0]] if ends["eos"] else []),
        special_tokens=list({end for end in ends.values() if end is not None}),
    )
