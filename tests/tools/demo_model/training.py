"""Trains the demo model on dialogues that are generated as it goes; it can stop and go on at any time.

The learning rate stays the same until the last steps, in which it falls to nothing. What was reached before it falls
is kept as `stable.pt`: a longer training can go on from there.
"""

import itertools
import random
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn

from tests.tools.demo_model.mixture import SKILLS, held_out_dialogues, train_dialogues
from tests.tools.demo_model.model import DemoModel, Shape
from tests.tools.demo_model.start import trained_before
from tests.tools.demo_model.tokenizer import build_tokenizer, encode

_BATCH_TOKENS = 4096
_POOL = 2048  # Dialogues that are sorted by length together.
_MUON = ("qkv", "out", "gate_up", "down")
_MUON_RATE, _ADAM_RATE, _WARMUP_STEPS = 0.015, 3e-3, 40
_TOLD_EVERY, _CHECKED_EVERY, _SAVED_EVERY_S = 25, 250, 60.0
_SHARP = (3.4445, -4.7750, 2.0315)  # Keller Jordan's coefficients.

Batch = tuple[Tensor, Tensor]


def fast_dtype(device: str) -> torch.dtype:
    """Return the type to compute in: a processor without instructions for bfloat16 is thirty times slower in it."""
    is_slow = device == "cpu" and not torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return torch.float32 if is_slow else torch.bfloat16


class Optimizer:
    """Muon for the matrices, Adam for the rest, on float32 copies of the parameters."""

    def __init__(self, model: nn.Module) -> None:
        self._working = dict(model.named_parameters())
        self.master = {name: p.detach().float().clone() for name, p in self._working.items()}
        self.first = {name: torch.zeros_like(p) for name, p in self.master.items()}
        self.second = {name: torch.zeros_like(p) for name, p in self.master.items() if name not in _MUON}
        self.num_steps = 0
        self._copy_back()

    @torch.no_grad()
    def step(self, scale: float) -> None:
        """Take one step at a share `scale` of the full learning rates."""
        self.num_steps += 1
        scale *= min(1.0, self.num_steps / _WARMUP_STEPS)
        for name, parameter in self._working.items():
            assert parameter.grad is not None
            gradient, master, first = parameter.grad.float(), self.master[name], self.first[name]
            if name in _MUON:
                first.mul_(0.95).add_(gradient)
                master.mul_(1 - 0.01 * _MUON_RATE * scale)
                master.sub_(_orthogonal(gradient + 0.95 * first, parameter.dtype), alpha=_MUON_RATE * scale)
            else:
                second = self.second[name]
                first.lerp_(gradient, 0.1)
                second.lerp_(gradient.square(), 0.02)
                unbiased = (second / (1 - 0.98**self.num_steps)).sqrt_().add_(1e-10)
                master.sub_(first / unbiased, alpha=_ADAM_RATE * scale / (1 - 0.9**self.num_steps))
            parameter.grad = None
        self._copy_back()

    @torch.no_grad()
    def _copy_back(self) -> None:
        for name, parameter in self._working.items():
            parameter.copy_(self.master[name])

    def state(self) -> dict[str, object]:
        """Return what `restore` takes."""
        return {"master": self.master, "first": self.first, "second": self.second, "num_steps": self.num_steps}

    def restore(self, state: dict[str, object]) -> None:
        """Go on from a state."""
        self.master, self.first, self.second = state["master"], state["first"], state["second"]
        self.num_steps = state["num_steps"]
        self._copy_back()


def _orthogonal(matrices: Tensor, dtype: torch.dtype) -> Tensor:
    """Return matrices of the same directions whose singular values are all about one (Newton-Schulz)."""
    shape = matrices.shape
    x = matrices.reshape(-1, shape[1] // 2, shape[2]) if shape[1] > shape[2] else matrices
    is_tall = x.shape[1] > x.shape[2]
    scale = max(1.0, x.shape[1] / x.shape[2]) ** 0.5
    x = x.to(dtype)
    x = x.mT if is_tall else x
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = _SHARP
    for _ in range(5):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    x = x.mT if is_tall else x
    return x.float().reshape(shape) * scale


def batches(tokenizer: Tokenizer, seed: int) -> Iterator[Batch]:
    """Return batches of dialogues of about the same length, without end."""
    order = random.Random(seed)
    dialogues = train_dialogues(seed)
    while True:
        pool = [encode(tokenizer, dialogue) for dialogue in itertools.islice(dialogues, _POOL)]
        made = list(_batched(pool))
        order.shuffle(made)
        yield from made


def _batched(encoded: list[tuple[list[int], list[int]]]) -> Iterator[Batch]:
    encoded.sort(key=lambda pair: len(pair[0]))
    start = 0
    while start < len(encoded):
        stop = start + 1
        while stop < len(encoded) and (stop + 1 - start) * len(encoded[stop][0]) <= _BATCH_TOKENS:
            stop += 1
        yield _pad(encoded[start:stop])
        start = stop


def _pad(encoded: list[tuple[list[int], list[int]]]) -> Batch:
    length = -(-max(len(tokens) for tokens, _ in encoded) // 16) * 16
    tokens = torch.zeros(len(encoded), length, dtype=torch.long)
    targets = torch.full((len(encoded), length), -100)
    for row, (some, wanted) in enumerate(encoded):
        tokens[row, : len(some)] = torch.tensor(some)
        targets[row, : len(some) - 1] = torch.tensor(wanted[1:])
    return tokens, targets


def loss_of(model: DemoModel, batch: Batch) -> Tensor:
    """Return the mean loss of the tokens that the model writes."""
    tokens, targets = (part.to(model.embed.device) for part in batch)
    hidden = model(tokens)
    is_written = targets >= 0
    return F.cross_entropy(F.linear(hidden[is_written], model.embed).float(), targets[is_written])


class Training:
    """A model in training, and the folder that holds what it has reached: `latest.pt`, and later `stable.pt`."""

    def __init__(
        self, directory: Path, device: str = "cpu", num_checked: int = 24, trained: Path | None = None
    ) -> None:
        """Go on from where `directory` was left, or begin with the weights of `trained`, an exported model.

        The loss of `num_checked` held-out dialogues a skill is watched.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._tokenizer = load_tokenizer(directory)
        torch.manual_seed(0)
        shape = Shape(vocab_size=-(-self._tokenizer.get_vocab_size() // 16) * 16)
        self.model = DemoModel(shape)
        if trained is not None:
            self.model.load_state_dict(trained_before(trained, self._tokenizer, shape))
        self.optimizer = Optimizer(self.model.to(device, fast_dtype(device)))
        if (directory / "latest.pt").exists():
            self.optimizer.restore(torch.load(directory / "latest.pt", map_location=device))
        self._checks = {
            skill: list(
                _batched([encode(self._tokenizer, one) for one in held_out_dialogues(skill, num_checked, seed=9)])
            )
            for skill in SKILLS
        }

    def run(self, num_steps: int, num_falling: int) -> None:
        """Train up to `num_steps` steps in all; in the last `num_falling` the rate falls to nothing."""
        optimizer = self.optimizer
        num_parameters = sum(p.numel() for p in self.model.parameters())
        print(f"{num_parameters:,} parameters, step {optimizer.num_steps} of {num_steps}", flush=True)
        started = saved = time.monotonic()
        total, num_tokens = 0.0, 0
        for batch in batches(self._tokenizer, seed=1 + optimizer.num_steps):
            if optimizer.num_steps >= num_steps:
                break
            if optimizer.num_steps == num_steps - num_falling:
                self._save("stable.pt")
            loss = loss_of(self.model, batch)
            loss.backward()
            optimizer.step(min(1.0, (num_steps - optimizer.num_steps) / max(1, num_falling)))
            total, num_tokens = total + float(loss.detach()), num_tokens + batch[0].numel()
            if optimizer.num_steps % _TOLD_EVERY == 0:
                rate = num_tokens / (time.monotonic() - started)
                print(f"step {optimizer.num_steps} loss {total / _TOLD_EVERY:.4f} {rate:,.0f} tokens/s", flush=True)
                total = 0.0
            if optimizer.num_steps % _CHECKED_EVERY == 0:
                print("held out:", self._check(), flush=True)
            if time.monotonic() - saved > _SAVED_EVERY_S:
                saved = time.monotonic()
                self._save("latest.pt")
        self._save("latest.pt")
        print(f"step {optimizer.num_steps}, {num_tokens:,} tokens now. Held out:", self._check(), flush=True)

    @torch.no_grad()
    def _check(self) -> str:
        """Return the mean loss of held-out dialogues of every skill."""
        losses = {
            skill: sum(float(loss_of(self.model, batch)) for batch in some) / len(some)
            for skill, some in self._checks.items()
        }
        return ", ".join(f"{skill} {loss:.3f}" for skill, loss in losses.items())

    def _save(self, name: str) -> None:
        partial = self._directory / f"{name}.partial"
        torch.save(self.optimizer.state(), partial)
        partial.rename(self._directory / name)


def load_tokenizer(directory: Path) -> Tokenizer:
    """Return the tokenizer of a training directory; it is built on first use."""
    path = directory / "tokenizer.json"
    if not path.exists():
        build_tokenizer().save(str(path))
    return Tokenizer.from_file(str(path))
