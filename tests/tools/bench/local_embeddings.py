"""all-MiniLM-L6-v2 in this process, behind the protocol of an engine, and a stand-in for it that costs nothing."""

import asyncio
import base64
import zlib
from collections.abc import AsyncIterator, Callable, Sequence

import numpy as np
import orjson

from deployments.models.contract.engine import EngineRequest, ModelCard, Summary, Usage
from deployments.models.demo.sources import resolve_source

MODEL = "all-minilm-l6-v2"
DIMENSIONS = 384
MAX_TOKENS = 256
Encode = Callable[[Sequence[str]], tuple[np.ndarray, int]]


class LocalEmbeddings:
    """An engine that embeds with a function; counts its calls."""

    def __init__(self, encode: Encode) -> None:
        self.card = ModelCard(MODEL, frozenset({"embeddings"}), MAX_TOKENS, 0, "manta")
        self.num_calls = 0
        self.num_inputs = 0
        self._encode = encode

    def run(self, request: EngineRequest) -> "_Stream":
        """Return the answer's stream."""
        self.num_calls += 1
        inputs = orjson.loads(request.body)["input"]
        self.num_inputs += len(inputs)
        return _Stream(self._encode, inputs)


class _Stream:
    def __init__(self, encode: Encode, inputs: Sequence[str]) -> None:
        self.summary = Summary()
        self._encode = encode
        self._inputs = inputs

    async def __aiter__(self) -> AsyncIterator[bytes]:
        vectors, num_tokens = await asyncio.to_thread(self._encode, self._inputs)
        self.summary.usage = Usage(prompt_tokens=num_tokens)
        data = [{"index": n, "embedding": base64.b64encode(row.tobytes()).decode()} for n, row in enumerate(vectors)]
        yield orjson.dumps({"data": data, "usage": {"total_tokens": num_tokens}})

    async def aclose(self) -> None:
        return


def load_minilm() -> Encode:
    """Return the function that embeds as the model does: the mean of its last states, at length one."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    place = resolve_source(f"package:gt-{MODEL}")
    tokenizer, model = AutoTokenizer.from_pretrained(place), AutoModel.from_pretrained(place).eval()

    def encode(texts: Sequence[str]) -> tuple[np.ndarray, int]:
        rows = np.empty((len(texts), DIMENSIONS), np.float32)
        num_tokens = 0
        by_length = sorted(range(len(texts)), key=lambda index: len(texts[index]))  # Little padding.
        with torch.inference_mode():
            for start in range(0, len(texts), 32):
                some = by_length[start : start + 32]
                batch = tokenizer(
                    [texts[index] for index in some],
                    padding=True,
                    truncation=True,
                    max_length=MAX_TOKENS,
                    return_tensors="pt",
                )
                mask = batch["attention_mask"].unsqueeze(-1)
                states = model(**batch).last_hidden_state
                means = (states * mask).sum(1) / mask.sum(1)
                rows[some] = torch.nn.functional.normalize(means).numpy()
                num_tokens += int(mask.sum())
        return rows, num_tokens

    return encode


def hash_embeddings(texts: Sequence[str]) -> tuple[np.ndarray, int]:
    """Embed by the words of a text alone: of no meaning, and of no cost beside what is measured."""
    rows = np.full((len(texts), DIMENSIONS), 1e-3, np.float32)
    num_tokens = 0
    for row, text in zip(rows, texts, strict=True):
        words = text.split()
        num_tokens += len(words)
        for word in words:
            row[zlib.crc32(word.encode()) % DIMENSIONS] += 1
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), num_tokens
