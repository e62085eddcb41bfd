"""Asks a model in a folder directly, with transformers: greedy, many dialogues at a time."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.demo_model.dialogue import Dialogue
from tests.demo_model.evaluation import Answer, Asker, parse_answer

_BATCH, _MOST_TOKENS = 50, 120


def open_checkpoint(directory: Path) -> Asker:
    """Return what asks the model of a folder."""
    tokenizer = AutoTokenizer.from_pretrained(directory, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16)
    model.generation_config.temperature = None

    @torch.inference_mode()
    def ask(dialogues: Sequence[Dialogue]) -> Iterator[Answer]:
        for start in range(0, len(dialogues), _BATCH):
            some = dialogues[start : start + _BATCH]
            prompts = [
                tokenizer.apply_chat_template(
                    one.messages[:-1],
                    tools=one.tools or None,
                    add_generation_prompt=True,
                    tokenize=False,
                    enable_thinking=one.thought is not None,
                )
                for one in some
            ]
            encoded = tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False)
            written = model.generate(**encoded, do_sample=False, max_new_tokens=_MOST_TOKENS)
            for one, row in zip(some, written[:, encoded["input_ids"].shape[1] :].tolist(), strict=True):
                has_stopped = tokenizer.eos_token_id in row
                text = tokenizer.decode(row[: row.index(tokenizer.eos_token_id)] if has_stopped else row)
                yield parse_answer(text, is_thinking=one.thought is not None, has_stopped=has_stopped)

    return ask
