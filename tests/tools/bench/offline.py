"""vLLM without a server: a process that runs the same chats as often as asked."""

import json
import os
import subprocess
import sys
from types import TracebackType
from typing import Self

from tests.tools.bench.peers import ROOT, Model

_SCRIPT = """
import json, sys, time
from vllm import LLM, SamplingParams
asked = json.loads(sys.stdin.readline())
llm = LLM(model=asked["model"], **asked["engine"])
sampling = SamplingParams(temperature=0, max_tokens=asked["tokens"])
for line in sys.stdin:
    prompts = asked["prompts"][: int(line)]
    started = time.perf_counter()
    outputs = llm.chat(prompts, sampling, use_tqdm=False)
    seconds = time.perf_counter() - started
    tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
    print("RESULT", json.dumps({"seconds": seconds, "tokens": tokens}), flush=True)
"""
_MARK = "RESULT "


class OfflineEngine:
    """An engine of its own for some chats, `LLM.chat`, with the settings and the environment of a model."""

    def __init__(self, model: Model, prompts: list[list[dict[str, str]]], tokens: int) -> None:
        self._asked = {"model": model.directory, "engine": model.engine, "prompts": prompts, "tokens": tokens}
        self._environment = os.environ | model.environment

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SCRIPT],
            env=self._environment,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._tell(json.dumps(self._asked))
        return self

    def run(self, num: int | None = None) -> dict[str, float]:
        """Run the chats, the first ones only where their number is given; return the seconds and the tokens made."""
        self._tell(str(len(self._asked["prompts"]) if num is None else num))
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(_MARK):
                result: dict[str, float] = json.loads(line.removeprefix(_MARK))
                return result
        raise AssertionError(f"vLLM has ended with {self._process.wait()}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        finally:
            self._process.kill()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
