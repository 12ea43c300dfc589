"""How far one reading of a text is from another: KL divergence and the likeliest token."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Distance:
    """Per position: `kl` float32 [positions], in nats, and `agrees` bool [positions]."""

    kl: torch.Tensor
    agrees: torch.Tensor

    @property
    def mean(self) -> float:
        return float(self.kl.double().mean())

    @property
    def p99(self) -> float:
        return float(self.kl.quantile(0.99))

    @property
    def top1(self) -> float:
        return float(self.agrees.double().mean())

    def part(self, first: int, stop: int) -> Distance:
        return Distance(self.kl[first:stop], self.agrees[first:stop])


def distances(
    wanted: Iterable[torch.Tensor], found: Mapping[str, Iterable[torch.Tensor]]
) -> dict[str, Distance]:
    """Of several readings from one, in tiles of logits float32 [positions, vocab] cut alike.

    KL(p || q) with p from `wanted`: what is lost by expecting q where p is true.
    """
    kls: dict[str, list[torch.Tensor]] = {name: [] for name in found}
    agreements: dict[str, list[torch.Tensor]] = {name: [] for name in found}
    for p, *others in zip(wanted, *found.values(), strict=True):
        log_p, likeliest = p.log_softmax(-1), p.argmax(-1)
        weight = log_p.exp()
        for name, q in zip(found, others, strict=True):
            kls[name].append((weight * (log_p - q.log_softmax(-1))).sum(-1))
            agreements[name].append(likeliest == q.argmax(-1))
    return {name: Distance(torch.cat(kls[name]), torch.cat(agreements[name])) for name in found}


def distance(wanted: Iterable[torch.Tensor], found: Iterable[torch.Tensor]) -> Distance:
    """Of one reading from another."""
    return distances(wanted, {"": found})[""]
