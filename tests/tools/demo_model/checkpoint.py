"""Asks a model in a folder directly: vLLM in this process, greedy, all dialogues at once."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.tools.demo_model.dialogue import Dialogue
from tests.tools.demo_model.evaluation import Answer, Asker, parse_answer

_MOST_TOKENS, _CONTEXT = 120, 4096
_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "TORCHDYNAMO_DISABLE": "1",
}


def open_checkpoint(directory: Path) -> Asker:
    """Return what asks the model of a folder."""
    os.environ |= _ENVIRONMENT
    from transformers import AutoTokenizer
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    tokenizer = AutoTokenizer.from_pretrained(directory)
    engine = LLM(
        model=str(directory), dtype="float32", enforce_eager=True, max_model_len=_CONTEXT, disable_log_stats=True
    )

    def sampling_of(dialogue: Dialogue) -> SamplingParams:
        guide = None if dialogue.schema is None else StructuredOutputsParams(json=dialogue.schema)
        return SamplingParams(
            temperature=0, max_tokens=_MOST_TOKENS, skip_special_tokens=False, structured_outputs=guide
        )

    def ask(dialogues: Sequence[Dialogue]) -> Iterator[Answer]:
        prompts = [
            tokenizer.apply_chat_template(
                one.messages[:-1],
                tools=one.tools or None,
                add_generation_prompt=True,
                tokenize=False,
                enable_thinking=one.thought is not None,
            )
            for one in dialogues
        ]
        sampling = [sampling_of(one) for one in dialogues]
        for one, written in zip(dialogues, engine.generate(prompts, sampling, use_tqdm=False), strict=True):
            output = written.outputs[0]
            text = output.text.removesuffix("<|im_end|>")
            yield parse_answer(text, is_thinking=one.thought is not None, has_stopped=output.finish_reason == "stop")

    return ask
