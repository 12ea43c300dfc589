"""A tokenizer from a model folder as the hub lays it out.

Owns which file says what: tokenizer.json, tokenizer_config.json, special_tokens_map.json,
chat_template.jinja, generation_config.json. Reads tokenizer.json without transformers, whose import
takes seconds; transformers converts a SentencePiece model only where that is all there is. What is
put around a plain prompt is tokenizer.json's to say, as in transformers: `add_bos_token` in the
config of a folder that has one changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.core.errors import ConfigError, ModelFileError
from octavo.engine.tokenizer import LibraryTokenizer, SpecialRoles

if TYPE_CHECKING:
    import tokenizers

MAX_TOKENIZER_BYTES = 1 << 28
MAX_JSON_BYTES = 1 << 24
MAX_TEMPLATE_BYTES = 1 << 20
_MAX_ID_DIGITS = 9
_ROLES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")
_SENTENCEPIECE = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model")


def from_folder(folder: Path) -> LibraryTokenizer:
    """The tokenizer of the model in `folder`.

    Raises ConfigError when there is none, ModelFileError when a file is damaged or not supported.
    """
    config = _json_object(folder / "tokenizer_config.json")
    specials_map = _json_object(folder / "special_tokens_map.json")
    named = {
        role: spelling
        for role in _ROLES
        if (spelling := _spelling(config.get(role, specials_map.get(role)))) is not None
    }
    if (folder / "tokenizer.json").is_file():
        source = _read_tokenizer_json(folder / "tokenizer.json")
        _add_missing_tokens(source, config, named)
    elif any((folder / name).is_file() for name in _SENTENCEPIECE):
        source, spellings = _convert_sentencepiece(folder)
        named = {**spellings, **named}
    else:
        raise ConfigError(
            f"the model folder {folder.name!r} has no tokenizer (tokenizer.json or "
            "tokenizer.model); add one, or set skip_tokenizer_init and send token ids",
            param="skip_tokenizer_init",
        )
    ids = {role: source.token_to_id(spelling) for role, spelling in named.items()}
    roles = SpecialRoles(
        bos_id=ids.get("bos_token"),
        eos_ids=_eos_ids(folder, ids.get("eos_token"), source),
        named={role: spelling for role, spelling in named.items() if ids[role] is not None},
        chat_template=_chat_template(folder, config),
    )
    return LibraryTokenizer(source, roles)


def _read_text(path: Path, limit_bytes: int) -> str | None:
    try:
        with path.open("rb") as file:
            data = file.read(limit_bytes + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ModelFileError(f"{path.name} cannot be read: {error.strerror}") from None
    if len(data) > limit_bytes:
        raise ModelFileError(f"{path.name} is larger than {limit_bytes} bytes", param=path.name)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ModelFileError(f"{path.name} is not UTF-8 text", param=path.name) from None


def _json_object(path: Path) -> dict[str, Any]:
    """The JSON object in `path`; empty if there is no such file."""
    text = _read_text(path, MAX_JSON_BYTES)
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise ModelFileError(f"{path.name} is not valid JSON", param=path.name) from None
    if not isinstance(value, dict):
        raise ModelFileError(f"{path.name} is not a JSON object", param=path.name)
    return value


def _spelling(value: object) -> str | None:
    """A special token's text: the hub writes it as a string or as an object with `content`."""
    if isinstance(value, Mapping):
        value = value.get("content")
    if not isinstance(value, str) or not value:
        return None
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ModelFileError(
            "tokenizer_config.json: a special token holds half of a surrogate pair",
            param="tokenizer_config.json",
        )
    return value


def _read_tokenizer_json(path: Path) -> tokenizers.Tokenizer:
    from tokenizers import Tokenizer

    if path.stat().st_size > MAX_TOKENIZER_BYTES:
        raise ModelFileError(
            f"{path.name} is larger than {MAX_TOKENIZER_BYTES} bytes", param=path.name
        )
    try:
        source = Tokenizer.from_file(str(path))
    except Exception:  # the library raises plain Exception for every fault of a file
        raise ModelFileError(
            f"{path.name} is damaged or of a kind that the tokenizers library does not know",
            param=path.name,
        ) from None
    source.no_truncation()
    source.no_padding()
    return source


def _add_missing_tokens(
    source: tokenizers.Tokenizer, config: Mapping[str, Any], named: Mapping[str, str]
) -> None:
    """Tokens that only tokenizer_config.json knows, in the order of their ids."""
    from tokenizers import AddedToken

    present = {token.content for token in source.get_added_tokens_decoder().values()}
    listed = config.get("added_tokens_decoder")
    entries = listed if isinstance(listed, Mapping) else {}
    wanted: dict[str, AddedToken] = {}
    numbered = (k for k in entries if str(k).isdecimal() and len(k) <= _MAX_ID_DIGITS)
    for key in sorted(numbered, key=int):
        entry = entries[key]
        if not isinstance(entry, Mapping) or (content := _spelling(entry)) is None:
            continue
        flags = {
            flag: bool(entry.get(flag, False))
            for flag in ("single_word", "lstrip", "rstrip", "normalized", "special")
        }
        wanted[content] = AddedToken(content, **flags)
    for content in named.values():
        wanted.setdefault(content, AddedToken(content, special=True, normalized=False))
    missing = [token for content, token in wanted.items() if content not in present]
    if missing:
        source.add_tokens(missing)


def _convert_sentencepiece(folder: Path) -> tuple[tokenizers.Tokenizer, dict[str, str]]:
    """The converted tokenizer, and the special tokens that the SentencePiece model names."""
    from transformers import AutoTokenizer

    try:
        converted = AutoTokenizer.from_pretrained(
            str(folder), trust_remote_code=False, local_files_only=True
        )
        source = converted.backend_tokenizer
        found = converted.special_tokens_map
    except Exception as error:  # whatever the conversion raises, the model's files are the cause
        raise ModelFileError(
            f"the SentencePiece tokenizer of {folder.name!r} could not be converted "
            f"({type(error).__name__}); give the folder a tokenizer.json",
            param="tokenizer.model",
        ) from None
    copy = type(source).from_str(source.to_str())
    copy.no_truncation()
    copy.no_padding()
    return copy, {role: str(found[role]) for role in _ROLES if role in found}


def _eos_ids(
    folder: Path, tokenizer_eos: int | None, source: tokenizers.Tokenizer
) -> tuple[int, ...]:
    """The tokenizer's EOS and those of generation_config.json (or else config.json)."""
    found: list[Any] = [] if tokenizer_eos is None else [tokenizer_eos]
    for name in ("generation_config.json", "config.json"):
        value = _json_object(folder / name).get("eos_token_id")
        if value is None:
            continue
        values = value if isinstance(value, list) else [value]
        n_tokens = source.get_vocab_size()
        for token_id in values:
            if isinstance(token_id, bool) or not isinstance(token_id, int) or token_id < 0:
                raise ModelFileError(f"{name}: eos_token_id is not a token id", param=name)
            if token_id < n_tokens:
                found.append(token_id)
        break
    return tuple(dict.fromkeys(found))


def _chat_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """chat_template.jinja, else the config's; of several named ones, the one called default."""
    text = _read_text(folder / "chat_template.jinja", MAX_TEMPLATE_BYTES)
    if text is not None:
        return text
    value = config.get("chat_template")
    if isinstance(value, list):
        named = (item for item in value if isinstance(item, Mapping))
        default = next((item for item in named if item.get("name") == "default"), {})
        value = default.get("template")
    if value is not None and not isinstance(value, str):
        raise ModelFileError(
            "tokenizer_config.json: chat_template is not a string", param="tokenizer_config.json"
        )
    return value
