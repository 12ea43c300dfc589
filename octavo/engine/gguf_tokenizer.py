"""A tokenizer from the metadata of a GGUF file, equal to the source model's own tokenizer.

Owns which algorithm a file asks for, its special tokens and what surrounds a prompt. Reads no file:
takes the metadata as checked values, and still trusts none of its lengths and ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from octavo.engine.gguf_byte_level import byte_level_bpe, pre_tokenizer
from octavo.engine.gguf_sentencepiece import GEMMA, sentencepiece_bpe
from octavo.engine.gguf_vocab import CONTROL, PREFIX, UNKNOWN, USER_DEFINED, Vocabulary, damaged
from octavo.engine.tokenizer import LibraryTokenizer, SpecialRoles

if TYPE_CHECKING:
    import tokenizers

_ROLES = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}


def from_metadata(metadata: Mapping[str, Any]) -> LibraryTokenizer:
    """The tokenizer described by a GGUF file's metadata.

    Raises ModelFileError naming the key that is missing, damaged or not supported.
    """
    source, vocabulary, add_bos = _source(metadata)
    tokens = vocabulary.tokens
    ids = {role: vocabulary.token_id(role) for role in _ROLES}
    ids["unknown"] = vocabulary.unknown_id()
    source.post_processor = _post_processor(vocabulary, ids, add_bos=add_bos)
    eos = [ids["eos"], *(vocabulary.token_id(role) for role in ("eot", "eom"))]
    template = metadata.get("tokenizer.chat_template")
    if template is not None and not isinstance(template, str):
        raise damaged("tokenizer.chat_template", "is not a string")
    roles = SpecialRoles(
        bos_id=ids["bos"],
        eos_ids=tuple(dict.fromkeys(i for i in eos if i is not None)),
        named={_ROLES[role]: tokens[i] for role, i in ids.items() if i is not None},
        chat_template=template,
    )
    return LibraryTokenizer(source, roles)


def _source(metadata: Mapping[str, Any]) -> tuple[tokenizers.Tokenizer, Vocabulary, bool]:
    """The tokenizer with its marked tokens, and whether BOS leads if the file is silent."""
    model = metadata.get(PREFIX + "model")
    if model == "gpt2":
        pre = pre_tokenizer(metadata.get(PREFIX + "pre", "default"))
        vocabulary = Vocabulary(metadata)
        source = byte_level_bpe(vocabulary, pre)
        _add_marked_tokens(source, vocabulary)
        return source, vocabulary, pre.add_bos
    if model == "llama":
        architecture = metadata.get("general.architecture")
        vocabulary = Vocabulary(metadata)
        source = sentencepiece_bpe(vocabulary, architecture)
        _add_marked_tokens(source, vocabulary, respelled_spaces=architecture in GEMMA)
        return source, vocabulary, True
    raise damaged(
        PREFIX + "model",
        f"is {str(model)[:40]!r}, which is not supported; supported are 'gpt2' (byte-level BPE) "
        "and 'llama' (SentencePiece). Give a folder with the model's tokenizer.json instead",
    )


def _add_marked_tokens(
    source: tokenizers.Tokenizer, vocabulary: Vocabulary, *, respelled_spaces: bool = False
) -> None:
    """Control tokens become special; user-defined ones are matched whole but stay ordinary text.

    `respelled_spaces`: runs of spaces are pieces of the model, under another spelling.
    """
    from tokenizers import AddedToken

    source.add_tokens(
        [
            AddedToken(token, special=kind != USER_DEFINED, normalized=False)
            for token, kind in zip(vocabulary.tokens, vocabulary.kinds, strict=True)
            if kind in (UNKNOWN, CONTROL, USER_DEFINED)
            and token
            and not (respelled_spaces and not token.strip(" "))
        ]
    )


def _post_processor(vocabulary: Vocabulary, ids: Mapping[str, int | None], *, add_bos: bool) -> Any:
    """What is put around a plain prompt: BOS, EOS or nothing, as the file says."""
    from tokenizers import processors

    ends: dict[str, tuple[str, int] | None] = {}
    for role, default in (("bos", add_bos), ("eos", False)):
        name = f"add_{role}_token"
        wanted, token_id = vocabulary.flag(name, default), ids[role]
        if wanted and token_id is None and vocabulary.has(name):
            raise damaged(PREFIX + name, f"is true, but there is no {PREFIX}{role}_token_id")
        ends[role] = None
        if wanted and token_id is not None:
            ends[role] = (vocabulary.tokens[token_id], token_id)
    return processors.TemplateProcessing(
        single=[*([ends["bos"][0]] if ends["bos"] else []), "$A"]
        + ([ends["eos"][0]] if ends["eos"] else []),
        special_tokens=list({end for end in ends.values() if end is not None}),
    )
