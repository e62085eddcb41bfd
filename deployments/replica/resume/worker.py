"""Changes vLLM's worker for continued answers and for LoRA adapters; vLLM loads `ResumingWorker` in every worker.

The state of a new request has no output. The state of a continued request gets the written tokens as output, so that
penalties count them. The generator of its seed skips the numbers that those tokens took: on a CPU one for each token,
on a GPU one for each entry of the vocabulary. vLLM's second model runner needs none of this: it reads the output of new
requests itself, and its random numbers depend on the seed and the position alone.

Where a step reads only a part of what a request has to read, vLLM takes the draw of that step back with `set_offset`,
which torch's generators on CPUs refuse: a seed with a long prompt would end the engine. `RewindingGenerator` allows it.

vLLM gives a token without an adapter the index -1, in a step with adapters. Its operations for CPUs take that for the
last adapter in place, and change the answers of requests without an adapter. Here the input of such tokens is zero,
which no adapter changes.

Relies on internals of vLLM: the model runner creates states by the name `CachedRequestState` in its own module, and
draws one seed (CPU) or one row of exponential numbers (GPU) for each token.
"""

from typing import Any, ClassVar

import torch
from vllm.lora.ops.torch_ops import lora_ops
from vllm.lora.punica_wrapper import punica_cpu
from vllm.v1.worker import gpu_model_runner
from vllm.v1.worker.gpu_input_batch import CachedRequestState

from deployments.replica.signals import resumed_of


class ResumedState(CachedRequestState):  # type: ignore[misc]  # vLLM is not typed here.
    """The state of a request, with the tokens that another engine wrote."""

    generator: Any
    row_size: ClassVar[int] = 0
    """The size of the vocabulary."""

    def __post_init__(self) -> None:
        super().__post_init__()
        resumed = resumed_of(self.sampling_params)
        if resumed is not None:
            self.output_token_ids = resumed.token_ids
        if self.generator is None:
            return
        if self.generator.device.type == "cpu":
            self.generator = RewindingGenerator(self.generator.initial_seed(), self.output_token_ids)
        elif resumed is not None:
            skip_rows(self.generator, len(self.output_token_ids), self.row_size)


class RewindingGenerator(torch.Generator):  # type: ignore[misc]  # Nor is torch.
    """A generator on a CPU that can take back its last draw. It starts after one draw for each token so far."""

    def __new__(cls, *_: Any) -> Any:
        """Return a generator; torch's own class takes a device as its only argument."""
        return super().__new__(cls)

    def __init__(self, seed: int, token_ids: list[int]) -> None:
        self._token_ids = token_ids
        self.manual_seed(seed)
        self._num_drawn = 0
        self._state = self.get_state()
        self._restore()

    def get_offset(self) -> int:
        """Return any number; vLLM only passes a number relative to it to `set_offset`."""
        return 0

    def set_offset(self, offset: int) -> None:
        """Take back the last draw, which produced no token."""
        self._restore()

    def _restore(self) -> None:
        self.set_state(self._state)
        torch.randint(0, 2**31, (len(self._token_ids) - self._num_drawn,), generator=self)
        self._num_drawn, self._state = len(self._token_ids), self.get_state()


def skip_rows(generator: torch.Generator, num_rows: int, row_size: int) -> None:
    """Advance a generator on a GPU past `num_rows` rows of exponential numbers.

    Each row takes the same part of the generator's sequence; this measures the first.
    """
    row = torch.empty(row_size, dtype=torch.float32, device=generator.device)
    before = generator.get_offset()
    row.exponential_(generator=generator)
    generator.set_offset(before + num_rows * (generator.get_offset() - before))


class ResumingWorker:
    """vLLM adds this to its worker's class, and so loads this module."""


def use_resumed_states() -> None:
    """Make the model runner of this process use `ResumedState`."""
    if gpu_model_runner.CachedRequestState is ResumedState:
        return
    gpu_model_runner.CachedRequestState = ResumedState
    update = gpu_model_runner.GPUModelRunner._update_states

    def update_states(self: Any, *args: Any, **kwargs: Any) -> Any:
        ResumedState.row_size = self.input_batch.vocab_size
        return update(self, *args, **kwargs)

    gpu_model_runner.GPUModelRunner._update_states = update_states


_OPERATIONS = ("bgmv_shrink", "bgmv_expand", "bgmv_expand_slice")


def leave_bare_tokens() -> None:
    """Make LoRA operations of this process leave tokens without an adapter unchanged."""
    for name in _OPERATIONS:
        operation = getattr(lora_ops, name)
        if not getattr(operation, "leaves_bare_tokens", False):
            changed = _leaving(operation)
            setattr(lora_ops, name, changed)
            setattr(punica_cpu, name, changed)


def _leaving(operation: Any) -> Any:
    def run(inputs: Any, weights: Any, output: Any, indices: Any, *more: Any, **options: Any) -> None:
        inputs = inputs.masked_fill((indices < 0).unsqueeze(-1), 0)
        operation(inputs, weights, output, indices, *more, **options)

    run.leaves_bare_tokens = True  # type: ignore[attr-defined]
    return run


use_resumed_states()
leave_bare_tokens()
