"""Text to token ids and back: what the engine asks of a tokenizer, and the one implementation.

Owns the rule that special tokens come from the model's own template only: text that merely spells
one stays text. Knows no files (`hf_tokenizer`, `gguf_tokenizer` build it) and no chat roles.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from octavo.core.errors import ModelFileError, RequestError
from octavo.engine.pieces import piece_decoder
from octavo.engine.tool_parser import CLOSE, OPEN

if TYPE_CHECKING:
    import tokenizers


class Tokenizer(Protocol):
    """What the engine needs of a tokenizer. Every method may be called from any thread."""

    @property
    def vocab_size(self) -> int:
        """Ids are below this, added tokens included. A model's logits may be padded beyond it."""

    @property
    def bos_id(self) -> int | None: ...

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Ids that end a generation, the file's main one first."""

    @property
    def special_ids(self) -> frozenset[int]:
        """Control tokens: never made from plain text, left out of decoded text."""

    @property
    def special_pattern(self) -> re.Pattern[str] | None:
        """Finds every spelling of a special token, the longest first; None if there is none."""

    @property
    def named_specials(self) -> Mapping[str, str]:
        """Spellings by role, as chat templates read them: bos_token, eos_token, …"""

    @property
    def chat_template(self) -> str | None: ...

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:
        """Ids of a plain prompt, with the BOS or EOS that the source tokenizer adds by itself."""

    def encode_rendered(self, text: str, *, literal: Mapping[str, str] | None = None) -> list[int]:
        """Ids of a rendered chat template: its specials count, nothing is added around it.

        `literal`: single characters of `text` that stand for spellings which must stay text.
        """

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Text of `ids`. Broken UTF-8 becomes U+FFFD; an id outside the vocabulary is no text."""

    def token_bytes(self, token_id: int, *, first: bool = False) -> bytes:
        """Bytes one token stands for; `first`: nothing of this text came before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecialRoles:
    """Which special tokens play which part, as the model's files say."""

    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    named: Mapping[str, str] = field(default_factory=dict)
    chat_template: str | None = None


class LibraryTokenizer:
    """A tokenizer of the `tokenizers` library behind the engine's protocol.

    Special tokens are matched under secret spellings drawn at start instead of their public ones,
    so no text can produce them; `encode_rendered` swaps the public spellings of a rendered template
    for the secret ones. All else (normaliser, splitting, strip flags) is the source tokenizer's.

    The tags of a tool call are text, also where a model's files call them special: what the model
    calls must be seen in what it says.
    """

    def __init__(self, source: tokenizers.Tokenizer, roles: SpecialRoles) -> None:
        added = source.get_added_tokens_decoder()
        named = set(roles.named.values())
        special = {t.content for t in added.values() if t.special} - {OPEN, CLOSE} | named
        specials = {i: t for i, t in added.items() if t.content in special}
        self.bos_id = roles.bos_id
        self.eos_ids = roles.eos_ids
        self.named_specials = roles.named
        self.chat_template = roles.chat_template
        self.special_ids = frozenset(specials)
        self.vocab_size = max([source.get_vocab_size(), *(i + 1 for i in added)])
        self.special_pattern = _alternatives(token.content for token in specials.values())
        decoder = source.decoder
        self._pieces = piece_decoder(json.loads(decoder.__getstate__()) if decoder else None)
        self._source = source
        self._secret = _secret_spellings(specials)
        self._guarded, self._true_ids = _guard(source, self._secret)
        self._bytes: dict[int, bytes] = {}
        self._check_specials_stay_text(specials)

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:
        return self._encode(text, add_special_tokens=add_special)

    def encode_rendered(self, text: str, *, literal: Mapping[str, str] | None = None) -> list[int]:
        if self.special_pattern is not None:
            text = self.special_pattern.sub(lambda match: self._secret[match[0]], text)
        if literal:
            text = text.translate({ord(mark): spelling for mark, spelling in literal.items()})
        return self._encode(text, add_special_tokens=False)

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        return b"".join(self._all_bytes(ids, skip_special)).decode("utf-8", "replace")

    def token_bytes(self, token_id: int, *, first: bool = False) -> bytes:
        if first:
            return self._pieces.decode(self._piece(token_id), first=True)
        data = self._bytes.get(token_id)
        if data is None:
            # At most one entry per vocabulary id: others have no bytes and are not kept.
            data = self._pieces.decode(self._piece(token_id))
            if 0 <= token_id < self.vocab_size:
                self._bytes[token_id] = data
        return data

    def _all_bytes(self, ids: Iterable[int], skip_special: bool) -> Iterator[bytes]:
        first = True
        for token_id in ids:
            if skip_special and token_id in self.special_ids:
                continue
            yield self.token_bytes(token_id, first=first)
            first = first and not self.token_bytes(token_id)

    def _piece(self, token_id: int) -> str:
        if not 0 <= token_id < self.vocab_size:
            return ""
        return self._source.id_to_token(token_id) or ""

    def _encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise RequestError(
                "the text holds half of a surrogate pair, which no tokenizer can read; "
                "send whole Unicode characters",
                code="invalid_text",
            ) from None
        ids = self._guarded.encode(text, add_special_tokens=add_special_tokens).ids
        true_ids = self._true_ids
        return [true_ids.get(i, i) for i in ids] if true_ids else ids

    def _check_specials_stay_text(self, specials: Mapping[int, tokenizers.AddedToken]) -> None:
        """Refuse a vocabulary whose model reads a special token out of plain text by itself.

        The unknown token is exempt: text that the vocabulary cannot spell may become it.
        """
        harmless = {self.named_specials.get("unk_token")}
        forbidden = {i for i, token in specials.items() if token.content not in harmless}
        for token in specials.values():
            if len(token.content) > 1 and forbidden.intersection(
                self._encode(token.content, add_special_tokens=False)
            ):
                raise ModelFileError(
                    f"the tokenizer's model makes the special token {token.content[:40]!r} out of "
                    "plain text, so users could forge it; this tokenizer is not supported",
                    param="tokenizer.model",
                )


def _alternatives(spellings: Iterable[str]) -> re.Pattern[str] | None:
    """A pattern that finds the longest of `spellings` at the leftmost place."""
    ordered = sorted({s for s in spellings if s}, key=lambda s: (-len(s), s))
    return re.compile("|".join(map(re.escape, ordered))) if ordered else None


def _secret_spellings(specials: Mapping[int, tokenizers.AddedToken]) -> dict[str, str]:
    """Public spelling → one that nobody can guess and that never leaves the process."""
    nonce = secrets.token_hex(16)
    return {token.content: f"\ue000{nonce}{i:x}\ue001" for i, token in sorted(specials.items())}


def _guard(
    source: tokenizers.Tokenizer, secret: Mapping[str, str]
) -> tuple[tokenizers.Tokenizer, dict[int, int]]:
    """A tokenizer like `source` that knows special tokens by their secret spellings only.

    Also its added tokens' ids → the source's ids, where they differ.
    """
    from tokenizers import AddedToken, Tokenizer

    guarded = Tokenizer(source.model)  # the vocabulary is shared, not copied
    for part in ("normalizer", "pre_tokenizer", "post_processor"):
        if (value := getattr(source, part)) is not None:
            setattr(guarded, part, value)
    tokens: dict[int, AddedToken] = {}
    for true_id, token in sorted(source.get_added_tokens_decoder().items()):
        if not token.content:
            continue
        tokens[true_id] = AddedToken(
            secret.get(token.content, token.content),
            single_word=token.single_word,
            lstrip=token.lstrip,
            rstrip=token.rstrip,
            normalized=token.normalized,
            special=False,
        )
    guarded.add_tokens(list(tokens.values()))
    true_ids: dict[int, int] = {}
    for true_id, token in tokens.items():
        guarded_id = guarded.token_to_id(token.content)
        assert guarded_id is not None, "an added token has an id"
        if guarded_id != true_id:
            true_ids[guarded_id] = true_id
    return guarded, true_ids
