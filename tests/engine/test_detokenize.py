"""Streamed text: whole characters, equal to all tokens' text, and no part of a stop string."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from octavo.engine.detokenize import StopStrings, TextStream
from octavo.engine.hf_tokenizer import from_folder
from octavo.engine.tokenizer import LibraryTokenizer

KINDS = ["byte_level", "sentencepiece", "metaspace"]


@pytest.fixture(scope="module")
def tokenizers(folders: dict[str, Path]) -> dict[str, LibraryTokenizer]:
    return {kind: from_folder(folders[kind]) for kind in KINDS}


def first_stop(text: str, stops: tuple[str, ...]) -> tuple[str, str | None]:
    """The specification: the stop that is complete first, then the longest; text before it."""
    for end in range(len(text) + 1):
        matches = [stop for stop in stops if text[:end].endswith(stop)]
        if matches:
            stop = max(matches, key=len)
            return text[: end - len(stop)], stop
    return text, None


def stream_all(stream: TextStream, ids: list[int]) -> list[str]:
    return [*map(stream.push, ids), stream.finish()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("skip_special", [True, False])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_pieces_joined_are_the_whole_text(
    kind: str, skip_special: bool, tokenizers: dict[str, LibraryTokenizer], data: st.DataObject
) -> None:
    tokenizer = tokenizers[kind]
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size + 2), max_size=40))
    pieces = stream_all(TextStream(tokenizer, skip_special=skip_special), ids)
    whole = tokenizer.decode(ids, skip_special=skip_special)
    assert "".join(pieces) == whole
    assert not any("\ufffd" in piece for piece in pieces) or "\ufffd" in whole


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_broken_utf8_decodes_as_the_library_does(
    tokenizers: dict[str, LibraryTokenizer], folders: dict[str, Path], data: st.DataObject
) -> None:
    tokenizer = tokenizers["byte_level"]
    library = Tokenizer.from_file(str(folders["byte_level"] / "tokenizer.json"))
    alphabet = [i for i in range(3, 259) if len(tokenizer.token_bytes(i)) == 1]
    assert len(alphabet) == 256
    ids = data.draw(st.lists(st.sampled_from(alphabet), max_size=30))
    assert tokenizer.decode(ids) == library.decode(ids)


@pytest.mark.parametrize("kind", KINDS)
@given(text=st.text(max_size=60))
@example(text="the ")  # one piece with a mark at either end
@settings(max_examples=60, deadline=None)
def test_text_goes_around(
    kind: str, tokenizers: dict[str, LibraryTokenizer], folders: dict[str, Path], text: str
) -> None:
    tokenizer = tokenizers[kind]
    ids = tokenizer.encode(text)
    whole = "".join(stream_all(TextStream(tokenizer), ids))
    if kind == "metaspace":  # it forgets spaces of the first piece, as the library does
        text = Tokenizer.from_file(str(folders[kind] / "tokenizer.json")).decode(ids)
    elif kind == "sentencepiece":
        text = text.replace("▁", " ")
    assert whole == text


@given(
    text=st.text("abc", max_size=30),
    stops=st.lists(st.text("abc", min_size=1, max_size=5), max_size=4).map(tuple),
    cuts=st.lists(st.integers(0, 30)),
)
@settings(max_examples=400, deadline=None)
def test_stop_strings_do_not_depend_on_the_pieces(
    text: str, stops: tuple[str, ...], cuts: list[int]
) -> None:
    finder = StopStrings(stops)
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    out = [finder.push(text[a:b]) for a, b in itertools.pairwise(edges)]
    whole = "".join(out) + finder.finish()
    assert (whole, finder.matched) == first_stop(text, stops)


@given(
    text=st.text("abc", max_size=20),
    stops=st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=3).map(tuple),
)
@settings(max_examples=200, deadline=None)
def test_no_more_is_held_back_than_may_become_a_stop(text: str, stops: tuple[str, ...]) -> None:
    finder = StopStrings(stops)
    shown = ""
    for end, character in enumerate(text, start=1):
        shown += finder.push(character)
        if finder.matched is not None:
            break
        held = text[len(shown) : end]
        assert text[:end] == shown + held
        starts = [held[i:] for i in range(len(held))]
        longest = next((s for s in starts if any(t.startswith(s) for t in stops)), "")
        assert held == longest


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_a_stop_split_over_tokens_never_leaks(
    tokenizers: dict[str, LibraryTokenizer], data: st.DataObject
) -> None:
    tokenizer = tokenizers["byte_level"]
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), min_size=1, max_size=25))
    text = tokenizer.decode(ids)
    place = data.draw(st.integers(0, max(0, len(text) - 1)))
    stop = text[place : place + data.draw(st.integers(1, 6))] or "x"
    stream = TextStream(tokenizer, (stop,))
    shown = "".join(stream_all(stream, ids))
    assert (shown, stream.stopped) == first_stop(text, (stop,))


def test_a_character_of_many_tokens_comes_whole(tokenizers: dict[str, LibraryTokenizer]) -> None:
    tokenizer = tokenizers["byte_level"]
    ids = tokenizer.encode("a𝄞b")
    assert len(ids) > 3
    pieces = stream_all(TextStream(tokenizer), ids)
    assert [piece for piece in pieces if piece] == ["a", "𝄞", "b"]


def test_a_broken_off_character_shows_at_the_end(tokenizers: dict[str, LibraryTokenizer]) -> None:
    tokenizer = tokenizers["byte_level"]
    ids = tokenizer.encode("a𝄞")[:-1]
    stream = TextStream(tokenizer)
    assert "".join(map(stream.push, ids)) == "a"
    assert stream.finish() == "\ufffd"


def test_nothing_follows_a_stop(tokenizers: dict[str, LibraryTokenizer]) -> None:
    tokenizer = tokenizers["byte_level"]
    stream = TextStream(tokenizer, ("lo w",))
    ids = tokenizer.encode("hello world, hello")
    assert "".join(map(stream.push, ids)) == "hel"
    assert stream.stopped == "lo w"
    assert stream.push(ids[0]) == ""
    assert stream.finish() == ""


def test_held_back_text_is_flushed(tokenizers: dict[str, LibraryTokenizer]) -> None:
    stream = TextStream(tokenizers["byte_level"], ("END",))
    shown = "".join(map(stream.push, tokenizers["byte_level"].encode("the EN")))
    assert shown == "the "
    assert stream.finish() == "EN"
    assert stream.stopped is None


def test_special_tokens_are_text_only_if_asked(tokenizers: dict[str, LibraryTokenizer]) -> None:
    tokenizer = tokenizers["byte_level"]
    ids = tokenizer.encode_rendered("<|im_start|>hi<|im_end|>")
    assert "".join(stream_all(TextStream(tokenizer), ids)) == "hi"
    shown = "".join(stream_all(TextStream(tokenizer, skip_special=False), ids))
    assert shown == "<|im_start|>hi<|im_end|>"


def test_cost_per_token_does_not_grow(tokenizers: dict[str, LibraryTokenizer]) -> None:
    """A token late in a long text costs about what an early one does (quadratic: some 40 times)."""
    tokenizer = tokenizers["byte_level"]
    ids = tokenizer.encode("the quick brown fox " * 200)

    def seconds(stream: TextStream) -> float:
        started = time.process_time()
        for token_id in ids:
            stream.push(token_id)
        return time.process_time() - started

    stream = TextStream(tokenizer, ("\n\nUser:", "aaaaaaab"))
    times = [seconds(stream) for _ in range(40)]
    assert sorted(times[-10:])[5] < 5 * sorted(times[:10])[5] + 1e-3


@given(
    text=st.text("abc", max_size=30),
    stops=st.lists(st.text("abc", min_size=1, max_size=5), max_size=4).map(tuple),
    cuts=st.lists(st.integers(0, 30)),
)
@settings(max_examples=150, deadline=None)
def test_a_kept_stop_string_is_the_end_of_the_text(
    text: str, stops: tuple[str, ...], cuts: list[int]
) -> None:
    finder = StopStrings(stops, keep=True)
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [finder.push(text[a:b]) for a, b in itertools.pairwise(edges)]
    before, stop = first_stop(text, stops)
    assert "".join(pieces) + finder.finish() == before + (stop or "")
    assert finder.matched == stop


@given(
    passed=st.text("ab", max_size=6),
    text=st.text("ab", max_size=12),
    stops=st.lists(st.text("ab", min_size=1, max_size=3), max_size=3).map(tuple),
)
@settings(max_examples=150, deadline=None)
def test_no_stop_string_begins_in_text_that_is_passed_by(
    passed: str, text: str, stops: tuple[str, ...]
) -> None:
    finder = StopStrings(stops)
    pieces = [*map(finder.pass_by, passed), *map(finder.push, text), finder.finish()]
    before, stop = first_stop(text, stops)
    assert "".join(pieces) == passed + before
    assert finder.matched == stop
