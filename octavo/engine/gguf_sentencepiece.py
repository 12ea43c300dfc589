"""SentencePiece BPE from a GGUF vocabulary: pieces with scores instead of a list of merges.

Owns the step from scores to merges and SentencePiece's treatment of spaces. Two neighbours may
merge wherever their union is a piece, the best score first; so every way to cut a piece in two is a
merge, ranked by the piece. Text that no piece covers is spelled in byte tokens. Reads no file.

The files of Gemma differ in two points, and only their architecture tells: no space is put before a
text, and pieces rank by their id, not by their score.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.engine.gguf_vocab import NORMAL, PREFIX, USER_DEFINED, Vocabulary, damaged

if TYPE_CHECKING:
    import tokenizers

SPACE = "▁"
GEMMA = ("gemma", "gemma2", "gemma3")
# Bounds on the work that a hostile vocabulary can ask for: a real one of 256,000 pieces has about
# 600,000 merges and needs 20 million characters compared.
MAX_MERGES = 1 << 21
MAX_WORK_CHARS = 1 << 28
_MERGEABLE = (0, NORMAL, USER_DEFINED)  # 0: a file may leave the kind undefined


def sentencepiece_bpe(vocabulary: Vocabulary, architecture: object) -> tokenizers.Tokenizer:
    """The tokenizer without its marked tokens and without what surrounds a prompt."""
    from tokenizers import Tokenizer, decoders, normalizers
    from tokenizers.models import BPE

    for name in ("precompiled_charsmap", "remove_extra_whitespaces"):
        if vocabulary.asks_for(name):
            raise damaged(
                PREFIX + name,
                "asks for a normalisation of text that is not supported. Give a folder with the "
                "model's tokenizer.json instead",
            )
    gemma = architecture in GEMMA
    ids = piece_ids(vocabulary, gemma=gemma)
    unknown = vocabulary.unknown_id()
    model = BPE(
        ids,
        _merges(vocabulary, ids, gemma=gemma),
        unk_token=None if unknown is None else vocabulary.tokens[unknown],
        fuse_unk=True,
        byte_fallback=True,
    )
    source = Tokenizer(model)
    prefix = vocabulary.flag("add_space_prefix", not gemma)
    escape = normalizers.Replace(" ", SPACE)
    spaces = [normalizers.Prepend(SPACE), escape] if prefix else [escape]
    source.normalizer = normalizers.Sequence(spaces)
    joined = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    source.decoder = decoders.Sequence(joined + [decoders.Strip(" ", 1, 0)] * prefix)
    return source


def piece_ids(vocabulary: Vocabulary, *, gemma: bool) -> dict[str, int]:
    """Pieces as the model reads them. Gemma's files spell its runs of spaces with real spaces."""
    ids = vocabulary.ids_by_token()
    if not gemma:
        return ids
    respelled = {token if token.strip(" ") else SPACE * len(token): i for token, i in ids.items()}
    if len(respelled) != len(ids):
        raise damaged(PREFIX + "tokens", "names a token of spaces twice")
    return respelled


def merges_of(ids: dict[str, int], scores: list[float], kinds: list[int]) -> list[tuple[str, str]]:
    """Every way to cut an ordinary piece in two pieces, the first to be merged first.

    Of equal scores the longer left part comes first, then the longer right one, then the lower ids:
    the order in which converters of such vocabularies list them.
    """
    ordinary = [(piece, i) for piece, i in ids.items() if kinds[i] in _MERGEABLE]
    if sum(len(piece) ** 2 for piece, _ in ordinary) > MAX_WORK_CHARS:
        raise damaged(PREFIX + "tokens", "holds too many long pieces to find their merges")
    find = dict(ordinary).get
    ranked: list[tuple[float, int, int, int, int, int]] = []
    for piece, i in ordinary:
        for cut in range(1, len(piece)):
            right = find(piece[cut:])
            if right is not None and (left := find(piece[:cut])) is not None:
                ranked.append((-scores[i], -cut, cut - len(piece), i, left, right))
        if len(ranked) > MAX_MERGES:
            raise damaged(PREFIX + "tokens", f"makes more than {MAX_MERGES} merges")
    ranked.sort()
    pieces = {i: piece for piece, i in ids.items()}
    return [(pieces[left], pieces[right]) for *_, left, right in ranked]


def _merges(vocabulary: Vocabulary, ids: dict[str, int], *, gemma: bool) -> list[tuple[str, str]]:
    if vocabulary.has("merges"):
        return vocabulary.merges()
    scores = [-float(i) for i in range(len(ids))] if gemma else vocabulary.scores()
    return merges_of(ids, scores, vocabulary.kinds)
