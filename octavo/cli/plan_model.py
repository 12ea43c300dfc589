"""Files and ids that `octavo plan` is given, opened: what the planner itself must not know."""

from __future__ import annotations

import lzma
from pathlib import Path

from octavo.compute.json_file import read_object
from octavo.core.errors import ConfigError
from octavo.core.gguf_header import read_header
from octavo.plan.cards import has_card, planned_card
from octavo.plan.gguf_model import from_gguf_header
from octavo.plan.hf_dtypes import QUANT_FILE
from octavo.plan.hf_model import from_hf
from octavo.plan.lengths import Lengths, of_trace
from octavo.plan.model import PlannedModel

MAX_TRACE_BYTES = 256 << 20


def open_model(name: str, *, mtp: bool = False) -> PlannedModel:
    """A path if something lies there, else a card, else a hub id of which only the config is
    fetched. Raises ModelNotFound or ModelFileError."""
    path = _existing(name)
    if path is not None:
        return _from_path(path, mtp=mtp)
    if not has_card(name):
        from octavo.compute.hub import config_folder

        folder = config_folder(name)
        if folder is not None:
            return _from_folder(folder, name, source="hub", mtp=mtp)
    return planned_card(name, mtp=mtp)


def read_lengths(path: Path) -> Lengths:
    """The lengths of a trace, plain or xz; raises ConfigError."""
    try:
        with lzma.open(path) if path.suffix == ".xz" else path.open("rb") as file:
            raw = file.read(MAX_TRACE_BYTES + 1)
        text = raw.decode()
    except (OSError, lzma.LZMAError, EOFError) as error:
        reason = getattr(error, "strerror", None) or "it is damaged"
        raise ConfigError(f"{str(path)!a} cannot be read: {reason}", param="lengths") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{str(path)!a} is not text", param="lengths") from None
    if len(raw) > MAX_TRACE_BYTES:
        raise ConfigError(f"{str(path)!a} is larger than {MAX_TRACE_BYTES} bytes", param="lengths")
    return of_trace(text, path.name)


def _existing(name: str) -> Path | None:
    try:
        path = Path(name).expanduser()
        return path if name and path.exists() else None
    except (OSError, ValueError, RuntimeError):  # too long, NUL, unknown ~user
        return None


def _from_path(path: Path, *, mtp: bool) -> PlannedModel:
    if path.is_dir():
        return _from_folder(path, path.absolute().name, source="folder", mtp=mtp)
    if path.suffix == ".gguf":
        return from_gguf_header(read_header(path), path.stem)
    if path.suffix == ".json":
        return from_hf(read_object(path), path.stem, source=path.name, mtp=mtp)
    raise ConfigError(
        f"{path.name}: give a .gguf file, a config.json or a folder with one", param="model"
    )


def _from_folder(folder: Path, name: str, *, source: str, mtp: bool) -> PlannedModel:
    quantization = folder / QUANT_FILE
    stored = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    return from_hf(
        read_object(folder / "config.json"),
        name,
        source=source,
        quantization=read_object(quantization) if quantization.exists() else None,
        stored_weight_bytes=stored or None,
        mtp=mtp,
    )
