"""From what the user calls a model to a path here. Owns aliases, the cache and the hub rules.

Knows no formats beyond which files are fetched: weights as safetensors and the texts beside them,
never pickles and never code.
"""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path

from octavo.compute.packaged_model import SMOLLM2, fetch
from octavo.compute.progress import Progress, TerminalProgress
from octavo.core.errors import ModelFileError, ModelNotFound

DEFAULT_MODEL = "smollm2"
ALIASES = {"smollm2": SMOLLM2}
HUB_FILES = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "model-*-of-*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.json",
    "*.jinja",
)
CONFIG_FILES = ("config.json", "hf_quant_config.json")
# The patterns above match across folders; only the top one counts.
_NEVER = ("*/*", "*.bin", "*.py")
_HUB_ID = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})"
    r"(@(?P<revision>[A-Za-z0-9][\w./-]{0,127}))?",
    re.ASCII,
)


def resolve(model: str, *, progress: Progress | None = None) -> Path:
    """Path of a checkpoint folder or .gguf file for `model`, fetched first where that is needed.

    `model` is an alias, the path of a folder or of a .gguf file, or a hub id, tried in this order.
    A hub id is owner/name or owner/name@revision: a branch, a tag or a commit. An alias that is in
    the cache needs no network; a hub id only asks what is newest, and not even that with
    HF_HUB_OFFLINE set. Raises ModelNotFound.
    """
    progress = progress or TerminalProgress()
    alias = ALIASES.get(model)
    if alias is not None:
        return fetch(alias, cache_folder() / "models", progress=progress)
    path = _existing(model)
    if path is not None:
        if path.is_file() and path.suffix != ".gguf":
            raise ModelFileError(f"{path.name}: give a .gguf file or a folder with safetensors")
        return path
    hub_id = _HUB_ID.fullmatch(model)
    if hub_id and ".." not in model and not model.endswith(".gguf"):
        return _from_hub(hub_id["name"], hub_id["revision"], progress)
    near = difflib.get_close_matches(model[:200], ALIASES, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise ModelNotFound(
        f"{model[:200]!a}: {hint}Give an alias ({', '.join(ALIASES)}), a folder with safetensors, "
        "a .gguf file or a hub id (owner/name, or owner/name@revision)"
    )


def config_folder(model: str) -> Path | None:
    """Folder with the JSON files of the hub id `model`, its weights not fetched; None where
    `model` is no hub id. Raises ModelNotFound."""
    hub_id = _HUB_ID.fullmatch(model)
    if not hub_id or ".." in model:
        return None
    progress = TerminalProgress()
    return _from_hub(hub_id["name"], hub_id["revision"], progress, files=CONFIG_FILES)


def _existing(model: str) -> Path | None:
    """`model` as a path, if something that can be seen lies there."""
    if not model:
        return None
    try:
        path = Path(model).expanduser()
        return path if path.exists() else None
    except (OSError, ValueError, RuntimeError):  # too long, NUL, half a character, unknown ~user
        return None


def cache_folder() -> Path:
    """`$OCTAVO_CACHE`, else `$XDG_CACHE_HOME/octavo`, else `~/.cache/octavo`."""
    own = os.environ.get("OCTAVO_CACHE")
    if own:
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "octavo"


def _from_hub(
    name: str, revision: str | None, progress: Progress, *, files: tuple[str, ...] = HUB_FILES
) -> Path:
    """Snapshot of a hub repository; its own cache answers when the network does not."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    shown = name if revision is None else f"{name}@{revision}"
    try:
        with progress.stage(f"Fetching {shown}", total_bytes=None):
            folder = Path(
                snapshot_download(
                    name,
                    revision=revision,
                    allow_patterns=list(files),
                    ignore_patterns=list(_NEVER),
                )
            )
    except GatedRepoError as error:
        reason = "its licence must be accepted on its hub page, then set HF_TOKEN"
        raise ModelNotFound(f"{shown}: {reason}") from error
    except RevisionNotFoundError as error:
        reason = "the hub has no such branch, tag or commit of this model"
        raise ModelNotFound(f"{shown}: {reason}") from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        reason = "the hub has no such model, or it is private: check the id or set HF_TOKEN"
        raise ModelNotFound(f"{shown}: {reason}") from error
    except Exception as error:  # its HTTP library, and so its errors, differ between versions
        reason = (
            "the hub did not answer and the model is not in its cache: check the network and "
            f"HF_HUB_OFFLINE, or give the path of a folder or .gguf file, or use {DEFAULT_MODEL}"
        )
        raise ModelNotFound(f"{shown}: {reason}") from error
    if not (folder / "config.json").is_file():
        raise ModelNotFound(
            f"{shown}: its snapshot in the hub cache has no config.json: it is no model of this "
            "kind, or only a part of it was ever fetched; connect once to complete it"
        )
    return folder
