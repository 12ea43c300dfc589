"""LLM: what a script sees of the engine."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from octavo import LLM, GenerateRequest, SamplingParams
from octavo.core.errors import EngineClosed, NeverFits, RequestError
from octavo.core.request import Request
from octavo.engine.detokenize import TextStream
from octavo.engine.engine import TEXT_FAILED
from octavo.engine.session import Session
from octavo.engine.types import Chunk, Output
from tests.engine.tiny import DEFAULTS, GREEDY, assert_empty, prompt, talking

EOS = 2


@pytest.fixture(scope="module")
def folder(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return talking(tmp_path_factory.mktemp("talking"), folders["byte_level"])


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[LLM]:
    with LLM(str(folder), **DEFAULTS) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _nothing_is_left(llm: LLM) -> Iterator[None]:
    yield
    assert_empty(llm._engine)


def small(folder: Path, **options: Any) -> LLM:
    return LLM(str(folder), **{**DEFAULTS, **options})


def text_of(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks)


def only(outputs: list[Output]) -> Output:
    assert len(outputs) == 1
    return outputs[0]


def greedy(llm: LLM, **params: Any) -> Output:
    """The same prompt each time, so that its greedy text is known from one call to the next."""
    return only(llm.generate("the quick brown fox", replace(GREEDY, **params)))


def test_prompts_may_be_text_dicts_or_ids(llm: LLM) -> None:
    text = "hello world, this is text"
    first = only(llm.generate(text, GREEDY))
    assert first.prompt == text
    assert len(first.prompt_token_ids) > 4
    outputs = llm.generate(
        [text, {"prompt": text}, {"prompt_token_ids": first.prompt_token_ids},
         first.prompt_token_ids, tuple(first.prompt_token_ids)],
        GREEDY,
    )  # fmt: skip
    for out in outputs:
        assert out.prompt_token_ids == first.prompt_token_ids
        assert out.outputs[0].token_ids == first.outputs[0].token_ids
        assert out.outputs[0].text == first.outputs[0].text
    assert [out.prompt for out in outputs] == [text, text, None, None, None]
    assert only(llm.generate({"prompt": text}, GREEDY)).outputs[0].text == first.outputs[0].text


def test_each_prompt_may_have_its_own_params(llm: LLM) -> None:
    outputs = llm.generate(["the cat", "the dog"], [GREEDY, replace(GREEDY, max_tokens=3, n=2)])
    assert [len(out.outputs) for out in outputs] == [1, 2]
    assert [len(choice.token_ids) for out in outputs for choice in out.outputs] == [12, 3, 3]
    with pytest.raises(RequestError, match="2 prompts came with 1"):
        llm.generate(["a", "b"], [GREEDY])


def test_an_empty_list_has_no_outputs(llm: LLM) -> None:
    assert llm.generate([]) == []


def test_the_output_reports_what_the_cache_gave(llm: LLM) -> None:
    llm.clear_cache()
    tokens = prompt(50, seed=1)
    cold = only(llm.generate([tokens], GREEDY))
    assert cold.num_cached_tokens == 0
    assert cold.receipt is not None
    assert (cold.receipt.read, cold.receipt.written, cold.receipt.unkept) == (0, 48, 2)
    warm = only(llm.generate([tokens], GREEDY))
    assert warm.num_cached_tokens == 48
    assert warm.outputs[0].receipt is warm.receipt
    salted = only(llm.generate({"prompt_token_ids": tokens, "cache_salt": "mine"}, GREEDY))
    assert salted.num_cached_tokens == 0
    assert salted.outputs[0].token_ids == cold.outputs[0].token_ids
    llm.clear_cache()
    assert only(llm.generate([tokens], GREEDY)).num_cached_tokens == 0


def test_logprobs_hold_the_chosen_token_and_the_likeliest(llm: LLM) -> None:
    params = SamplingParams(temperature=1.5, seed=3, max_tokens=20, logprobs=3, ignore_eos=True)
    choice = only(llm.generate("the lazy dog", params)).outputs[0]
    assert choice.logprobs is not None
    assert len(choice.logprobs) == len(choice.token_ids) == 20
    for token, candidates in zip(choice.token_ids, choice.logprobs, strict=True):
        assert next(iter(candidates)) == token
        assert len(candidates) in (3, 4)
        ranked = sorted(candidates.values(), key=lambda each: each.rank)
        assert [each.rank for each in ranked][:3] == [1, 2, 3]
        values = [each.logprob for each in ranked]
        assert values == sorted(values, reverse=True)
        assert sum(map(math.exp, values)) <= 1 + 1e-5
    assert any(choice.logprobs[i][t].rank > 3 for i, t in enumerate(choice.token_ids))


def test_logprobs_zero_gives_the_chosen_token_alone(llm: LLM) -> None:
    choice = greedy(llm, logprobs=0).outputs[0]
    assert choice.logprobs is not None
    assert [list(each) for each in choice.logprobs] == [[token] for token in choice.token_ids]
    assert all(each.rank == 1 for position in choice.logprobs for each in position.values())


def test_chat_takes_one_conversation_or_several(llm: LLM) -> None:
    conversation = [{"role": "user", "content": "hello"}]
    one = only(llm.chat(conversation, GREEDY))
    two = llm.chat([conversation, [{"role": "user", "content": "the dog"}]], GREEDY)
    assert two[0].outputs[0].text == one.outputs[0].text
    assert two[0].prompt_token_ids == one.prompt_token_ids != two[1].prompt_token_ids
    assert {0, 1, 2}.intersection(one.prompt_token_ids) == {1, 2}  # from the template only
    with pytest.raises(RequestError):
        llm.chat([], GREEDY)
    with pytest.raises(RequestError):
        llm.chat("hello", GREEDY)  # type: ignore[arg-type]


def test_stats_count_what_ran(llm: LLM) -> None:
    before = llm.stats()
    llm.generate([prompt(40, seed=77)], replace(GREEDY, max_tokens=5))
    after = llm.stats()
    assert after.sequences - before.sequences == 1
    assert after.generated_tokens - before.generated_tokens == 5
    assert after.computed_tokens - before.computed_tokens == 44
    assert after.prefix_query_tokens - before.prefix_query_tokens == 40
    assert 0 <= after.prefix_hit_rate <= 1


def test_the_pieces_of_a_stream_are_the_whole_text(llm: LLM) -> None:
    whole = greedy(llm, max_tokens=60)
    params = replace(GREEDY, max_tokens=60, n=2)
    chunks = list(llm.stream(GenerateRequest(prompt=whole.prompt, params=params)))
    for choice in range(2):
        own = [chunk for chunk in chunks if chunk.choice == choice]
        assert text_of(own) == whole.outputs[0].text
        assert [t for chunk in own for t in chunk.token_ids] == whole.outputs[0].token_ids
        assert [chunk.finish_reason for chunk in own if chunk.finish_reason] == ["length"]
    assert [chunk.usage is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


def test_closing_a_stream_early_frees_its_blocks(llm: LLM) -> None:
    stream = llm.stream(GenerateRequest(prompt="the cat", params=replace(GREEDY, max_tokens=200)))
    next(stream)
    assert llm.stats().held_blocks > 0
    stream.close()  # type: ignore[attr-defined]
    assert_empty(llm._engine)


def test_a_stream_that_is_never_read_leaves_nothing(llm: LLM) -> None:
    stream = llm.stream(GenerateRequest(prompt="the cat", params=GREEDY))
    del stream
    assert_empty(llm._engine)


def test_generate_beside_an_open_stream(llm: LLM) -> None:
    whole = greedy(llm, max_tokens=30).outputs[0].text
    params = replace(GREEDY, max_tokens=30)
    stream = llm.stream(GenerateRequest(prompt="the quick brown fox", params=params))
    first = next(stream)
    assert greedy(llm, max_tokens=30).outputs[0].text == whole
    assert first.text + text_of(list(stream)) == whole


def test_after_close_every_call_raises(folder: Path) -> None:
    llm = small(folder)
    stream = llm.stream(GenerateRequest(prompt="the cat", params=GREEDY))
    next(stream)
    never_finished = llm.stream(GenerateRequest(prompt="the cat", params=GREEDY))
    next(never_finished)
    llm.close()
    llm.close()
    never_finished.close()  # type: ignore[attr-defined]
    for call in (
        lambda: llm.generate("a"),
        lambda: llm.chat([{"role": "user", "content": "a"}]),
        lambda: list(stream),
        lambda: next(llm.stream(GenerateRequest(prompt="a"))),
        llm.stats,
        llm.clear_cache,
    ):
        with pytest.raises(EngineClosed):
            call()


def test_more_prompts_than_the_queue_holds(folder: Path) -> None:
    with small(folder, max_num_seqs=2, max_num_queued_reqs=3) as llm:
        prompts = [prompt(10, seed=i) for i in range(20)]
        params = [replace(GREEDY, max_tokens=3, n=1 + i % 5) for i in range(20)]
        outputs = llm.generate(prompts, params)
        assert [out.prompt_token_ids for out in outputs] == prompts
        assert [len(out.outputs) for out in outputs] == [1 + i % 5 for i in range(20)]
        assert_empty(llm._engine)
        with pytest.raises(RequestError, match="n 6 is more than the 5"):
            llm.generate("a", replace(GREEDY, n=6))


def test_a_request_that_never_fits_is_refused_before_any_runs(folder: Path) -> None:
    with small(folder, num_blocks=4) as llm:
        with pytest.raises(NeverFits, match="needs 5 blocks, 4 of 4"):
            llm.generate([prompt(10), prompt(65)], GREEDY)
        assert llm.stats().sequences == 0


def test_max_tokens_ends_at_the_context(folder: Path) -> None:
    with small(folder, max_model_len=64) as llm:
        for max_tokens in (None, 1000):
            out = only(llm.generate([prompt(50)], replace(GREEDY, max_tokens=max_tokens)))
            assert len(out.outputs[0].token_ids) == 14
            assert out.outputs[0].finish_reason == "length"
        last = only(llm.generate([prompt(63)], replace(GREEDY, max_tokens=None)))
        assert len(last.outputs[0].token_ids) == 1


def test_max_tokens_ends_at_the_pool(folder: Path) -> None:
    with small(folder, num_blocks=4) as llm:
        out = only(llm.generate([prompt(50)], replace(GREEDY, max_tokens=1000)))
        assert len(out.outputs[0].token_ids) == 15  # 64 slots, and the last token needs none
        assert out.outputs[0].finish_reason == "length"


def test_the_end_of_sequence_token_ends_unless_ignored(llm: LLM) -> None:
    params = SamplingParams(temperature=2.0, seed=0, max_tokens=300)
    outputs = llm.generate([prompt(5)] * 16, [replace(params, seed=i) for i in range(16)])
    ended = [out.outputs[0] for out in outputs if out.outputs[0].finish_reason == "stop"]
    assert ended
    for choice in ended:
        assert choice.token_ids[-1] == EOS
        assert choice.stop_reason is None
        assert EOS not in choice.token_ids[:-1]
        assert "<|im_end|>" not in choice.text
    seed = next(i for i, out in enumerate(outputs) if out.outputs[0].finish_reason == "stop")
    ignored = only(llm.generate([prompt(5)], replace(params, seed=seed, ignore_eos=True)))
    assert ignored.outputs[0].finish_reason == "length"
    n_same = len(outputs[seed].outputs[0].token_ids)
    assert ignored.outputs[0].token_ids[:n_same] == outputs[seed].outputs[0].token_ids


def test_a_stop_token_is_in_the_ids_and_not_in_the_text(llm: LLM) -> None:
    whole = greedy(llm).outputs[0]
    stop = whole.token_ids[5]
    at = whole.token_ids.index(stop)
    choice = greedy(llm, stop_token_ids=[stop], logprobs=1).outputs[0]
    assert choice.token_ids == whole.token_ids[: at + 1]
    assert (choice.finish_reason, choice.stop_reason) == ("stop", stop)
    assert choice.text == greedy(llm, max_tokens=at).outputs[0].text if at else choice.text == ""
    assert choice.logprobs is not None
    assert len(choice.logprobs) == len(choice.token_ids)


@pytest.mark.parametrize("start", range(0, 40, 3))
@pytest.mark.parametrize("length", [1, 2, 7])
def test_a_stop_string_ends_the_text_before_itself(llm: LLM, start: int, length: int) -> None:
    text = greedy(llm, max_tokens=60).outputs[0].text
    stop = text[start : start + length]
    request = GenerateRequest(
        prompt="the quick brown fox", params=replace(GREEDY, max_tokens=60, stop=stop)
    )
    chunks = list(llm.stream(request))
    assert text_of(chunks) == text[: text.index(stop)]
    assert (chunks[-1].finish_reason, chunks[-1].stop_reason) == ("stop", stop)
    assert sum(chunk.finish_reason is not None for chunk in chunks) == 1
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == sum(len(chunk.token_ids) for chunk in chunks)


def test_of_overlapping_stop_strings_the_first_complete_one_wins(llm: LLM) -> None:
    text = greedy(llm, max_tokens=60).outputs[0].text
    late, early = text[10:22], text[12:18]
    assert early not in text[:17]
    choice = greedy(llm, max_tokens=60, stop=[late, early]).outputs[0]
    assert (choice.text, choice.stop_reason) == (text[:12], early)


def test_a_stop_string_that_the_last_token_completes_still_stops(llm: LLM) -> None:
    for n_tokens in range(1, 12):
        text = greedy(llm, max_tokens=n_tokens).outputs[0].text
        shorter = greedy(llm, max_tokens=n_tokens - 1).outputs[0].text if n_tokens > 1 else ""
        new = text[len(shorter) :]
        if not new or new[-1] in shorter or "\ufffd" in text + shorter:
            continue
        choice = greedy(llm, max_tokens=n_tokens, stop=new[-1]).outputs[0]
        assert (choice.finish_reason, choice.stop_reason) == ("stop", new[-1])
        assert choice.text == text[: text.index(new[-1])]
        break
    else:
        pytest.fail("no token brought a new character")


def test_text_held_back_for_a_stop_string_comes_at_the_end(llm: LLM) -> None:
    text = greedy(llm, max_tokens=20).outputs[0].text
    almost = text[-3:] + "\x00"
    choice = greedy(llm, max_tokens=20, stop=[almost]).outputs[0]
    assert (choice.text, choice.finish_reason) == (text, "length")


def test_a_failed_step_is_reported_and_the_next_call_works(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = greedy(llm).outputs[0].text
    runner = llm._engine._loop._runner
    with monkeypatch.context() as patch:
        patch.setattr(runner, "_forward", lambda rows: 1 / 0)
        choice = greedy(llm).outputs[0]
        assert (choice.text, choice.finish_reason) == ("", "error")
        assert choice.error == "the step failed inside the engine"
    assert greedy(llm).outputs[0].text == expected


def test_one_failed_request_leaves_the_other_outputs_whole(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [prompt(12, seed=i) for i in range(3)]
    expected = [out.outputs[0] for out in llm.generate(prompts, GREEDY)]
    take = Session.take

    def broken(session: Session, request: Request, tokens: Any, **rest: Any) -> bool:
        if session.prepared.tokens == prompts[1] and len(request.tokens) == 12 + 5:
            raise ValueError("a bug in the text")
        return take(session, request, tokens, **rest)

    monkeypatch.setattr(Session, "take", broken)
    first, failed, third = (out.outputs[0] for out in llm.generate(prompts, GREEDY))
    assert failed.finish_reason == "error"
    assert failed.error == TEXT_FAILED
    assert failed.token_ids == expected[1].token_ids[:4]
    assert failed.receipt is not None
    assert failed.receipt.finished_at is not None
    for choice, wanted in ((first, expected[0]), (third, expected[2])):
        assert (choice.text, choice.token_ids) == (wanted.text, wanted.token_ids)
        assert choice.error is None


def test_text_that_fails_at_its_end_still_has_an_end(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(text: TextStream) -> str:
        raise ValueError("a bug in the text")

    monkeypatch.setattr(TextStream, "finish", broken)
    for n in (1, 3):
        out = greedy(llm, n=n)
        assert [choice.finish_reason for choice in out.outputs] == ["error"] * n
    stream = llm.stream(GenerateRequest(prompt="the cat", params=GREEDY))
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert_empty(llm._engine)


@pytest.mark.parametrize("where", ["before the results are taken", "before they are told"])
def test_an_interrupt_inside_a_step_leaves_nothing(
    llm: LLM, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    engine = llm._engine
    told = where == "before they are told"
    target, name = (engine, "_deliver") if told else (engine.scheduler, "update")
    go_on = getattr(target, name)
    calls = iter(range(1000))

    def interrupted(*args: Any) -> Any:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return go_on(*args)

    with monkeypatch.context() as patch:
        patch.setattr(target, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            llm.generate(["the cat", "the dog", "a fox"], replace(GREEDY, max_tokens=6))
    assert_empty(engine)


def test_an_end_that_nobody_was_told_of_is_told_when_aborted(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(llm._engine, "_deliver", interrupted)
        with pytest.raises(KeyboardInterrupt):
            llm.generate(["the cat", "the dog"], replace(GREEDY, max_tokens=1))
    assert_empty(llm._engine)
