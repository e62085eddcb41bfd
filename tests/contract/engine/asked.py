"""Requests to the real engine whose tokens are counted as they come."""

import asyncio

NEVER = "text that no answer holds"
"""As a stop text it has each token leave the engine by itself."""


class Asked:
    """A request to the engine; `num_tokens` is how many it has been given, `pieces` how many each time, at `times`.

    `stats` has times of its own; all are of the engine's clock.
    """

    def __init__(
        self, client, prompt_tokens, max_tokens, priority, name, schema=None, stop=NEVER, streamed=False, salt=None
    ):
        from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams

        from deployments.replica.submit import generate

        self.num_tokens = 0
        self.pieces, self.text = [], ""
        self.times, self.stats = [], None
        self.first = asyncio.Event()
        params = SamplingParams(
            max_tokens=max_tokens,
            ignore_eos=True,
            temperature=0,
            stop=stop,
            output_kind=RequestOutputKind.DELTA,
            structured_outputs=None if schema is None else StructuredOutputsParams(json=schema),
        )
        prompt = {
            "prompt_token_ids": [100 + (len(name) * 7 + n) % 900 for n in range(prompt_tokens)],
            "cache_salt": salt,
        }
        running = generate(client, prompt, params, name, self._take, priority=priority, streamed=streamed)
        self.task = asyncio.create_task(running)

    def _take(self, output):
        piece = output.outputs[0]
        self.num_tokens += len(piece.token_ids)
        self.pieces.append(len(piece.token_ids))
        self.stats = output.metrics
        self.times.append(self.stats.last_token_ts)
        self.text += piece.text
        if self.num_tokens:
            self.first.set()
