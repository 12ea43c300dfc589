"""The built-in cards: configs of well-known models, cut down to the fields that size something.

`cards.json` holds the fields under their own names, so a card takes the same path as a file.
"""

from __future__ import annotations

import difflib
import json
from functools import cache
from importlib.resources import files
from typing import Any

from octavo.core.errors import ModelNotFound
from octavo.plan.hf_model import EXPERTS, from_hf, text_part
from octavo.plan.model import Parameters, PlannedModel

EXPERTS_OF_TOKEN = ("num_experts_per_tok", "num_experts_per_token")


@cache
def _cards() -> dict[str, Any]:
    text = files("octavo.plan").joinpath("cards.json").read_text(encoding="utf-8")
    cards: dict[str, Any] = json.loads(text)
    return cards


@cache
def _names() -> dict[str, str]:
    """Every name and alias, to the card it means."""
    found: dict[str, str] = {}
    for name, card in _cards().items():
        found |= dict.fromkeys([name, *card["aliases"]], name)
    return found


def card_names() -> tuple[str, ...]:
    """The cards' own names, in order."""
    return tuple(_cards())


def has_card(name: str) -> bool:
    """Case does not matter."""
    return name.lower() in _names()


def card_config(name: str) -> dict[str, Any]:
    """The config of the card called `name`, which must be there."""
    config: dict[str, Any] = _cards()[_names()[name]]["config"]
    return config


def planned_card(name: str, *, mtp: bool = False) -> PlannedModel:
    """The model of a card; raises ModelNotFound."""
    own = _names().get(name.lower())
    if own is None:
        near = difflib.get_close_matches(name.lower()[:100], _names(), n=3)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise ModelNotFound(
            f"{name[:100]!a}: {hint}Give a card, a config.json or its folder, a .gguf file or a "
            "hub id; `octavo plan --cards` lists the cards"
        )
    card, config = _cards()[own], card_config(own)
    return from_hf(
        config, own, source="built-in card", parameters=_parameters(card, config), mtp=mtp
    )


def _parameters(card: dict[str, Any], config: dict[str, Any]) -> Parameters | None:
    """As published; None where they are counted from the config, or not known."""
    stated = card.get("parameters")
    if stated is None:
        return None
    text = text_part(config)
    experts = next((text[name] for name in EXPERTS if name in text), 0)
    chosen = next((text[name] for name in EXPERTS_OF_TOKEN if name in text), 0)
    return Parameters(**stated, experts=experts, experts_of_token=chosen)
