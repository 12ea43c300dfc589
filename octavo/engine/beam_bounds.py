"""The bounds of a beam search, and what it does not go together with. Knows no wire formats."""

from __future__ import annotations

from dataclasses import fields

from octavo.core.beams import MAX_WIDTH, BeamRules
from octavo.core.errors import RequestError, Unsupported
from octavo.core.sampling import SamplingParams

MAX_LENGTH_PENALTY = 10.0
OWN_FIELDS = ("length_penalty", "early_stopping")
SERVED_FIELDS = frozenset({
    *OWN_FIELDS, "beam_width", "n", "max_tokens", "stop_token_ids", "ignore_eos",
    "skip_special_tokens",
    "seed",  # nothing is drawn: any seed gives the same answer
})  # fmt: skip


def beam_rules(params: SamplingParams) -> BeamRules | None:
    """The beam search that checked `params` ask for, if any."""
    if params.beam_width is None:
        return None
    return BeamRules(
        width=params.beam_width,
        n=params.n,
        length_penalty=float(params.length_penalty),
        early_stopping=params.early_stopping,
    )


def check_beams(params: SamplingParams, *, vocab_size: int) -> None:
    """What concerns beams in otherwise checked `params`. Raises RequestError naming a field.

    Fields that would change which token is chosen are refused and not ignored.
    """
    if params.beam_width is None:
        _check_unused(params)
        return
    if params.n > check_width(params, most=min(MAX_WIDTH, vocab_size)):
        raise RequestError(
            "n must be at most beam_width: a search has no more answers than beams", param="n"
        )
    _check_penalty(params.length_penalty)
    if not isinstance(params.early_stopping, bool) and params.early_stopping != "never":
        raise RequestError('early_stopping must be true, false or "never"', param="early_stopping")
    _check_company(params)


def check_width(params: SamplingParams, *, most: int = MAX_WIDTH) -> int:
    """Beams of the search that is asked for, 1 without one. Raises RequestError."""
    width = params.beam_width
    if width is None:
        return 1
    if not isinstance(width, int) or isinstance(width, bool) or not 1 <= width <= most:
        raise RequestError(f"beam_width must be a whole number from 1 to {most}",
                           param="beam_width")  # fmt: skip
    return width


def _check_penalty(penalty: object) -> None:
    most = MAX_LENGTH_PENALTY
    if (
        not isinstance(penalty, int | float)
        or isinstance(penalty, bool)
        or not -most <= penalty <= most
    ):
        raise RequestError(
            f"length_penalty must be a number from {-most} to {most}", param="length_penalty"
        )


def _check_unused(params: SamplingParams) -> None:
    for each in fields(params):
        if each.name in OWN_FIELDS and getattr(params, each.name) != each.default:
            raise RequestError(
                f"{each.name} shapes a beam search only: set beam_width, or leave it out",
                param=each.name,
            )


def _check_company(params: SamplingParams) -> None:
    """Temperature 0 and 1 leave the order of the tokens as it is; every other field must rest."""
    for each in fields(params):
        value = getattr(params, each.name)
        if each.name in SERVED_FIELDS or value == each.default:
            continue
        if each.name != "temperature" or value != 0:
            raise Unsupported(
                f"{each.name} is not supported together with beam_width; leave it out",
                param=each.name,
            )
