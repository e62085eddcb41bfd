"""The demo model as it is trained: a small Qwen3, with the matrices of all layers of one kind in one tensor.

Written out here instead of taken from transformers because it has to learn within minutes of two CPU cores.
`state_to_hf` gives the tensors the names that vLLM and transformers know.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Shape:
    """How large the model is."""

    vocab_size: int
    hidden_size: int = 256
    intermediate_size: int = 384
    num_layers: int = 6
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 64
    rope_theta: float = 10_000.0
    max_position_embeddings: int = 4096
    rms_norm_eps: float = 1e-6
    longest_trained: int = 1536


class DemoModel(nn.Module):
    """Tokens in, last hidden states out; the embedding is also the output matrix."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        hidden, layers = shape.hidden_size, shape.num_layers
        qkv_size = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim
        attention_size = shape.num_heads * shape.head_dim

        def matrices(rows: int, columns: int, scale: float = 1.0) -> nn.Parameter:
            return nn.Parameter(torch.randn(layers, rows, columns) * (scale * 0.6 / columns**0.5))

        self.embed = nn.Parameter(torch.randn(shape.vocab_size, hidden) * 0.05)
        self.qkv = matrices(qkv_size, hidden)
        self.out = matrices(hidden, attention_size, scale=0.1)
        self.gate_up = matrices(2 * shape.intermediate_size, hidden)
        self.down = matrices(hidden, shape.intermediate_size, scale=0.1)
        self.input_norm = nn.Parameter(torch.ones(layers, hidden))
        self.post_norm = nn.Parameter(torch.ones(layers, hidden))
        self.q_norm = nn.Parameter(torch.ones(layers, shape.head_dim))
        self.k_norm = nn.Parameter(torch.ones(layers, shape.head_dim))
        self.norm = nn.Parameter(torch.ones(hidden))
        positions = torch.arange(shape.max_position_embeddings).float()
        frequencies = shape.rope_theta ** (-torch.arange(0, shape.head_dim, 2).float() / shape.head_dim)
        angles = positions[:, None] * torch.cat((frequencies, frequencies))[None]
        causal = torch.full((shape.longest_trained, shape.longest_trained), float("-inf")).triu(1)
        self.register_buffer("mask", causal, persistent=False)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the last hidden states of [batch, length] tokens."""
        shape, eps = self.shape, self.shape.rms_norm_eps
        batch, length = tokens.shape
        cos, sin = self.cos[:length, None], self.sin[:length, None]
        num_q, num_kv = shape.num_heads, shape.num_kv_heads
        x = F.embedding(tokens, self.embed)
        layers = zip(
            *(p.unbind() for p in (self.qkv, self.out, self.gate_up, self.down)),
            *(p.unbind() for p in (self.input_norm, self.post_norm, self.q_norm, self.k_norm)),
            strict=True,
        )
        for qkv, out, gate_up, down, input_norm, post_norm, q_norm, k_norm in layers:
            states = F.linear(_rms_norm(x, input_norm, eps), qkv).view(batch, length, -1, shape.head_dim)
            q, k, v = states.split((num_q, num_kv, num_kv), dim=2)
            q = _rotate(_rms_norm(q, q_norm, eps), cos, sin)
            k = _rotate(_rms_norm(k, k_norm, eps), cos, sin)
            k, v = (t.repeat_interleave(num_q // num_kv, dim=2) for t in (k, v))
            q, k, v = (t.transpose(1, 2).reshape(-1, length, shape.head_dim) for t in (q, k, v))
            # Written out: on CPUs this is three times as fast as PyTorch's own attention for short dialogues.
            scores = torch.baddbmm(self.mask[:length, :length], q, k.mT, alpha=shape.head_dim**-0.5)
            heads = torch.bmm(torch.softmax(scores, dim=-1), v).view(batch, num_q, length, shape.head_dim)
            x = x + F.linear(heads.transpose(1, 2).reshape(batch, length, -1), out)
            gate, up = F.linear(_rms_norm(x, post_norm, eps), gate_up).chunk(2, dim=-1)
            x = x + F.linear(F.silu(gate) * up, down)
        return _rms_norm(x, self.norm, eps)


def _rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


# The model is small, and its best word is mostly its only good one: at temperature 1, which is what requests have that
# set none, it speaks as it would at a quarter of that. A power of two, so that no weight is rounded by it.
SHARPNESS = 4.0


def state_to_hf(state: dict[str, Tensor], shape: Shape) -> dict[str, Tensor]:
    """Return the tensors under the names that transformers' Qwen3 has for them, the logits sharpened."""
    q_size, kv_size = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    tensors = {"model.embed_tokens.weight": state["embed"], "model.norm.weight": state["norm"] * SHARPNESS}
    for layer in range(shape.num_layers):
        q, k, v = state["qkv"][layer].split((q_size, kv_size, kv_size))
        gate, up = state["gate_up"][layer].chunk(2)
        parts = {
            "self_attn.q_proj": q, "self_attn.k_proj": k, "self_attn.v_proj": v,
            "self_attn.o_proj": state["out"][layer],
            "self_attn.q_norm": state["q_norm"][layer], "self_attn.k_norm": state["k_norm"][layer],
            "mlp.gate_proj": gate, "mlp.up_proj": up, "mlp.down_proj": state["down"][layer],
            "input_layernorm": state["input_norm"][layer], "post_attention_layernorm": state["post_norm"][layer],
        }  # fmt: skip
        tensors |= {f"model.layers.{layer}.{name}.weight": tensor for name, tensor in parts.items()}
    return {name: tensor.detach().to(torch.bfloat16).contiguous() for name, tensor in tensors.items()}


def state_from_hf(tensors: dict[str, Tensor], shape: Shape) -> dict[str, Tensor]:
    """Return what `state_to_hf` was given."""

    def all_layers(*names: str) -> Tensor:
        layers = range(shape.num_layers)
        return torch.stack(
            [torch.cat([tensors[f"model.layers.{layer}.{name}.weight"] for name in names]) for layer in layers]
        )

    state = {
        "embed": tensors["model.embed_tokens.weight"], "norm": tensors["model.norm.weight"] / SHARPNESS,
        "qkv": all_layers("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "out": all_layers("self_attn.o_proj"), "gate_up": all_layers("mlp.gate_proj", "mlp.up_proj"),
        "down": all_layers("mlp.down_proj"), "input_norm": all_layers("input_layernorm"),
        "post_norm": all_layers("post_attention_layernorm"), "q_norm": all_layers("self_attn.q_norm"),
        "k_norm": all_layers("self_attn.k_norm"),
    }  # fmt: skip
    return {name: tensor.float() for name, tensor in state.items()}


def hf_config(shape: Shape, end_id: int, pad_id: int) -> dict[str, object]:
    """Return the configuration that transformers and vLLM load the model with."""
    return {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "torch_dtype": "bfloat16",
        "vocab_size": shape.vocab_size, "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size, "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads, "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim, "hidden_act": "silu", "rms_norm_eps": shape.rms_norm_eps,
        "rope_theta": shape.rope_theta, "max_position_embeddings": shape.max_position_embeddings,
        "tie_word_embeddings": True, "attention_bias": False, "use_sliding_window": False,
        "bos_token_id": None, "eos_token_id": end_id, "pad_token_id": pad_id,
    }  # fmt: skip
