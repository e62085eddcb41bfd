"""Begins a training with the weights of a model that was trained before, so that it need not learn all of it again."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from tests.tools.demo_model.model import Shape, state_from_hf


def trained_before(model: Path, tokenizer: Tokenizer, shape: Shape) -> dict[str, Tensor]:
    """Return the parameters of an exported model for another tokenizer.

    Tokens that both have keep their embeddings. Words that became tokens since then begin with the mean of those that
    they were spelled with.
    """
    before = Tokenizer.from_file(str(model / "tokenizer.json"))
    state = state_from_hf(load_file(model / "model.safetensors"), shape)
    old = state["embed"]
    state["embed"] = torch.zeros(shape.vocab_size, shape.hidden_size)
    for token, index in tokenizer.get_vocab().items():
        known = before.token_to_id(token)
        spelled = [known] if known is not None else before.encode(tokenizer.decode([index])).ids
        state["embed"][index] = old[spelled].mean(0)
    return state
