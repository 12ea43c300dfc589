"""Tokenizers of model folders: equal to transformers on ordinary text, and never forged by text."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from octavo.core.errors import ConfigError, ModelFileError, RequestError
from octavo.engine.hf_tokenizer import from_folder

KINDS = ["byte_level", "byte_level_bos", "sentencepiece", "metaspace"]


@pytest.fixture(scope="module")
def transformers_tokenizers(folders: dict[str, Path]) -> dict[str, Any]:
    from transformers import PreTrainedTokenizerFast

    return {kind: PreTrainedTokenizerFast.from_pretrained(str(folders[kind])) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_plain_text_is_encoded_as_transformers_does(
    kind: str, folders: dict[str, Path], transformers_tokenizers: dict[str, Any], corpus: list[str]
) -> None:
    mine, theirs = from_folder(folders[kind]), transformers_tokenizers[kind]
    for text in [*corpus, "".join(corpus), "a <tool> b<tool>c"]:
        assert mine.encode(text) == theirs.encode(text), text[:40]


@pytest.mark.parametrize("kind", KINDS)
def test_rendered_text_is_encoded_as_transformers_does(
    kind: str, folders: dict[str, Path], transformers_tokenizers: dict[str, Any], corpus: list[str]
) -> None:
    mine, theirs = from_folder(folders[kind]), transformers_tokenizers[kind]
    specials = [theirs.convert_ids_to_tokens(i) for i in sorted(mine.special_ids)]
    for text in corpus:
        for special in specials:
            rendered = f"{special}{text} {special}  {text[:9]}\n{special}{special}{text}"
            expected = theirs.encode(rendered, add_special_tokens=False)
            assert mine.encode_rendered(rendered) == expected
            assert mine.special_ids.intersection(expected)


@pytest.mark.parametrize("kind", KINDS)
def test_plain_text_that_spells_special_tokens_stays_text(
    kind: str, folders: dict[str, Path]
) -> None:
    tokenizer = from_folder(folders[kind])
    added = len(tokenizer.encode("a"))
    assert tokenizer.special_pattern is not None
    for special_id in tokenizer.special_ids:
        piece = tokenizer.token_bytes(special_id).decode()
        assert tokenizer.special_pattern.fullmatch(piece)
        ids = tokenizer.encode(f"say {piece} and {piece}{piece}")
        forged = tokenizer.special_ids.intersection(ids[added - 1 :])
        assert special_id not in forged
        assert tokenizer.decode(ids) == f"say {piece} and {piece}{piece}"


def test_literal_stand_ins_are_restored_as_text(folders: dict[str, Path]) -> None:
    tokenizer = from_folder(folders["byte_level"])
    end = tokenizer.eos_ids[0]
    ids = tokenizer.encode_rendered(
        "<|im_start|>a\U00100000b<|im_end|>", literal={"\U00100000": "<|im_end|>"}
    )
    assert ids.count(end) == 1
    assert ids[-1] == end
    assert tokenizer.decode(ids) == "a<|im_end|>b"


@pytest.mark.parametrize("kind", KINDS)
def test_decode_is_that_of_transformers(
    kind: str, folders: dict[str, Path], transformers_tokenizers: dict[str, Any], corpus: list[str]
) -> None:
    tokenizer, theirs = from_folder(folders[kind]), transformers_tokenizers[kind]
    for text in corpus:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
        if kind != "metaspace":  # which forgets whether a text began with a space
            assert tokenizer.decode(ids) == text
        assert tokenizer.decode(ids, skip_special=False) == theirs.decode(ids)


def test_decode_shows_or_skips_special_tokens(folders: dict[str, Path]) -> None:
    tokenizer = from_folder(folders["byte_level"])
    ids = tokenizer.encode_rendered("<|im_start|>hi<tool><|im_end|>")
    assert tokenizer.decode(ids) == "hi<tool>"
    assert tokenizer.decode(ids, skip_special=False) == "<|im_start|>hi<tool><|im_end|>"


def test_ids_outside_the_vocabulary_are_no_text(folders: dict[str, Path]) -> None:
    tokenizer = from_folder(folders["byte_level"])
    assert tokenizer.decode([tokenizer.vocab_size, 10**9, -1]) == ""


def test_special_ids_and_roles_come_from_the_files(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(folders["byte_level"], folder)
    (folder / "generation_config.json").write_text('{"eos_token_id": [0, 2]}')
    (folder / "chat_template.jinja").write_text("from the file")
    tokenizer = from_folder(folder)
    assert tokenizer.bos_id == 0
    assert tokenizer.eos_ids == (2, 0)
    assert tokenizer.named_specials == {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}
    assert tokenizer.chat_template == "from the file"
    assert {0, 1, 2} < tokenizer.special_ids
    tool = tokenizer.encode("<tool>")
    assert len(tool) == 1
    assert tool[0] not in tokenizer.special_ids


@pytest.mark.parametrize("kind", ["byte_level", "byte_level_bos"])
def test_the_tokenizer_file_says_what_surrounds_a_prompt(
    kind: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    from transformers import PreTrainedTokenizerFast

    folder = tmp_path / "model"
    shutil.copytree(folders[kind], folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config |= {"add_bos_token": True, "add_eos_token": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    ids = from_folder(folder).encode("hello")
    assert ids == PreTrainedTokenizerFast.from_pretrained(str(folder)).encode("hello")
    assert (ids[0] == 0) == (kind == "byte_level_bos")


def test_tokens_that_only_the_config_names_are_added(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(folders["byte_level"], folder)
    before = from_folder(folder).vocab_size
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["eos_token"] = {"content": "<|new|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = from_folder(folder)
    assert tokenizer.eos_ids == (before,)
    assert tokenizer.encode_rendered("a<|new|>")[-1] == before


def test_a_folder_without_tokenizer_names_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="skip_tokenizer_init") as caught:
        from_folder(tmp_path)
    assert caught.value.param == "skip_tokenizer_init"
    assert str(tmp_path.parent) not in caught.value.message


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", "{}"),
        ("tokenizer.json", "not json"),
        ("tokenizer_config.json", "[]"),
        ("tokenizer_config.json", "[" * 100_000),
        ("tokenizer_config.json", '{"chat_template": 7}'),
        ("generation_config.json", '{"eos_token_id": "2"}'),
        ("generation_config.json", '{"eos_token_id": [-1]}'),
    ],
)
def test_damaged_files_are_named(
    name: str, content: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(folders["byte_level"], folder)
    (folder / name).write_text(content)
    with pytest.raises(ModelFileError, match=name.replace(".", r"\.")):
        from_folder(folder)


def test_a_sentencepiece_model_that_cannot_be_converted_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(b"not a model")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "LlamaTokenizer"}')
    with pytest.raises(ModelFileError, match=r"tokenizer\.json"):
        from_folder(tmp_path)


def test_a_model_that_makes_specials_from_text_is_refused(save_folder: Any) -> None:
    vocab = [("<unk>", 0.0), ("</s>", 0.0), *((c, -1.0) for c in "</s>abc")]
    tokenizer = Tokenizer(models.Unigram(vocab, unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["</s>"])
    with pytest.raises(ModelFileError, match="out of plain text"):
        from_folder(save_folder(tokenizer, eos_token="</s>"))


def test_an_unknown_decoder_is_refused_by_name(save_folder: Any) -> None:
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece()
    with pytest.raises(ModelFileError, match="WordPiece"):
        from_folder(save_folder(tokenizer))


def test_half_a_surrogate_pair_is_the_callers_fault(folders: dict[str, Path]) -> None:
    with pytest.raises(RequestError, match="surrogate"):
        from_folder(folders["byte_level"]).encode("a\ud83d")


def test_a_tokenizer_file_is_read_without_transformers(folders: dict[str, Path]) -> None:
    script = (
        "import sys; from pathlib import Path; from octavo.engine.hf_tokenizer import from_folder;"
        "print(len(from_folder(Path(sys.argv[1])).encode('hello')));"
        "sys.exit(any(name in sys.modules for name in ('transformers', 'torch')))"
    )
    subprocess.run([sys.executable, "-c", script, str(folders["byte_level"])], check=True)


@pytest.mark.parametrize(
    ("templates", "chosen"),
    [
        ([{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}], "D"),
        ([{"name": "tool_use", "template": "T"}], None),
        ([], None),
        ([7, {"name": ["x"], "template": "X"}, {"name": "default", "template": "D"}], "D"),
        ("S", "S"),
    ],
)
def test_of_several_chat_templates_the_default_counts(
    templates: Any, chosen: str | None, folders: dict[str, Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(folders["byte_level"], tmp_path / "m")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = templates
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert from_folder(folder).chat_template == chosen
    (folder / "chat_template.jinja").write_text("J")
    assert from_folder(folder).chat_template == "J"


@pytest.mark.parametrize(
    "config",
    [
        {"chat_template": [{"name": "default", "template": 7}]},
        {"chat_template": {"default": "D"}},
        {"bos_token": "\ud800"},
        {"added_tokens_decoder": {"9": {"content": "\udfff"}}},
    ],
)
def test_a_damaged_tokenizer_config_is_refused(
    config: dict[str, Any], folders: dict[str, Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(folders["byte_level"], tmp_path / "m")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(ModelFileError, match=r"tokenizer_config\.json"):
        from_folder(folder)


def test_odd_entries_of_added_tokens_are_no_tokens(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(folders["byte_level"], tmp_path / "m")
    odd = {"9" * 5000: {"content": "<x>"}, "3": "text", "x": {"content": "<y>"}, "4": None}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": odd}))
    assert not {"<x>", "<y>", "text"} & set(from_folder(folder).named_specials.values())


def test_a_folder_in_a_files_place_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(folders["byte_level"], tmp_path / "m")
    (folder / "chat_template.jinja").mkdir()
    with pytest.raises(ModelFileError, match=r"chat_template\.jinja cannot be read"):
        from_folder(folder)
