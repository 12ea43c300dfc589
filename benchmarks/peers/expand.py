"""A GGUF file as a folder of bfloat16 tensors with its tokenizer: `... expand SOURCE TARGET`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import transformers


def main() -> None:
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    part = target.with_name(target.name + ".part")
    options: dict[str, Any] = {}
    if hasattr(transformers, "GgufConfig"):  # releases that have it keep the weights quantised
        options["quantization_config"] = transformers.GgufConfig(dequantize=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        source.parent, gguf_file=source.name, dtype=torch.bfloat16, **options
    )
    model.save_pretrained(part)
    tokenizer = transformers.AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    tokenizer.save_pretrained(part)
    part.rename(target)


if __name__ == "__main__":
    main()
