"""Rows of families: every flag changes the answer, and each stored weight has its place."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from octavo.compute.families import FAMILIES, family_of
from octavo.compute.load import load_decoder
from octavo.compute.weights import expected_shapes, open_source
from octavo.core.errors import ModelFileError
from octavo.core.model_config import ModelConfig
from tests import families as tiny
from tests.compute.models import Rig

PROMPT = random.Random(0).choices(range(3, 256), k=80)
# Family -> what the config says otherwise. Each must show in the logits, or no test would see it.
CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("mistral", {"sliding_layers": ()}),
    ("mistral", {"window": 25}),
    ("qwen2_window", {"sliding_layers": ()}),
    ("qwen2_window", {"window": 21}),
    ("phi3", {"window": 16}),
    ("gemma2", {"norm_offset": 0.0}),
    ("gemma2", {"attention_scale": None}),
    ("gemma2", {"attention_softcap": None}),
    ("gemma2", {"logit_softcap": None}),
    ("gemma2", {"sliding_layers": (1, 3)}),
    ("gemma2", {"window": 25}),
    ("gemma3", {"local_rope": None}),
    ("gemma3", {"attention_scale": None}),
    ("gemma3", {"sliding_layers": tuple(range(8))}),
    ("gemma3", {"window": 25}),
]
ROPES: list[tuple[str, dict[str, Any]]] = [
    ("qwen2_yarn", {"scaling": None}),
    ("phi3", {"dim": 16}),
    ("gemma3", {"scaling": None}),
]


class Reconfigured:
    """A source that states another config."""

    def __init__(self, folder: Path, config: ModelConfig) -> None:
        self._source = open_source(folder)
        self._config = config

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def config(self) -> ModelConfig:
        return self._config


def logits_of(folder: Path, config: ModelConfig | None = None) -> torch.Tensor:
    source: Any = open_source(folder) if config is None else Reconfigured(folder, config)
    rig = Rig(load_decoder(source, dtype=torch.float32), num_blocks=256)
    rig.run([rig.steps.row(rig.steps.request(PROMPT))])
    return rig.logits["r"][0]


@pytest.mark.parametrize(("family", "change"), CHANGES, ids=str)
def test_every_flag_shows_in_the_logits(
    tmp_path: Path, family: str, change: dict[str, Any]
) -> None:
    tiny.tiny_family(tmp_path, family)
    config = open_source(tmp_path).config()
    other = logits_of(tmp_path, dataclasses.replace(config, **change))
    assert (other - logits_of(tmp_path)).abs().max() > 0.05


@pytest.mark.parametrize(("family", "change"), ROPES, ids=str)
def test_every_part_of_the_rotation_shows_in_the_logits(
    tmp_path: Path, family: str, change: dict[str, Any]
) -> None:
    tiny.tiny_family(tmp_path, family)
    config = open_source(tmp_path).config()
    rope = dataclasses.replace(config.rope, **change)
    other = logits_of(tmp_path, dataclasses.replace(config, rope=rope))
    assert (other - logits_of(tmp_path)).abs().max() > 0.05


@pytest.mark.parametrize("family", ["gemma2", "gemma3"])
def test_gemma_in_bfloat16_stays_close(tmp_path: Path, family: str) -> None:
    model = tiny.tiny_family(tmp_path, family)
    rig = Rig(load_decoder(open_source(tmp_path), dtype=torch.bfloat16), num_blocks=256)
    rig.run([rig.steps.row(rig.steps.request(PROMPT))])
    with torch.no_grad():
        wanted = model(torch.tensor([PROMPT])).logits[0, -1]
    assert (rig.logits["r"][0] - wanted).abs().max() < 0.06 * wanted.abs().max()


def test_embeddings_are_scaled_in_the_models_own_dtype(tmp_path: Path) -> None:
    """sqrt(72) is 8.485; the nearest bfloat16 is 8.5."""
    tiny.tiny_family(tmp_path, "gemma2", hidden_size=72)
    decoder = load_decoder(open_source(tmp_path), dtype=torch.bfloat16)
    assert decoder._embed_scale is not None
    assert decoder._embed_scale.item() == 8.5


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_expected_shapes_are_those_of_transformers(tmp_path: Path, family: str) -> None:
    model = tiny.tiny_family(tmp_path, family)
    wanted = {name: tuple(value.shape) for name, value in model.named_parameters()}
    assert expected_shapes(open_source(tmp_path).config()) == wanted


def test_every_row_is_tested() -> None:
    tested = {name.split("_")[0] for name in tiny.FAMILIES}
    assert tested == FAMILIES.keys()


@pytest.mark.parametrize("family", ["mistral", "phi3"])
def test_flags_that_a_family_does_not_have_are_refused(tmp_path: Path, family: str) -> None:
    tiny.tiny_family(tmp_path, family)
    config = open_source(tmp_path).config()
    for flag in ("attention_bias", "mlp_bias"):
        with pytest.raises(ModelFileError, match=f"no such biases, yet {flag}"):
            family_of(dataclasses.replace(config, **{flag: True}))
