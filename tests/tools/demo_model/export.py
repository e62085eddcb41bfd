"""Writes a checkpoint of the training as a model in Hugging Face's layout, which vLLM loads."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

from tests.tools.demo_model.model import Shape, hf_config, state_to_hf
from tests.tools.demo_model.tokenizer import END, PAD
from tests.tools.demo_model.training import load_tokenizer

TEMPLATE = Path(__file__).parent / "chat_template.jinja"


def export(training: Path, checkpoint: str, target: Path) -> None:
    """Write the checkpoint of a training directory to `target`; a model card that is there stays."""
    tokenizer = load_tokenizer(training)
    state = torch.load(training / checkpoint, map_location="cpu")["master"]
    shape = Shape(vocab_size=state["embed"].shape[0])
    end, pad = tokenizer.token_to_id(END), tokenizer.token_to_id(PAD)
    target.mkdir(parents=True, exist_ok=True)
    save_file(state_to_hf(state, shape), target / "model.safetensors", metadata={"format": "pt"})
    (target / "model.safetensors").chmod(0o644)
    shutil.copyfile(training / "tokenizer.json", target / "tokenizer.json")
    shutil.copyfile(TEMPLATE, target / "chat_template.jinja")
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": shape.max_position_embeddings,
        "eos_token": END,
        "pad_token": PAD,
        "clean_up_tokenization_spaces": False,
    }
    generation = {"eos_token_id": end, "pad_token_id": pad}
    for name, content in (
        ("config.json", hf_config(shape, end, pad)),
        ("tokenizer_config.json", tokenizer_config),
        ("generation_config.json", generation),
    ):
        (target / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
