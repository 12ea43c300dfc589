"""AsyncEngine: streams equal the synchronous answers, and every way to end one frees its blocks."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from octavo.core.batch import Batch, Runner, StepResult
from octavo.core.errors import EngineClosed, Overloaded, RequestError
from octavo.core.request import Request
from octavo.core.sampling import SamplingParams
from octavo.engine.async_engine import PREPARING_THREADS, AsyncEngine
from octavo.engine.engine import TEXT_FAILED
from octavo.engine.session import Session
from octavo.engine.stream import Stream
from octavo.engine.types import Chunk, GenerateRequest
from tests.checkpoints import tiny_llama
from tests.engine.tiny import GREEDY, Desk, assert_empty, built, prompt

LONG = replace(GREEDY, max_tokens=400)
DEADLINE_SECONDS = 20.0
Step = Callable[[Batch], StepResult]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny_llama(folder)
    return folder


class PacedRunner:
    """The real runner, slowed down so that a test can act between two steps, or made to fail."""

    def __init__(self, runner: Runner, pause_seconds: float) -> None:
        self._runner = runner
        self.pause_seconds = pause_seconds
        self.fail_next = False
        self.go = threading.Event()
        self.go.set()

    def run(self, batch: Batch) -> StepResult:
        assert self.go.wait(DEADLINE_SECONDS)
        time.sleep(self.pause_seconds)
        if self.fail_next:
            self.fail_next = False
            raise RuntimeError("a broken kernel")
        return self._runner.run(batch)


class House:
    """A running AsyncEngine with its inner parts at hand."""

    def __init__(self, folder: Path, *, pause_seconds: float = 0.0, **options: Any) -> None:
        parts = built(folder, skip_tokenizer_init=True, **options)
        self.inner = parts.engine
        self.runner = PacedRunner(parts.engine._loop._runner, pause_seconds)
        parts.engine._loop._runner = self.runner
        self.engine = AsyncEngine(parts)

    async def submit(self, tokens: list[int], params: SamplingParams = GREEDY) -> Stream:
        return await self.engine.submit(GenerateRequest(prompt_token_ids=tokens, params=params))

    async def until(self, true: Callable[[], bool]) -> None:
        end = time.monotonic() + DEADLINE_SECONDS
        while not true():
            assert time.monotonic() < end, self.engine.stats()
            await asyncio.sleep(0.002)

    async def until_empty(self) -> None:
        await self.until(lambda: not self.inner.busy and self.inner.room == self.inner.max_live)
        assert_empty(self.inner)


@contextmanager
def house(folder: Path, **options: Any) -> Iterator[House]:
    opened = House(folder, **options)
    try:
        yield opened
    finally:
        opened.runner.go.set()
        asyncio.run(opened.engine.close())
        opened.engine._thread.join(DEADLINE_SECONDS)
        assert not opened.engine._thread.is_alive()


def run(story: Awaitable[None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(story, DEADLINE_SECONDS * 2)

    asyncio.run(bounded())


async def read(stream: Stream) -> list[Chunk]:
    return [chunk async for chunk in stream]


def tokens_of(chunks: list[Chunk], choice: int = 0) -> list[int]:
    return [token for chunk in chunks if chunk.choice == choice for token in chunk.token_ids]


def test_concurrent_streams_equal_the_synchronous_answers(folder: Path) -> None:
    prompts = [prompt(10 + 7 * i, seed=i) for i in range(12)]
    desk = Desk(folder, enable_prefix_caching=False)
    expected = [desk.answer(each)[0][0] for each in prompts]

    async def story(h: House) -> None:
        streams = await asyncio.gather(*(h.submit(each) for each in prompts))
        answers = await asyncio.gather(*(read(stream) for stream in streams))
        assert [tokens_of(chunks) for chunks in answers] == expected
        assert [stream.prompt_token_ids for stream in streams] == prompts
        await h.until_empty()

    with house(folder) as h:
        run(story(h))


class Notes:
    """Watches a request, and may be broken."""

    def __init__(self, *, broken: bool = False) -> None:
        self.seen: list[tuple[float, Chunk]] = []
        self._broken = broken

    def take(self, chunk: Chunk, now: float) -> None:
        self.seen.append((now, chunk))
        assert not self._broken


def test_a_watch_sees_every_chunk_when_it_is_made_read_or_not(folder: Path) -> None:
    async def story(h: House) -> None:
        async def watched(params: SamplingParams, notes: Notes) -> Stream:
            request = GenerateRequest(prompt_token_ids=prompt(20), params=params)
            return await h.engine.submit(request, notes)

        unread, left = Notes(), Notes()
        began = h.engine.now()
        await watched(GREEDY, unread)
        stream = await watched(LONG, left)
        await h.until(lambda: len(left.seen) > 2)
        await stream.cancel()
        await h.until_empty()
        await h.until(lambda: left.seen[-1][1].usage is not None)
        times = [now for now, _ in unread.seen]
        assert times == sorted(set(times))
        assert began < times[0]
        assert times[-1] < h.engine.now()
        assert sum(len(chunk.token_ids) for _, chunk in unread.seen) == GREEDY.max_tokens
        assert unread.seen[-1][1].receipt is not None
        assert left.seen[-1][1].finish_reason == "abort"

    with house(folder) as h:
        run(story(h))


def test_a_broken_watch_harms_no_stream(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story(h: House) -> None:
        request = GenerateRequest(prompt_token_ids=prompt(20), params=GREEDY)
        streams = [await h.engine.submit(request, watch) for watch in (Notes(broken=True), None)]
        for chunks in await asyncio.gather(*map(read, streams)):
            assert len(tokens_of(chunks)) == GREEDY.max_tokens

    with house(folder) as h:
        run(story(h))
    assert "watching a request failed" in caplog.text


def test_usage_comes_once_with_the_last_chunk_of_the_last_choice(folder: Path) -> None:
    async def story(h: House) -> None:
        tokens = prompt(40)
        await read(await h.submit(tokens))
        chunks = await read(await h.submit(tokens, replace(GREEDY, n=3)))
        with_usage = [chunk for chunk in chunks if chunk.usage is not None]
        assert with_usage == [chunks[-1]]
        usage = chunks[-1].usage
        assert usage is not None
        assert (usage.prompt_tokens, usage.completion_tokens) == (40, 36)
        assert usage.cached_tokens == 32
        ends = [chunk for chunk in chunks if chunk.finish_reason is not None]
        assert sorted(chunk.choice for chunk in ends) == [0, 1, 2]
        for chunk in ends:
            assert chunk.receipt is not None
            assert chunk.receipt.finished_at is not None
            assert chunk.receipt.tokens == 52

    with house(folder) as h:
        run(story(h))


def test_cancel_in_the_queue_runs_nothing(folder: Path) -> None:
    async def story(h: House) -> None:
        first = await h.submit(prompt(20), LONG)
        second = await h.submit(prompt(30, seed=1), LONG)
        await h.until(lambda: h.engine.stats().running == 1 and h.engine.stats().waiting == 1)
        await second.cancel()
        chunks = await read(second)
        assert [chunk.finish_reason for chunk in chunks] == ["abort"]
        assert chunks[0].usage is not None
        assert chunks[0].usage.completion_tokens == 0
        assert h.engine.stats().running == 1
        await first.cancel()
        await h.until_empty()

    with house(folder, max_num_seqs=1, pause_seconds=0.005) as h:
        run(story(h))


def test_cancel_during_the_prefill_frees_within_two_steps(folder: Path) -> None:
    async def story(h: House) -> None:
        stream = await h.submit(prompt(400), LONG)
        await h.until(lambda: h.engine.stats().computed_tokens > 0)
        await stream.cancel()
        steps = h.engine.stats().steps
        await h.until_empty()
        assert h.engine.stats().steps <= steps + 2
        chunks = await read(stream)
        assert [chunk.finish_reason for chunk in chunks] == ["abort"]
        assert chunks[0].token_ids == ()

    with house(folder, max_num_batched_tokens=16, max_num_seqs=4, pause_seconds=0.01) as h:
        run(story(h))


def test_leaving_the_iteration_early_aborts(folder: Path) -> None:
    async def story(h: House) -> None:
        seen = 0
        async for chunk in await h.submit(prompt(20), LONG):
            seen += len(chunk.token_ids)
            if seen >= 5:
                break
        await h.until_empty()
        assert h.engine.stats().generated_tokens < 100

    with house(folder, pause_seconds=0.005) as h:
        run(story(h))


def test_a_cancelled_reader_aborts(folder: Path) -> None:
    async def story(h: House) -> None:
        stream = await h.submit(prompt(20), LONG)
        task = asyncio.create_task(read(stream))
        await h.until(lambda: h.engine.stats().generated_tokens > 3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await h.until_empty()

    with house(folder, pause_seconds=0.005) as h:
        run(story(h))


def test_a_submit_cancelled_while_it_is_prepared_leaves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, go = threading.Event(), threading.Event()

    async def story(h: House) -> None:
        prepare = h.inner.prepare

        def slow(request: GenerateRequest) -> Any:
            entered.set()
            assert go.wait(DEADLINE_SECONDS)
            return prepare(request)

        monkeypatch.setattr(h.inner, "prepare", slow)
        task = asyncio.create_task(h.submit(prompt(20), LONG))
        await h.until(entered.is_set)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go.set()
        await h.until(lambda: h.engine.stats().sequences == 1)
        await h.until_empty()
        assert h.engine.stats().generated_tokens < 50

    with house(folder, pause_seconds=0.005) as h:
        run(story(h))


def test_a_second_iteration_ends_at_once(folder: Path) -> None:
    async def story(h: House) -> None:
        stream = await h.submit(prompt(20))
        assert await read(stream)
        assert await read(stream) == []
        await stream.cancel()

    with house(folder) as h:
        run(story(h))


def test_a_full_queue_refuses_and_takes_requests_again(folder: Path) -> None:
    async def story(h: House) -> None:
        streams = [await h.submit(prompt(20, seed=i), LONG) for i in range(3)]
        assert h.engine.ready() == "the queue is full"
        with pytest.raises(Overloaded):
            await h.submit(prompt(20))
        await streams[1].cancel()
        await h.until(lambda: h.engine.ready() is None)
        with pytest.raises(Overloaded):
            await h.submit(prompt(20), replace(GREEDY, n=2))
        with pytest.raises(RequestError, match="n 4"):
            await h.submit(prompt(20), replace(GREEDY, n=4))
        last = await h.submit(prompt(20))
        for stream in (streams[0], streams[2]):
            await stream.cancel()
        assert (await read(last))[-1].finish_reason == "length"
        await h.until_empty()

    with house(folder, max_num_seqs=1, max_num_queued_reqs=2, pause_seconds=0.002) as h:
        run(story(h))


def test_close_aborts_what_runs_and_refuses_what_comes(folder: Path) -> None:
    async def story(h: House) -> None:
        streams = [await h.submit(prompt(20, seed=i), LONG) for i in range(4)]
        await h.until(lambda: h.engine.stats().running == 2)
        await h.engine.close()
        for stream in streams:
            chunks = await read(stream)
            assert chunks[-1].finish_reason == "abort"
            assert chunks[-1].usage is not None
        with pytest.raises(EngineClosed):
            await h.submit(prompt(20))
        assert h.engine.ready() == "the engine is shutting down"
        assert not h.engine.alive()
        assert_empty(h.inner)
        await h.engine.close()

    with house(folder, max_num_seqs=2, pause_seconds=0.005) as h:
        run(story(h))


def test_close_while_others_submit_ends_every_accepted_stream(folder: Path) -> None:
    async def one(h: House, seed: int) -> str | None:
        try:
            stream = await h.submit(prompt(20, seed=seed), LONG)
        except EngineClosed:
            return "refused"
        return (await read(stream))[-1].finish_reason

    async def story(h: House) -> None:
        h.runner.go.clear()  # one step hangs, so that requests gather in the inbox
        tasks = [asyncio.create_task(one(h, seed)) for seed in range(40)]
        await h.until(lambda: len(h.inner.sessions()) >= 3)
        closing = asyncio.create_task(h.engine.close())
        await asyncio.sleep(0.01)
        h.runner.go.set()
        ends = await asyncio.gather(*tasks)
        await closing
        assert set(ends) <= {"abort", "refused"}
        assert "abort" in ends
        assert_empty(h.inner)

    with house(folder) as h:
        run(story(h))


def test_a_failed_step_ends_its_requests_and_the_next_one_works(folder: Path) -> None:
    async def story(h: House) -> None:
        expected = tokens_of(await read(await h.submit(prompt(40))))
        stream = await h.submit(prompt(40), replace(LONG, n=2))
        await h.until(lambda: h.engine.stats().generated_tokens > 20)
        h.runner.fail_next = True
        chunks = await read(stream)
        ends = [chunk for chunk in chunks if chunk.finish_reason is not None]
        assert [chunk.finish_reason for chunk in ends] == ["error", "error"]
        assert ends[0].error == "the step failed inside the engine"
        assert ends[0].usage is None
        assert ends[1].usage is not None
        assert h.engine.ready() is None
        await h.until_empty()
        assert tokens_of(await read(await h.submit(prompt(40)))) == expected
        await h.until_empty()

    with house(folder, pause_seconds=0.002) as h:
        run(story(h))


def test_a_dead_engine_thread_fails_running_and_unseen_streams(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(h: House) -> None:
        first = await h.submit(prompt(20), LONG)
        await h.until(lambda: h.engine.stats().generated_tokens > 2)
        h.runner.go.clear()

        def broken(*args: Any) -> None:
            raise RuntimeError("a bug in the engine")

        monkeypatch.setattr(h.inner.scheduler, "update", broken)
        second = await h.submit(prompt(20), LONG)  # still in the inbox when the thread dies
        h.runner.go.set()
        for stream in (first, second):
            last = (await read(stream))[-1]
            assert last.finish_reason == "error"
            assert last.error == "the engine has failed and must be restarted"
            assert last.usage is not None
        await h.until(lambda: not h.engine.alive())
        assert h.engine.ready() == "the engine has failed and must be restarted"
        with pytest.raises(EngineClosed):
            await h.submit(prompt(20))
        await first.cancel()

    with house(folder) as h:
        run(story(h))


def test_a_stream_whose_loop_has_gone_is_aborted(folder: Path) -> None:
    with house(folder, pause_seconds=0.005) as h:

        async def leave() -> None:
            await h.submit(prompt(20), LONG)

        asyncio.run(leave())
        run(h.until_empty())
        assert h.engine.alive()


def test_many_threads_submit_at_once(folder: Path) -> None:
    desk = Desk(folder, enable_prefix_caching=False)
    prompts = [prompt(20 + i, seed=i) for i in range(8)]
    expected = [desk.answer(each)[0][0] for each in prompts]
    answers: dict[int, list[int]] = {}

    def thread(h: House, i: int) -> None:
        async def one() -> None:
            for _ in range(3):
                answers[i] = tokens_of(await read(await h.submit(prompts[i])))

        asyncio.run(one())

    with house(folder) as h:
        threads = [threading.Thread(target=thread, args=(h, i)) for i in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(DEADLINE_SECONDS)
        run(h.until_empty())
    assert [answers[i] for i in range(8)] == expected


@pytest.mark.parametrize("seed", [0, 1])
def test_streams_cut_at_random_points_leave_nothing(folder: Path, seed: int) -> None:
    source = random.Random(seed)
    shared = prompt(70, seed=99)

    async def one(h: House) -> None:
        tokens = shared[: source.randrange(1, 70)] + prompt(source.randrange(1, 60), seed=seed)
        params = replace(LONG, n=source.choice([1, 1, 3]), max_tokens=source.randrange(1, 60))
        how, when = source.choice("bctw"), source.randrange(0, 12)
        task = asyncio.create_task(h.submit(tokens, params))
        if how == "w":  # gives up while it is being submitted
            await asyncio.sleep(source.random() * 0.01)
            task.cancel()
        try:
            stream = await task
        except asyncio.CancelledError:
            return
        if how == "t":
            reader = asyncio.create_task(read(stream))
            await asyncio.sleep(source.random() * 0.1)
            reader.cancel()
            return
        seen = 0
        async for _ in stream:
            seen += 1
            if seen > when:
                if how == "b":
                    break
                await stream.cancel()

    async def story(h: House) -> None:
        await asyncio.gather(*(one(h) for _ in range(100)))
        await h.until_empty()
        before = tokens_of(await read(await h.submit(shared)))
        assert before == Desk(folder).answer(shared)[0][0]

    with house(folder, num_blocks=60, max_num_batched_tokens=64, max_num_seqs=8) as h:
        run(story(h))


def test_an_unread_stream_keeps_its_tokens_in_one_chunk_a_choice(folder: Path) -> None:
    params = replace(LONG, n=2, logprobs=1)

    async def story(h: House) -> None:
        expected = await read(await h.submit(prompt(20), params))
        unread = await h.submit(prompt(20), params)
        await h.until(lambda: h.engine.stats().running == 0 and not h.inner.sessions())
        await asyncio.sleep(0)  # the last hand-over
        assert len(unread._chunks) == 2
        chunks = await read(unread)
        assert len(chunks) == 2
        for choice in range(2):
            assert len(tokens_of(chunks, choice)) == 400
            assert tokens_of(chunks, choice) == tokens_of(expected, choice)
        for chunk in chunks:
            assert chunk.finish_reason == "length"
            assert chunk.logprobs is not None
            assert [next(iter(each)) for each in chunk.logprobs] == list(chunk.token_ids)
        assert [chunk.usage is not None for chunk in chunks] == [False, True]

    with house(folder) as h:
        run(story(h))


def test_a_full_queue_is_noticed_before_anything_is_tokenised(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()

    async def story(h: House) -> None:
        prepare, seen = h.inner.prepare, []

        def slow(request: GenerateRequest) -> Any:
            seen.append(request)
            assert go.wait(DEADLINE_SECONDS)
            return prepare(request)

        monkeypatch.setattr(h.inner, "prepare", slow)
        tasks = [asyncio.create_task(h.submit(prompt(20, seed=i))) for i in range(3)]
        await h.until(lambda: len(seen) == 3)
        assert h.engine.ready() == "the queue is full"
        with pytest.raises(Overloaded):
            await h.submit(prompt(20))
        assert len(seen) == 3
        go.set()
        for stream in await asyncio.gather(*tasks):
            await read(stream)
        await h.until_empty()

    with house(folder, max_num_seqs=1, max_num_queued_reqs=2) as h:
        run(story(h))


def test_a_request_that_is_refused_gives_its_places_back(folder: Path) -> None:
    async def story(h: House) -> None:
        for _ in range(5):
            with pytest.raises(RequestError):
                await h.submit([], replace(GREEDY, n=2))
            with pytest.raises(RequestError, match="n must be from 1"):
                await h.submit(prompt(5), replace(GREEDY, n=0))
        assert len(tokens_of(await read(await h.submit(prompt(20))))) == 12
        await h.until_empty()

    with house(folder, max_num_seqs=1, max_num_queued_reqs=2) as h:
        run(story(h))


def test_preparing_takes_a_few_threads_and_leaves_the_others_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()

    async def story(h: House) -> None:
        prepare, seen = h.inner.prepare, []

        def slow(request: GenerateRequest) -> Any:
            seen.append(threading.current_thread())
            assert go.wait(DEADLINE_SECONDS)
            return prepare(request)

        monkeypatch.setattr(h.inner, "prepare", slow)
        tasks = [asyncio.create_task(h.submit(prompt(20, seed=i))) for i in range(40)]
        await h.until(lambda: len(seen) == PREPARING_THREADS)
        await asyncio.wait_for(asyncio.to_thread(lambda: None), 5)
        await asyncio.wait_for(h.engine.close(), 5)
        assert len(seen) == PREPARING_THREADS
        go.set()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(end) for end in ends} == {EngineClosed}
        assert len(seen) == PREPARING_THREADS  # those still waiting were not tokenised any more
        for thread in seen:
            thread.join(DEADLINE_SECONDS)
            assert not thread.is_alive()
        await h.until_empty()

    with house(folder) as h:
        run(story(h))


def test_a_fault_in_one_text_ends_that_stream_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Session.take

    def broken(session: Session, request: Request, tokens: Any, **rest: Any) -> bool:
        if session.prepared.tokens == prompt(20) and len(request.tokens) == 20 + 3:
            raise ValueError("a bug in the text")
        return take(session, request, tokens, **rest)

    async def story(h: House) -> None:
        h.runner.go.clear()  # so that they run in the same steps
        streams = [await h.submit(prompt(20, seed=i)) for i in range(3)]
        h.runner.go.set()
        failed, *others = [await read(stream) for stream in streams]
        assert (failed[-1].finish_reason, failed[-1].error) == ("error", TEXT_FAILED)
        assert failed[-1].usage is not None
        assert len(tokens_of(failed)) == 2
        for chunks in others:
            assert chunks[-1].finish_reason == "length"
            assert len(tokens_of(chunks)) == 12
        assert h.engine.ready() is None
        await h.until_empty()

    monkeypatch.setattr(Session, "take", broken)
    with house(folder) as h:
        run(story(h))


def test_a_dying_engine_tells_everybody_even_if_one_cannot_be_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail = Session.fail

    def broken(session: Session, reason: str) -> None:
        if session.prepared.tokens == prompt(20):
            raise ValueError("nobody hears this")
        fail(session, reason)

    async def story(h: House) -> None:
        h.runner.go.clear()
        streams = [await h.submit(prompt(20, seed=i), LONG) for i in range(3)]
        monkeypatch.setattr(h.inner.scheduler, "update", lambda *args: 1 / 0)
        h.runner.go.set()
        for stream in streams[1:]:
            assert (await read(stream))[-1].finish_reason == "error"

    monkeypatch.setattr(Session, "fail", broken)
    with house(folder) as h:
        run(story(h))


def test_numbers_read_during_a_step_are_those_of_the_last_one(folder: Path) -> None:
    """Half a step's changes do not fit together, and must not be read while they are made."""

    async def story(h: House) -> None:
        await read(await h.submit(prompt(40)))
        await h.until(lambda: h.engine.stats().running == 0)
        before = h.engine.stats()
        assert before.free_blocks + before.cached_blocks == before.total_blocks
        h.runner.go.clear()
        stream = await h.submit(prompt(40, seed=1))
        await h.until(lambda: len(h.inner.scheduler.running) == 1)  # it is inside a step
        assert h.engine.stats() == before
        h.runner.go.set()
        await read(stream)
        await h.until_empty()
        after = h.engine.stats()
        assert after.sequences == before.sequences + 1
        assert after.generated_tokens == before.generated_tokens + 12

    with house(folder) as h:
        run(story(h))


def test_admission_sees_what_the_cache_lacks_and_may_refuse(folder: Path) -> None:
    seen: list[int] = []

    def refuse(n_tokens: int) -> None:
        seen.append(n_tokens)
        raise Overloaded("not now")

    async def story(h: House) -> None:
        tokens = prompt(100)
        request = GenerateRequest(prompt_token_ids=tokens, params=GREEDY)
        await read(await h.engine.submit(request, admit=seen.append))
        with pytest.raises(Overloaded, match="not now"):
            await h.engine.submit(request, admit=refuse)
        salted = replace(request, salt="x")
        await read(await h.engine.submit(salted, admit=seen.append))
        await h.until_empty()

    with house(folder) as h:
        run(story(h))
    assert seen == [100, 100 - 96, 100]


def test_a_failed_engine_tells_everybody_and_takes_nothing_more(folder: Path) -> None:
    async def story(h: House) -> None:
        assert h.engine.progress() is None
        h.runner.go.clear()
        streams = [await h.submit(prompt(20, seed=i), LONG) for i in range(3)]
        await h.until(lambda: h.engine.progress() is not None)
        h.engine.fail("given up")
        h.engine.fail("a second time")
        for stream in streams:
            (last,) = await read(stream)
            assert (last.finish_reason, last.error) == ("error", "given up")
        with pytest.raises(EngineClosed, match="given up"):
            await h.submit(prompt(5))
        assert not h.engine.alive()
        h.runner.go.set()  # the step that hung comes back, and nobody hears of it
        h.engine._thread.join(DEADLINE_SECONDS)
        assert [await read(stream) for stream in streams] == [[], [], []]

    with house(folder) as h:
        run(story(h))
