"""LoRA adapters for demo models, with random weights that change every answer."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from deployments.models.demo.sources import DEMO_MODELS


def make_adapter(folder: Path, model: str, seed: int, rank: int = 4) -> Path:
    """Write an adapter for `demo:MODEL` into a new folder, as PEFT does; return the folder."""
    folder.mkdir()
    shape, numbers = DEMO_MODELS[model], np.random.default_rng(seed)
    widths = {
        "q_proj": shape.hidden_size,
        "v_proj": shape.head_dim * shape.num_kv_heads,
        "o_proj": shape.hidden_size,
    }
    weights = {}
    for layer in range(shape.num_layers):
        for name, width in widths.items():
            place = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            weights[f"{place}.lora_A.weight"] = numbers.standard_normal((rank, shape.hidden_size)).astype(np.float32)
            weights[f"{place}.lora_B.weight"] = numbers.standard_normal((width, rank)).astype(np.float32)
    save_file(weights, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 8, "target_modules": list(widths), "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder
