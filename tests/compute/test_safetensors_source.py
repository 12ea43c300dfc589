"""Safetensors folders: whole, sharded and tied ones load; damaged and hostile ones are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from octavo.compute import fingerprint as fingerprint_module
from octavo.compute.fingerprint import HashedFile, fingerprint
from octavo.compute.safetensors_header import read_header
from octavo.compute.safetensors_source import INDEX
from octavo.compute.weights import expected_shapes, open_source
from octavo.core.errors import ModelFileError, ModelNotFound
from tests.checkpoints import tiny_llama

VARIANTS: dict[str, dict[str, Any]] = {
    "tied": {},
    "untied": {"tie": False},
    "sharded": {"sharded": True},
    "sharded untied biases": {
        "sharded": True,
        "tie": False,
        "attention_bias": True,
        "mlp_bias": True,
    },
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_folder_gives_the_models_own_parameters(tmp_path: Path, variant: str) -> None:
    model = tiny_llama(tmp_path, **VARIANTS[variant])
    source = open_source(tmp_path)
    got, wanted = dict(source.tensors()), dict(model.named_parameters())
    assert got.keys() == wanted.keys() == set(source.names())
    for name, value in got.items():
        assert torch.equal(value, wanted[name]), name
    assert source.total_bytes() == sum(value.nbytes for value in got.values())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_stored_dtype_is_kept(tmp_path: Path, dtype: torch.dtype) -> None:
    tiny_llama(tmp_path)
    path = tmp_path / "model.safetensors"
    save_file({k: v.to(dtype) for k, v in load_file(path).items()}, path)
    assert {value.dtype for _, value in open_source(tmp_path).tensors()} == {dtype}


def test_stored_rotation_frequencies_are_left_alone(tmp_path: Path) -> None:
    tiny_llama(tmp_path)
    path = tmp_path / "model.safetensors"
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)}
    save_file({**load_file(path), **extra}, path)
    assert not any("inv_freq" in name for name in open_source(tmp_path).names())


def test_a_tied_head_that_is_stored_must_be_the_embedding(tmp_path: Path) -> None:
    tiny_llama(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    head = tensors["model.embed_tokens.weight"].clone()
    save_file({**tensors, "lm_head.weight": head}, path)
    assert "lm_head.weight" not in dict(open_source(tmp_path).tensors())
    head[3, 3] += 1
    save_file({**tensors, "lm_head.weight": head}, path)
    with pytest.raises(ModelFileError, match="tie_word_embeddings"):
        list(open_source(tmp_path).tensors())


def test_missing_and_unknown_names_are_listed(tmp_path: Path) -> None:
    tiny_llama(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    tensors["model.layers.0.self_attn.qkv_proj.weight"] = tensors.pop(
        "model.layers.0.self_attn.q_proj.weight"
    )
    save_file(tensors, path)
    with pytest.raises(ModelFileError) as caught:
        open_source(tmp_path)
    assert "missing: 'model.layers.0.self_attn.q_proj.weight'" in caught.value.message
    assert "unknown: 'model.layers.0.self_attn.qkv_proj.weight'" in caught.value.message


def test_a_long_list_of_names_is_cut(tmp_path: Path) -> None:
    tiny_llama(tmp_path)
    save_file({"x": torch.ones(1)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelFileError, match="and 21 more; unknown: 'x'"):
        open_source(tmp_path)


def test_a_wrong_shape_is_named(tmp_path: Path) -> None:
    tiny_llama(tmp_path)
    path = tmp_path / "model.safetensors"
    save_file({**load_file(path), "model.norm.weight": torch.ones(63)}, path)
    with pytest.raises(ModelFileError, match=r"model\.norm\.weight has shape \[63\].*\[64\]"):
        open_source(tmp_path)


def edit_index(folder: Path, change: Any) -> None:
    index = json.loads((folder / INDEX).read_text())
    change(index["weight_map"])
    (folder / INDEX).write_text(json.dumps(index))


@pytest.mark.parametrize(
    "file",
    [
        "../outside.safetensors",
        "/etc/outside.safetensors",
        "sub/x.safetensors",
        "..",
        "sub\\x.safetensors",
        "x.bin",
        ".hidden.safetensors",
        "x\0.safetensors",
        "x.safetensors\n",
        7,
        None,
    ],
)
def test_index_entries_stay_inside_the_folder(tmp_path: Path, file: Any) -> None:
    folder = tmp_path / "model"
    tiny_llama(folder, sharded=True)
    (folder / "model-00001-of-00002.safetensors").rename(tmp_path / "outside.safetensors")

    def redirect(weight_map: dict[str, Any]) -> None:
        for name, shard in weight_map.items():
            if "00001" in shard:
                weight_map[name] = file

    edit_index(folder, redirect)
    with pytest.raises(ModelFileError, match="same folder"):
        open_source(folder)


def test_shards_hold_what_the_index_says(tmp_path: Path) -> None:
    tiny_llama(tmp_path, sharded=True)
    intact = (tmp_path / INDEX).read_text()
    edit_index(tmp_path, lambda m: m.update({"ghost": "model-00001-of-00002.safetensors"}))
    with pytest.raises(ModelFileError, match="disagree on 1 tensors, the first is 'ghost'"):
        open_source(tmp_path)
    (tmp_path / INDEX).write_text(intact)
    edit_index(tmp_path, lambda m: m.pop("model.norm.weight"))
    with pytest.raises(ModelFileError, match="disagree"):
        open_source(tmp_path)
    (tmp_path / INDEX).write_text(intact)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ModelFileError, match=r"00002-of-00002.*cannot be read"):
        open_source(tmp_path)


def test_an_index_without_a_map(tmp_path: Path) -> None:
    tiny_llama(tmp_path, sharded=True)
    for raw, message in (("{}", "weight_map"), ("[]", "object"), ("{", "JSON")):
        (tmp_path / INDEX).write_text(raw)
        with pytest.raises(ModelFileError, match=message):
            open_source(tmp_path)


def test_folders_that_are_no_checkpoints(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"no config\.json"):
        open_source(tmp_path)
    tiny_llama(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelFileError, match="pickled"):
        open_source(tmp_path)
    (tmp_path / "pytorch_model.bin").unlink()
    with pytest.raises(ModelFileError, match="neither"):
        open_source(tmp_path)
    with pytest.raises(ModelNotFound, match="no such"):
        open_source(tmp_path / "none")
    with pytest.raises(ModelFileError, match=r"\.gguf file"):
        open_source(tmp_path / "config.json")


@pytest.mark.parametrize(
    "raw",
    [
        b"{",
        b"[]",
        b"\xff",
        b'{"a":1,"a":2}',
        b'{"a":NaN}',
        b"[" * 100_000,
        b'{"a":' + b"1" * 9999 + b"}",
    ],
)
def test_a_damaged_config_is_refused(tmp_path: Path, raw: bytes) -> None:
    tiny_llama(tmp_path)
    (tmp_path / "config.json").write_bytes(raw)
    with pytest.raises(ModelFileError, match=r"config\.json"):
        open_source(tmp_path)


def entry(shape: Any = (2,), span: Any = (0, 8), dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": span}


def packed(header: Any, *, data_bytes: int = 8, n_bytes: int | None = None) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (
        (len(raw) if n_bytes is None else n_bytes).to_bytes(8, "little") + raw + bytes(data_bytes)
    )


HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "the header claims"),
    "short": (b"\1\0\0", "the header claims"),
    "length past file": (packed({}, n_bytes=50), "the header claims 50"),
    "length huge": (packed({}, n_bytes=(1 << 64) - 1), "the header claims"),
    "no object": (packed(b"[]      "), "start with an object"),
    "leading space": (packed(b" {}"), "start with an object"),
    "cut JSON": (packed(b'{"a":'), "not valid JSON"),
    "deep JSON": (packed(b'{"a":' + b"[" * 200_000), "header"),
    "duplicate key": (
        packed(b'{"a":%b,"a":%b}' % ((json.dumps(entry()).encode(),) * 2)),
        "twice",
    ),
    "metadata": (packed({"__metadata__": {"a": 1}}, data_bytes=0), "__metadata__"),
    "entry": (packed({"a": [1]}), "exactly dtype"),
    "extra field": (packed({"a": {**entry(), "x": 1}}), "exactly dtype"),
    "dtype": (packed({"a": entry(dtype="F8_E4M3")}), "'F8_E4M3' is not read"),
    "dtype no text": (packed({"a": entry(dtype=["F32"])}), "dtype is not read"),
    "negative dim": (packed({"a": entry((-2, -1))}), "shape must be"),
    "float dim": (packed({"a": entry((2.0,))}), "shape must be"),
    "bool dim": (packed({"a": entry((True, 2))}), "shape must be"),
    "dim too large": (packed({"a": entry((1 << 31,))}), "shape must be"),
    "many dims": (packed({"a": entry((1,) * 9)}), "shape must be"),
    "range too small": (packed({"a": entry(span=(0, 4))}), "hold 4 bytes"),
    "range reversed": (packed({"a": entry(span=(8, 0))}), "hold -8 bytes"),
    "range of three": (packed({"a": entry(span=(0, 8, 8))}), "two positions"),
    "range past file": (packed({"a": entry((4,), (0, 16))}), "describes"),
    "hole at start": (packed({"a": entry((1,), (4, 8))}), "hole"),
    "hole": (packed({"a": entry((1,), (0, 4)), "b": entry((1,), (8, 12))}, data_bytes=12), "hole"),
    "overlap": (packed({"a": entry(), "b": entry((1,), (4, 8))}), "overlaps"),
    "same range": (packed({"a": entry(), "b": entry()}), "overlaps"),
    "trailing bytes": (packed({"a": entry()}, data_bytes=9), "describes"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_headers_are_refused(tmp_path: Path, case: str) -> None:
    raw, message = HOSTILE[case]
    (tmp_path / "x.safetensors").write_bytes(raw)
    with pytest.raises(ModelFileError, match=message):
        read_header(tmp_path / "x.safetensors")


def test_a_good_header_is_read_in_the_order_of_its_data(tmp_path: Path) -> None:
    header = {"b": entry((1, 2), (8, 16)), "e": entry((0,), (8, 8)), "a": entry()}
    (tmp_path / "x.safetensors").write_bytes(packed(header, data_bytes=16))
    read = read_header(tmp_path / "x.safetensors")
    assert list(read.tensors) == ["a", "e", "b"]
    assert read.tensors["b"].shape == (1, 2)
    assert read.tensors["b"].offset == read.file_bytes - 8


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    tiny_llama(tmp_path, num_hidden_layers=1, vocab_size=16)
    path = tmp_path / "model.safetensors"
    raw = path.read_bytes()
    for length in [*range(0, 1500, 31), len(raw) // 2, len(raw) - 1]:
        path.write_bytes(raw[:length])
        with pytest.raises(ModelFileError):
            open_source(tmp_path)


@pytest.fixture(scope="module")
def small_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    tiny_llama(folder, num_hidden_layers=1, vocab_size=16)
    return folder


@settings(max_examples=150, deadline=2000, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_mutations_load_or_raise_model_file_error(small_folder: Path, data: st.DataObject) -> None:
    path = small_folder / "model.safetensors"
    intact = path.read_bytes()
    raw = bytearray(intact)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, 1300))
        raw[at : at + 4] = data.draw(st.binary(min_size=1, max_size=4))
    path.write_bytes(raw)
    try:
        source = open_source(small_folder)
        loaded = dict(source.tensors())
    except ModelFileError:
        return
    finally:
        path.write_bytes(intact)
    assert {k: tuple(v.shape) for k, v in loaded.items()} == expected_shapes(source.config())


def test_fingerprint_changes_with_any_byte_and_with_the_config(tmp_path: Path) -> None:
    for name in ("a", "b"):
        tiny_llama(tmp_path / name, sharded=True)
    tiny_llama(tmp_path / "c", sharded=True, seed=1)
    a, b, c = (open_source(tmp_path / name).fingerprint() for name in "abc")
    assert a == b
    assert len({a, c}) == 2
    shard = tmp_path / "b" / "model-00001-of-00002.safetensors"
    raw = bytearray(shard.read_bytes())
    raw[-1] ^= 1
    shard.write_bytes(raw)
    assert open_source(tmp_path / "b").fingerprint() != a
    config = json.loads((tmp_path / "a/config.json").read_text())
    config["rms_norm_eps"] = 2e-5
    (tmp_path / "a/config.json").write_text(json.dumps(config))
    assert open_source(tmp_path / "a").fingerprint() != a


def test_large_files_are_sampled_tensor_by_tensor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fingerprint_module, "PAGE_BYTES", 16)
    config = open_source_config(tmp_path / "hf")
    path = tmp_path / "w"
    raw = bytearray(100 + 4000 + 200)
    path.write_bytes(raw)
    file = HashedFile(path, 100, len(raw), ((100, 4000), (4100, 200)))
    seen = fingerprint(config, [file], whole_bytes=0)
    assert seen != fingerprint(config, [file])
    for at, counts in ((0, 1), (99, 1), (100, 1), (4099, 1), (4100, 1), (4250, 1), (300, 0)):
        changed = bytearray(raw)
        changed[at] ^= 1
        path.write_bytes(changed)
        assert (fingerprint(config, [file], whole_bytes=0) != seen) == bool(counts), at


def open_source_config(folder: Path) -> Any:
    tiny_llama(folder, num_hidden_layers=1)
    return open_source(folder).config()
