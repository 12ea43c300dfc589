"""One batch through the runner: moves, rows of every kind, and isolation between requests."""

from __future__ import annotations

import dataclasses
import random
from array import array
from pathlib import Path

import pytest
import torch

from octavo.compute.decoder import Decoder
from octavo.compute.sampler import BROKEN
from octavo.core.batch import DEVICE, Move, Place, RowResult
from octavo.core.sampling import SamplingParams
from tests.checkpoints import tiny_llama
from tests.compute.models import Rig, batch_of, load_tiny


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    folder: Path = tmp_path_factory.mktemp("tiny")
    tiny_llama(folder)
    return load_tiny(folder)


def tokens_of(n_tokens: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(256) for _ in range(n_tokens)]


def test_rows_that_do_not_sample_yield_nothing(decoder: Decoder) -> None:
    rig = Rig(decoder)
    chunk, whole = rig.steps.request(tokens_of(30)), rig.steps.request(tokens_of(5), name="w")
    result = rig.run([rig.steps.row(chunk, 12), rig.steps.row(whole)])
    assert result.rows[0] == RowResult()
    assert len(result.rows[1].tokens) == 1
    assert list(rig.run([rig.steps.row(chunk, 29)]).rows) == [RowResult()]
    assert list(rig.logits) == ["w"]


def test_a_batch_of_moves_only(decoder: Decoder) -> None:
    rig = Rig(decoder)
    rig.pool.tensor[3] = 1.0
    move = Move(Place(DEVICE, 3), Place(DEVICE, 4), 5)
    assert list(rig.runner.run(rig.steps.batch([], [move])).rows) == []
    assert (rig.pool.tensor[4][..., :5, :] == 1.0).all()


def test_a_full_hit_reads_and_writes_nothing(decoder: Decoder) -> None:
    """The last prompt token is recomputed read-only over blocks that another request filled."""
    rig = Rig(decoder)
    first = rig.steps.request(tokens_of(32))
    wanted = rig.finish(first, 1)
    before = rig.pool.tensor.clone()
    second = rig.steps.request(tokens_of(32), name="second")
    assert first.table is not None
    assert second.table is not None
    second.table.groups[0] = array("i", first.table.groups[0][:2])
    second.computed = 31
    assert rig.run([rig.steps.row(second, write_from=32)]).rows[0].tokens == tuple(wanted)
    assert torch.equal(rig.pool.tensor.nan_to_num(7.0), before.nan_to_num(7.0))
    torch.testing.assert_close(rig.logits["second"][0], rig.logits["r"][0], atol=1e-5, rtol=1e-5)


def test_a_fork_copies_its_tail_before_anyone_writes(decoder: Decoder) -> None:
    """Leader and child go on from one prompt whose last block is partial; both match a lone run."""
    rig = Rig(decoder)
    leader = rig.steps.request(tokens_of(21))
    rig.finish(leader, 1)
    child = rig.steps.request(tokens_of(21), name="child")
    assert leader.table is not None
    assert child.table is not None
    tail = rig.steps.free.pop()
    child.table.groups[0] = array("i", [leader.table.groups[0][0], tail])
    child.computed = 20
    move = Move(Place(DEVICE, leader.table.groups[0][1]), Place(DEVICE, tail), 5)
    rows = [rig.steps.row(leader), rig.steps.row(child, write_from=21)]
    results = rig.runner.run(rig.steps.batch(rows, [move])).rows
    leader.tokens += results[0].tokens
    leader.computed = 22
    child.tokens += results[1].tokens
    child.computed = 21
    for _ in range(5):
        rig.run([rig.steps.row(child), rig.steps.row(leader)])
    lone = Rig(decoder).finish(rig.steps.request(tokens_of(21)), 7)
    assert leader.tokens[21:] == lone
    assert child.tokens[21:] == lone[:6]


def test_a_seeded_request_samples_the_same_among_others(decoder: Decoder) -> None:
    hot = SamplingParams(temperature=1.0, top_p=0.95, seed=99, logprobs=2)
    alone = Rig(decoder)
    wanted = alone.finish(alone.steps.request(tokens_of(20), sampling=hot, choice=1), 15)
    rig = Rig(decoder, block_tokens=8, num_blocks=90)
    request = rig.steps.request(tokens_of(20), sampling=hot, choice=1)
    others = [
        rig.steps.request(
            tokens_of(n, n), sampling=dataclasses.replace(hot, seed=n, top_k=n), name=f"o{n}"
        )
        for n in (1, 9, 33)
    ]
    while len(request.tokens) < 35:
        result = rig.run([rig.steps.row(each) for each in (*others, request)])
        assert len(result.rows[-1].scores.generated) == 1
    assert request.tokens[20:] == wanted
    assert len({tuple(other.tokens[-15:]) for other in (*others, request)}) == 4


def test_choices_of_one_prompt_go_their_own_ways(decoder: Decoder) -> None:
    hot = SamplingParams(temperature=1.5, seed=5)
    rig = Rig(decoder)
    choices = [rig.steps.request(tokens_of(9), sampling=hot, choice=i) for i in (0, 1, 0)]
    for _ in range(10):
        rig.run([rig.steps.row(each) for each in choices])
    assert choices[0].tokens == choices[2].tokens
    assert choices[0].tokens != choices[1].tokens


def test_a_request_with_broken_numbers_leaves_nothing_behind(decoder: Decoder) -> None:
    """Its row fails alone, and the next owner of its blocks sees none of its NaN."""
    embed = decoder.weights.embed.clone()
    embed[255] = torch.nan
    broken = Decoder(
        decoder.config, dataclasses.replace(decoder.weights, embed=embed), rope=decoder.rope
    )
    rig = Rig(broken, num_blocks=6)
    calm = [t % 255 for t in tokens_of(20)]
    good = rig.steps.request(calm)
    bad = rig.steps.request([*calm[:17], 255, 3], name="bad")
    results = rig.run([rig.steps.row(bad), rig.steps.row(good)]).rows
    assert results[0].error == BROKEN
    assert results[1].error is None
    assert bad.table is not None
    rig.steps.free = bad.table.groups[0].tolist()
    heir = rig.steps.request(calm, name="heir")
    assert rig.run([rig.steps.row(heir)]).rows[0].tokens == results[1].tokens
    for _ in range(5):
        rows = rig.run([rig.steps.row(heir), rig.steps.row(good)]).rows
        assert rows[0].error is None
        assert rows[0].tokens == rows[1].tokens


def test_tables_can_grow_after_a_step(decoder: Decoder) -> None:
    rig = Rig(decoder, block_tokens=1)
    request = rig.steps.request(tokens_of(3))
    rig.finish(request, 4)
    assert request.table is not None
    request.table.groups[0].extend([1] * 1000)  # BufferError if the runner kept a view of it


def test_what_is_not_planned_yet_is_our_bug(decoder: Decoder) -> None:
    rig = Rig(decoder)
    row = rig.steps.row(rig.steps.request(tokens_of(4)))
    for bad in (row._replace(drafts=(1,)), row._replace(logits_from=0), row._replace(end=3)):
        with pytest.raises(AssertionError):
            rig.runner.run(batch_of([bad]))
