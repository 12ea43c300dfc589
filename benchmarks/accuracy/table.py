"""The figures of a run as two Markdown tables: formats of weights, and of K and V."""

from __future__ import annotations

from typing import Any


def tables(figures: dict[str, Any]) -> str:
    return weights(figures) + "\n" + kv(figures)


def weights(figures: dict[str, Any]) -> str:
    text = f"The first {figures['tokens']:,} tokens, K and V in float16:\n\n"
    text += "| weights | Octavo: KL | p99 | top-1 | llama.cpp: KL | p99 | top-1 |\n"
    text += "|---|---|---|---|---|---|---|\n"
    for name, readings in figures["weights"].items():
        cells = _cells(readings["octavo"]) + _cells(readings.get("llama.cpp"))
        text += f"| {name} | {' | '.join(cells)} |\n"
    return text


def kv(figures: dict[str, Any]) -> str:
    """Distances over the whole text, and over its last tokens before each length of context."""
    contexts = figures["contexts"]
    text = f"Weights in Q4_1, by the dtype of K and V, {contexts[-1]:,} tokens:\n\n"
    text += "| K and V | KL | p99 | top-1 | "
    text += " | ".join(f"KL at {n:,}" for n in contexts) + " |\n"
    text += "|---" * (4 + len(contexts)) + "|\n"
    for name, reading in figures["kv"].items():
        at = [f"{reading['at'][str(n)]:.4f}" for n in contexts]
        text += f"| {name} | {' | '.join(_cells(reading) + at)} |\n"
    return text + f"\n*KL at n* is the mean over the {figures['last']} tokens before n.\n"


def _cells(reading: dict[str, float] | None) -> list[str]:
    if reading is None:
        return ["", "", ""]
    kl = f"{reading['kl']:.4f}" if reading["kl"] >= 0.00005 else "< 0.0001"
    return [kl, f"{reading['p99']:.3f}", f"{100 * reading['top1']:.1f} %"]
