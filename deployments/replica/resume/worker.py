"""A continued request's state in vLLM's worker: as if the worker had generated the written tokens itself.

The state of a new request has no output. For a request that continues, it gets the written tokens as output, so that
penalties count them, and the generator of its seed moves on by the numbers that those tokens took: on a CPU one for
each token, on a GPU one for each entry of the vocabulary. vLLM's second model runner needs none of this: it reads the
output of new requests by itself, and its random numbers depend on the seed and the position alone.

vLLM loads `ResumingWorker` in every worker. Internals that are relied on: the model runner makes states by the name
`CachedRequestState` in its own module, and draws one seed (CPU) or one row of exponential numbers (GPU) for each token.
Where a step reads only a part of what a request has to read, it takes its draw back by `set_offset`, which a generator
on a CPU refuses: the engine would die of a seed with a long prompt. Here it does not.
"""

from typing import Any, ClassVar

import torch
from vllm.v1.worker import gpu_model_runner
from vllm.v1.worker.gpu_input_batch import CachedRequestState

from deployments.replica.resume.bare_tokens import leave_bare_tokens
from deployments.replica.resume.request import resumed_of


class ResumedState(CachedRequestState):  # type: ignore[misc]  # vLLM is not typed here.
    """The state of a request, with the tokens that were written before."""

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
    """A generator on a CPU that can take back its last draw. It begins after a draw for each of the tokens so far."""

    def __new__(cls, *_: Any) -> Any:
        """Return one, which is made of no argument: torch's own class takes only a device."""
        return super().__new__(cls)

    def __init__(self, seed: int, token_ids: list[int]) -> None:
        self._token_ids = token_ids
        self.manual_seed(seed)
        self._num_drawn = 0
        self._state = self.get_state()
        self._restore()

    def get_offset(self) -> int:
        """Return any number: only the difference to what `set_offset` gets has a meaning."""
        return 0

    def set_offset(self, offset: int) -> None:
        """Take the last draw back, which made no token."""
        self._restore()

    def _restore(self) -> None:
        """Go to where the next draw begins."""
        self.set_state(self._state)
        torch.randint(0, 2**31, (len(self._token_ids) - self._num_drawn,), generator=self)
        self._num_drawn, self._state = len(self._token_ids), self.get_state()


def skip_rows(generator: torch.Generator, num_rows: int, row_size: int) -> None:
    """Advance a generator on a GPU past `num_rows` rows of exponential numbers.

    Each row takes the same part of the generator's sequence, so one is measured.
    """
    row = torch.empty(row_size, dtype=torch.float32, device=generator.device)
    before = generator.get_offset()
    row.exponential_(generator=generator)
    generator.set_offset(before + num_rows * (generator.get_offset() - before))


class ResumingWorker:
    """What vLLM adds to its worker's class; it exists so that this module is loaded."""


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


use_resumed_states()
leave_bare_tokens()
