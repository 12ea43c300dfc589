"""What a watch over a request makes of its chunks and receipts."""

from __future__ import annotations

from typing import Any

from octavo.core.receipt import Receipt
from octavo.core.sampling import SamplingParams
from octavo.engine.types import Chunk, GenerateRequest, Usage
from octavo.server.telemetry.generation import Generation, Outcome

USUAL = Outcome(
    ended_at=0.0,
    prompt_tokens=0,
    read_tokens=0,
    written_5m_tokens=0,
    written_1h_tokens=0,
    written_implicit_tokens=0,
    unkept_tokens=0,
    output_tokens=0,
    finishes=("stop",),
    lengths=(0,),
    duration_seconds=0.0,
    first_token_seconds=None,
    queue_seconds=None,
    prefill_seconds=None,
    decode_seconds=None,
    block_seconds=0.0,
    shared_in_flight_tokens=0,
    lost_slots=0,
    recomputed_tokens=0,
    max_tokens=None,
    n=1,
)


def outcome(**fields: Any) -> Outcome:
    from dataclasses import replace

    return replace(USUAL, **fields)


class Heard:
    def __init__(self) -> None:
        self.first: list[float] = []
        self.gaps: list[float] = []
        self.outcomes: list[Outcome] = []

    def first_token(self, seconds: float) -> None:
        self.first.append(seconds)

    def gap(self, seconds: float) -> None:
        self.gaps.append(seconds)

    def ended(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)


def watch(*, n: int = 1) -> tuple[Generation, Heard]:
    heard = Heard()
    params = SamplingParams(n=n, max_tokens=7)
    return Generation(GenerateRequest(prompt="x", params=params), heard, arrived_at=10.0), heard


def receipt(**fields: Any) -> Receipt:
    times = {"queued_at": 11.0, "admitted_at": 13.0, "first_token_at": 16.0, "finished_at": 20.0}
    return Receipt(**(times | fields))


def test_times_and_tokens_of_one_choice() -> None:
    generation, heard = watch()
    generation.take(Chunk(0, "a", (1,)), 16.0)
    generation.take(Chunk(0, "", (2, 3)), 18.0)
    end = receipt(read=32, written_implicit=16, unkept=2, block_seconds=5.0, shared_in_flight=16)
    usage = Usage(prompt_tokens=50, completion_tokens=3, cached_tokens=32)
    generation.take(Chunk(0, "", (), finish_reason="stop", receipt=end, usage=usage), 20.5)
    assert (heard.first, heard.gaps) == ([6.0], [2.0])
    (found,) = heard.outcomes
    assert found == outcome(
        ended_at=found.ended_at,
        prompt_tokens=50,
        read_tokens=32,
        written_implicit_tokens=16,
        unkept_tokens=2,
        output_tokens=3,
        lengths=(3,),
        duration_seconds=10.5,
        first_token_seconds=6.0,
        queue_seconds=2.0,
        prefill_seconds=3.0,
        decode_seconds=4.0,
        block_seconds=5.0,
        shared_in_flight_tokens=16,
        max_tokens=7,
    )


def test_the_prompt_is_the_first_choices_and_blocks_are_everybodys() -> None:
    generation, heard = watch(n=2)
    usage = Usage(prompt_tokens=20, completion_tokens=3, cached_tokens=0)
    generation.take(Chunk(1, "a", (1,)), 16.0)
    generation.take(Chunk(0, "a", (1,)), 16.0)
    generation.take(Chunk(1, "b", (2,)), 17.0)
    fork = receipt(read=20, block_seconds=2.0, finished_at=17.0)
    generation.take(Chunk(1, "", (), finish_reason="length", receipt=fork), 17.0)
    leader = receipt(written_implicit=16, unkept=4, block_seconds=3.0)
    generation.take(Chunk(0, "", (), finish_reason="error", receipt=leader, usage=usage), 20.0)
    (found,) = heard.outcomes
    assert (found.read_tokens, found.written_implicit_tokens, found.unkept_tokens) == (0, 16, 4)
    assert (found.block_seconds, found.lengths) == (5.0, (1, 2))
    assert (found.finishes, found.finish) == (("error", "length"), "error")
    assert (heard.gaps, found.decode_seconds) == ([1.0], 4.0)


def test_a_search_has_one_receipt() -> None:
    generation, heard = watch(n=2)
    shared = receipt(unkept=4, block_seconds=9.0)
    usage = Usage(prompt_tokens=4, completion_tokens=2, cached_tokens=0)
    generation.take(Chunk(0, "a", (1,), finish_reason="length", receipt=shared), 20.0)
    last = Chunk(1, "b", (2,), finish_reason="length", receipt=shared, usage=usage)
    generation.take(last, 20.0)
    assert heard.outcomes[0].block_seconds == 9.0
    assert heard.gaps == []


def test_what_never_ran_has_no_times() -> None:
    generation, heard = watch()
    usage = Usage(prompt_tokens=4, completion_tokens=0, cached_tokens=0)
    queued = Receipt(queued_at=11.0, finished_at=12.0)
    generation.take(Chunk(0, "", (), finish_reason="abort", receipt=queued, usage=usage), 12.0)
    found = heard.outcomes[0]
    assert (found.queue_seconds, found.prefill_seconds, found.decode_seconds) == (None,) * 3
    assert (found.first_token_seconds, heard.first, found.finish) == (None, [], "abort")
