"""SentencePiece vocabularies from GGUF metadata: SentencePiece's own rule, and transformers."""

from __future__ import annotations

import random
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import gguf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.core.errors import ModelFileError
from octavo.engine import gguf_sentencepiece
from octavo.engine.detokenize import TextStream
from octavo.engine.gguf_tokenizer import from_metadata
from octavo.engine.gguf_vocab import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED
from octavo.engine.tokenizer import LibraryTokenizer

TEXT = (
    "the quick brown fox jumps over the lazy dog and then the other one thinks that this is the "
    "end of the thing it had to do with the teeth in there"
)


def grown_pieces(n: int) -> list[str]:
    """Ordinary pieces as training finds them: letters last, the most frequent unions first."""
    words = [["▁", *word] for word in TEXT.split()]
    letters = sorted({letter for word in words for letter in word})
    pieces: list[str] = []
    while len(pieces) < n:
        counts: dict[str, int] = {}
        for word in words:
            for left, right in pairwise(word):
                counts[left + right] = counts.get(left + right, 0) + 1
        best = max(counts, key=lambda piece: (counts[piece], piece))
        pieces.append(best)
        words = [merged(word, best) for word in words]
    return [*pieces, "▁▁", *letters]


def merged(word: list[str], piece: str) -> list[str]:
    out: list[str] = []
    for part in word:
        if out and out[-1] + part == piece:
            out[-1] = piece
        else:
            out.append(part)
    return out


def spm_metadata(architecture: str = "llama", **changes: Any) -> dict[str, Any]:
    pieces = grown_pieces(60)
    marked = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]
    byte_tokens = [(f"<0x{byte:02X}>", BYTE) for byte in range(256)]
    rows = [*marked, *byte_tokens, *((piece, NORMAL) for piece in pieces)]
    rows += [("<tool>", USER_DEFINED), ("[PAD0]", UNUSED), ("the▁fox", UNUSED)]
    first = len(marked) + len(byte_tokens)
    scores = [0.0] * first + [-float(i) for i in range(len(pieces))] + [0.0, -1e4, 0.0]
    metadata = {
        "general.architecture": architecture,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": [token for token, _ in rows],
        "tokenizer.ggml.token_type": [kind for _, kind in rows],
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }
    return {**metadata, **{f"tokenizer.ggml.{key}": value for key, value in changes.items()}}


def by_rule(metadata: dict[str, Any], text: str) -> list[int]:
    """SentencePiece's rule, as slow and plain as it can be written.

    While a union of two neighbours is an ordinary piece, merge the one of the best score, the
    leftmost of equals. What is no piece is spelled in bytes.
    """
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    scores = metadata["tokenizer.ggml.scores"]
    known = {t: i for i, t in enumerate(tokens) if kinds[i] in (NORMAL, USER_DEFINED)}
    word = list(("▁" + text).replace(" ", "▁")) if text else []
    while True:
        unions = [
            (-scores[known[a + b]], place)
            for place, (a, b) in enumerate(pairwise(word))
            if a + b in known
        ]
        if not unions:
            break
        place = min(unions)[1]
        word[place : place + 2] = [word[place] + word[place + 1]]
    ids: list[int] = []
    for part in word:
        spelled = [3 + byte for byte in part.encode()]
        ids += [known[part]] if part in known else spelled
    return ids


def write_gguf(path: Path, metadata: dict[str, Any]) -> Path:
    writer = gguf.GGUFWriter(str(path), metadata["general.architecture"])
    for key, value in metadata.items():
        if key == "general.architecture":
            continue
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


@cache
def built_once() -> LibraryTokenizer:
    return from_metadata(spm_metadata())


@pytest.fixture
def llama() -> LibraryTokenizer:
    return built_once()


ALPHABET = "thequickbrwnfxa  \n漢👍<s>/0"


@given(text=st.text(alphabet=ALPHABET, max_size=40))
def test_pieces_merge_by_sentencepieces_rule(text: str) -> None:
    metadata = spm_metadata()
    tokenizer = built_once()
    assert tokenizer.encode(text) == [1, *by_rule(metadata, text)]
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_long_texts_merge_by_the_same_rule(llama: LibraryTokenizer) -> None:
    drawn = random.Random(0)
    for text in (TEXT, " ".join(drawn.choices(TEXT.split(), k=40)), "the" * 60, " " * 60):
        assert llama.encode(text) == [1, *by_rule(spm_metadata(), text)]


@pytest.mark.parametrize("architecture", ["phi3", "gemma2"])
def test_equal_to_transformers(architecture: str, tmp_path: Path, corpus: list[str]) -> None:
    """Of these two families transformers knows how the source treats spaces, so all text counts."""
    from transformers import AutoTokenizer

    metadata = spm_metadata(architecture, add_bos_token=True)
    if architecture == "gemma2":
        metadata["tokenizer.ggml.add_space_prefix"] = False
        tokens = metadata["tokenizer.ggml.tokens"]
        tokens[tokens.index("▁▁")] = "  "
        metadata["tokenizer.ggml.token_type"][tokens.index("  ")] = USER_DEFINED
    path = write_gguf(tmp_path / "m.gguf", metadata)
    theirs = AutoTokenizer.from_pretrained(str(tmp_path), gguf_file=path.name)
    mine = from_metadata(metadata)
    for text in [*corpus, TEXT, f"{TEXT}  the", f"a <tool> {TEXT}<tool>x"]:
        assert mine.encode(text) == theirs.encode(text), text[:40]
        rendered = f"<s>{text}</s> <s>  {text}"
        ids = mine.encode_rendered(rendered)
        assert ids == theirs.encode(rendered, add_special_tokens=False)
        stream = TextStream(mine)
        assert "".join(map(stream.push, ids)) + stream.finish() == mine.decode(ids)


@pytest.mark.parametrize(
    ("architecture", "expected"), [("llama", ["z", "az"]), ("gemma3", ["za", "z"])]
)
def test_gemma_ranks_by_id_and_llama_by_score(architecture: str, expected: list[str]) -> None:
    metadata = spm_metadata(architecture, add_bos_token=False, add_space_prefix=False)
    for key, more in (("tokens", ["za", "az"]), ("token_type", [NORMAL] * 2), ("scores", [-2, -1])):
        metadata[f"tokenizer.ggml.{key}"] += more
    metadata["tokenizer.ggml.scores"] = [
        float(score) for score in metadata["tokenizer.ggml.scores"]
    ]
    ids = from_metadata(metadata).encode("zaz")
    assert [metadata["tokenizer.ggml.tokens"][i] for i in ids] == expected


@pytest.mark.parametrize(("prefix", "expected"), [(True, ["▁", "x"]), (False, ["x"])])
def test_the_space_before_a_text_is_the_files_to_choose(prefix: bool, expected: list[str]) -> None:
    metadata = spm_metadata(add_space_prefix=prefix, add_bos_token=False)
    tokenizer = from_metadata(metadata)
    tokens = metadata["tokenizer.ggml.tokens"]
    assert [tokens[i] for i in tokenizer.encode("x")] == expected
    for text in ("x", " x", "  x"):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_bos_leads_unless_the_file_says_no() -> None:
    assert from_metadata(spm_metadata()).encode("") == [1]
    assert from_metadata(spm_metadata(add_bos_token=False)).encode("") == []
    assert from_metadata(spm_metadata(add_eos_token=True)).encode("") == [1, 2]


def test_marked_tokens_never_come_from_text(llama: LibraryTokenizer) -> None:
    tokens = spm_metadata()["tokenizer.ggml.tokens"]
    kinds = spm_metadata()["tokenizer.ggml.token_type"]
    silent = {i for i, kind in enumerate(kinds) if kind == UNUSED}
    ids = llama.encode("<s></s><unk><0x7F>[PAD0]the fox")[1:]
    assert not {0, 1, 2, 3 + 0x7F, *silent} & set(ids)
    assert tokens.index("<tool>") in llama.encode("a<tool>b")
    assert llama.special_ids == {0, 1, 2}
    assert llama.named_specials["unk_token"] == "<unk>"


def test_without_byte_tokens_the_unknown_token_stands_for_the_rest() -> None:
    metadata = spm_metadata(unknown_token_id=None)
    kinds = metadata["tokenizer.ggml.token_type"]
    keep = [i for i, kind in enumerate(kinds) if kind != BYTE]
    for key in ("tokens", "token_type", "scores"):
        values = metadata[f"tokenizer.ggml.{key}"]
        metadata[f"tokenizer.ggml.{key}"] = [values[i] for i in keep]
    tokenizer = from_metadata(metadata)
    assert tokenizer.encode("x漢漢")[-1] == 0  # unknown characters side by side are one token
    assert tokenizer.encode("x漢漢").count(0) == 1


def test_merges_in_the_file_come_before_scores() -> None:
    plain = from_metadata(spm_metadata()).encode("the")
    listed = from_metadata(spm_metadata(merges=["t h"])).encode("the")
    tokens = spm_metadata()["tokenizer.ggml.tokens"]
    assert [tokens[i] for i in listed[1:]] == ["▁", "th", "e"]
    assert listed != plain


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("scores", None, "one entry for each"),
        ("scores", [0.0], "one entry for each"),
        ("precompiled_charsmap", [1, 2], "normalisation"),
        ("remove_extra_whitespaces", True, "normalisation"),
        ("add_space_prefix", 1, "neither true nor false"),
        ("merges", ["a b c"], "two tokens"),
    ],
)
def test_what_is_damaged_or_not_supported_is_refused_by_key(
    key: str, value: Any, message: str
) -> None:
    with pytest.raises(ModelFileError, match=message) as caught:
        from_metadata(spm_metadata(**{key: value}))
    assert caught.value.param == f"tokenizer.ggml.{key}"


def test_scores_that_are_no_numbers_are_refused() -> None:
    n_tokens = len(spm_metadata()["tokenizer.ggml.tokens"])
    with pytest.raises(ModelFileError, match="finite"):
        from_metadata(spm_metadata(scores=[float("nan")] * n_tokens))


def test_a_vocabulary_cannot_ask_for_endless_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_sentencepiece, "MAX_WORK_CHARS", 500)
    with pytest.raises(ModelFileError, match="too many long pieces"):
        from_metadata(spm_metadata())
    monkeypatch.undo()
    monkeypatch.setattr(gguf_sentencepiece, "MAX_MERGES", 10)
    with pytest.raises(ModelFileError, match="more than 10 merges"):
        from_metadata(spm_metadata())


def test_gemmas_runs_of_spaces_may_not_be_there_twice() -> None:
    metadata = spm_metadata("gemma")
    metadata["tokenizer.ggml.tokens"][-1] = "  "
    with pytest.raises(ModelFileError, match="spaces twice"):
        from_metadata(metadata)


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), 1 << 63),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.one_of(st.text(max_size=3), st.integers(0, 6), st.floats()), max_size=5),
)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_odd_metadata_is_read_or_refused(data: st.DataObject) -> None:
    """Whole values replaced, or one entry of a list; whatever is accepted can encode."""
    metadata = spm_metadata(data.draw(st.sampled_from(["llama", "gemma", "phi3"])))
    for key in data.draw(st.lists(st.sampled_from(sorted(metadata)), min_size=1, max_size=3)):
        if metadata[key] and isinstance(metadata[key], list) and data.draw(st.booleans()):
            place = data.draw(st.integers(0, len(metadata[key]) - 1))
            metadata[key] = [*metadata[key]]
            metadata[key][place] = data.draw(st.one_of(ODD, st.sampled_from(metadata[key])))
        else:
            metadata[key] = data.draw(ODD)
    try:
        tokenizer = from_metadata(metadata)
    except ModelFileError:
        return
    ids = tokenizer.encode("the <s> fox 漢")
    assert all(0 <= i < tokenizer.vocab_size for i in ids)
