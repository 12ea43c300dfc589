"""Beam search as the book has it: no scheduler, no cache, every continuation sorted in full."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.core.beams import BeamRules, Hypothesis
from octavo.core.keys import Key
from octavo.core.request import Finish
from tests.core.ledger import candidates, extend_tag, first_tag

Beam = tuple[float, tuple[int, ...]]


def plain_search(
    root: Key | None,
    prompt: Sequence[int],
    *,
    rules: BeamRules,
    room: int,
    stop: frozenset[int] = frozenset(),
    vocab: int,
) -> list[Hypothesis]:
    """The n best answers of at most `room` tokens, best first."""
    live: list[Beam] = [(0.0, ())]
    finished: list[Hypothesis] = []
    for length in range(1, room + 1):
        ranked = []
        for place, (logprob, tokens) in enumerate(live):
            tag = first_tag(root)
            for token in (*prompt, *tokens):
                tag = extend_tag(tag, token)
            for token, more in candidates(tag, vocab):
                ranked.append((-(logprob + more), place, token))
        ranked.sort()
        heirs: list[Beam] = []
        for at, (cost, place, token) in enumerate(ranked):
            tokens = (*live[place][1], token)
            if token in stop or length == room:
                if at < rules.width:
                    finish = Finish.STOP if token in stop else Finish.LENGTH
                    score = -cost / length**rules.length_penalty
                    finished.append(Hypothesis(tokens, finish, -cost, score))
            else:
                heirs.append((-cost, tokens))
        finished.sort(key=lambda each: -each.score)  # stable: the earlier of equal ones stays first
        finished = finished[: rules.width]
        live = heirs[: rules.width]
        if not live or _over(rules, live[0][0], finished, length=length, room=room):
            break
    return finished[: rules.n]


def _over(
    rules: BeamRules, best: float, finished: Sequence[Hypothesis], *, length: int, room: int
) -> bool:
    if len(finished) < rules.width:
        return False
    if rules.early_stopping is True:
        return True
    reach = room if rules.early_stopping == "never" and rules.length_penalty > 0 else length
    reachable: float = best / reach**rules.length_penalty
    return reachable <= finished[-1].score
