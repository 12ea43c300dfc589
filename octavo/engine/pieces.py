"""From one vocabulary entry to the bytes it stands for, for the decoders that language models use.

Owns the byte-level alphabet and the SentencePiece conventions. Works a token at a time, so text can
be streamed without decoding anything twice. Knows no ids and no tokenizer files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.core.errors import ModelFileError

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
KNOWN_DECODERS = ("ByteLevel", "ByteFallback", "Fuse", "Metaspace", "Replace", "Sequence", "Strip")


def byte_alphabet() -> dict[str, int]:
    """The 256 characters of byte-level BPE and the byte each one stands for (the code of GPT-2).

    A byte that is printable in Latin-1 stands for itself; the others take U+0100 upwards in order.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    rest = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(256 + place): byte for place, byte in enumerate(rest)})
    return alphabet


@dataclass(frozen=True, slots=True)
class PieceDecoder:
    """How the pieces of one vocabulary become bytes.

    alphabet      byte-level characters; None for a vocabulary of plain text pieces.
    replacements  (old, new) done in order in each piece.
    byte_tokens   "<0x41>" stands for one byte.
    strip_spaces  spaces taken from the start of the whole text, at most.
    drop_first    a character that is dropped from the first piece of a text.
    """

    alphabet: Mapping[str, int] | None = None
    replacements: tuple[tuple[str, str], ...] = ()
    byte_tokens: bool = False
    strip_spaces: int = 0
    drop_first: str = ""

    def decode(self, piece: str, *, first: bool = False) -> bytes:
        """Bytes of `piece`. `first`: no piece of this text had any bytes before."""
        if self.alphabet is not None:
            return self._byte_level(piece)
        if first and self.drop_first:
            piece = piece.replace(self.drop_first, "")
        for old, new in self.replacements:
            piece = piece.replace(old, new)
        if self.byte_tokens and (match := _BYTE_TOKEN.fullmatch(piece)):
            data = bytes([int(match[1], 16)])
        else:
            data = piece.encode("utf-8", "replace")
        if first and self.strip_spaces:
            n_spaces = len(data) - len(data.lstrip(b" "))
            data = data[min(n_spaces, self.strip_spaces) :]
        return data

    def _byte_level(self, piece: str) -> bytes:
        # An added token may hold characters outside of the alphabet: it is then plain text.
        assert self.alphabet is not None
        try:
            return bytes([self.alphabet[character] for character in piece])
        except KeyError:
            return piece.encode("utf-8", "replace")


def piece_decoder(spec: Mapping[str, Any] | None) -> PieceDecoder:
    """Build the decoder that a tokenizer file's `decoder` section describes.

    Raises ModelFileError for one that is not known, or that must see later tokens first.
    """
    if spec is None:
        raise ModelFileError(
            "the tokenizer has no decoder, so its tokens cannot be joined exactly; "
            f"known decoders: {', '.join(KNOWN_DECODERS)}",
            param="tokenizer.decoder",
        )
    kind = spec.get("type")
    parts: Sequence[Mapping[str, Any]] = spec["decoders"] if kind == "Sequence" else [spec]
    if [part.get("type") for part in parts] == ["ByteLevel"]:
        return PieceDecoder(alphabet=byte_alphabet())
    decoder = PieceDecoder()
    fused = False
    for part in parts:
        decoder = _extend(decoder, part, fused)
        fused = fused or part.get("type") == "Fuse"
    return decoder


def _extend(decoder: PieceDecoder, part: Mapping[str, Any], fused: bool) -> PieceDecoder:
    """`decoder` and one more step of a decoder sequence after it."""
    fields: dict[str, Any] = {name: getattr(decoder, name) for name in PieceDecoder.__slots__}
    match part:
        case {"type": "Fuse"}:
            pass
        case {"type": "ByteFallback"}:
            fields["byte_tokens"] = True
        case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)} if not fused:
            fields["replacements"] = (*decoder.replacements, (old, new))
        case {"type": "Strip", "content": " ", "start": int(start), "stop": 0} if fused:
            fields["strip_spaces"] = start
        case {"type": "Metaspace", "replacement": str(mark)} if not fused:
            fields["replacements"] = (*decoder.replacements, (mark, " "))
            fields["drop_first"] = "" if part.get("prepend_scheme") == "never" else mark
        case _:
            raise ModelFileError(
                f"the tokenizer's decoder step {str(part.get('type'))[:40]!r} is not supported in "
                f"this place or with these options; known decoders: {', '.join(KNOWN_DECODERS)}",
                param="tokenizer.decoder",
            )
    return PieceDecoder(**fields)
