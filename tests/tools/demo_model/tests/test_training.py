"""The demo model learns, goes on where it was left, and is the same model once it is exported."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.tools.demo_model import training as training_module
from tests.tools.demo_model.__main__ import MODEL
from tests.tools.demo_model.export import export
from tests.tools.demo_model.mixture import held_out_dialogues
from tests.tools.demo_model.model import SHARPNESS, Shape, state_from_hf
from tests.tools.demo_model.tokenizer import build_tokenizer, encode
from tests.tools.demo_model.training import Training


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("training")
    build_tokenizer(num_dialogues=300).save(str(directory / "tokenizer.json"))
    return directory


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Two threads that wait for each other take many times as long on a machine that is busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_training_goes_on_and_the_export_is_the_same_model(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_module, "_POOL", 32)
    monkeypatch.setattr(training_module, "_BATCH_TOKENS", 512)
    Training(directory, num_checked=1).run(num_steps=2, num_falling=1)
    assert "step 0 of 2" in capsys.readouterr().out
    training = Training(directory, num_checked=1)
    training.run(num_steps=3, num_falling=1)
    assert "step 2 of 3" in capsys.readouterr().out
    assert training.optimizer.num_steps == 3
    assert (directory / "stable.pt").exists()

    export(directory, "latest.pt", tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    tokens, _ = encode(tokenizer.backend_tokenizer, held_out_dialogues("memory", 1)[0])
    batch = torch.tensor([tokens])
    with torch.inference_mode():
        ours = training.model.float()(batch) @ training.model.embed.T
        theirs = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)(batch).logits
    # Beside their rotary angles, which are rounded differently, and their sharpness, the two differ in nothing.
    torch.testing.assert_close(ours, theirs / SHARPNESS, rtol=0.05, atol=0.05)
    assert (ours.argmax(-1) == theirs.argmax(-1)).float().mean() > 0.98


def test_training_begins_with_the_weights_of_another_model(tmp_path: Path) -> None:
    """Words that became tokens begin where their letters were; all else is as it was."""
    shape = Shape(vocab_size=-(-Tokenizer.from_file(str(MODEL / "tokenizer.json")).get_vocab_size() // 16) * 16)
    shipped = state_from_hf(load_file(MODEL / "model.safetensors"), shape)
    build_tokenizer(num_dialogues=300).save(str(tmp_path / "tokenizer.json"))
    training = Training(tmp_path, num_checked=1, trained=MODEL)
    for name, tensor in training.model.state_dict().items():
        if name != "embed":
            torch.testing.assert_close(tensor.float(), shipped[name])
    before, now = (Tokenizer.from_file(str(folder / "tokenizer.json")) for folder in (MODEL, tmp_path))
    embed = training.model.embed.float()
    torch.testing.assert_close(embed[now.token_to_id("ĠManta")], shipped["embed"][before.token_to_id("ĠManta")])
    assert embed[: now.get_vocab_size()].abs().sum(1).min() > 0
