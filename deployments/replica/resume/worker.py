"""A continued request's state in vLLM's worker: as if the worker had generated the written tokens itself.

The state of a new request has no output. For a request that continues, it gets the written tokens as output, so that
penalties count them, and the generator of its seed moves on by the numbers that those tokens took: for each token one
for each entry of the vocabulary. vLLM's second model runner needs none of this: it reads the output of new requests by
itself, and its random numbers depend on the seed and the position alone.

vLLM loads `ResumingWorker` in every worker. Internals that are relied on: the model runner makes states by the name
`CachedRequestState` in its own module, and draws one row of exponential numbers for each token.
"""

import torch
from vllm.v1.worker import gpu_model_runner
from vllm.v1.worker.gpu_input_batch import CachedRequestState

from deployments.replica.resume.request import resumed_of


class ResumedState(CachedRequestState):  # type: ignore[misc]  # vLLM is not typed here.
    """The state of a request, with the tokens that were written before."""

    def __post_init__(self) -> None:
        super().__post_init__()
        resumed = resumed_of(self.sampling_params)
        if resumed is not None:
            self.output_token_ids = resumed.token_ids
            if self.generator is not None:
                skip_rows(self.generator, len(self.output_token_ids), resumed.vocab_size)


class ResumingWorker:
    """What vLLM adds to its worker's class; it exists so that this module is loaded."""


def use_resumed_states() -> None:
    """Make the model runner of this process use `ResumedState`."""
    gpu_model_runner.CachedRequestState = ResumedState


def skip_rows(generator: torch.Generator, num_rows: int, row_size: int) -> None:
    """Move a generator on as if it had filled so many rows with exponential numbers.

    On a GPU each row takes the same part of the generator's sequence, so one is measured. On a CPU all are drawn, which
    takes 4 ms a row of 150,000.
    """
    row = torch.empty(row_size, dtype=torch.float32, device=generator.device)
    if generator.device.type == "cpu":
        for _ in range(num_rows):
            row.exponential_(generator=generator)
        return
    before = generator.get_offset()
    row.exponential_(generator=generator)
    generator.set_offset(before + num_rows * (generator.get_offset() - before))


use_resumed_states()
