"""Models that need no network: a trained one in Manta's checkout, tiny ones built here, real ones in Python packages.

The built models have random weights and quickly write words without sense. With them a machine without a GPU runs
every path of the service: the tokenizer, the chat template, tool calls, a million tokens of context. They never choose
to stop, so a request ends at its token limit or at a stop string. The trained model, `demo:trained`, is small too, and
makes sense: its card is configs/models/demo/README.md.
"""

import hashlib
import importlib.metadata
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from tokenizers import Tokenizer

_HERE = Path(__file__).parent
_TRAINED = "trained"
_VOCABULARY_SIZE = 1536
_SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_MARKUP_TOKENS = ("<tool_call>", "</tool_call>", "<think>", "</think>")
_BIAS_CHANNEL = 0
_LOGIT_SPREAD = 3.0
_NEVER = -30.0


@dataclass(frozen=True, slots=True)
class DemoModel:
    """The shape of a demo model. `max_model_len` and `sliding_window` are in tokens.

    A cross-encoder returns a number for two texts, and writes no text.
    """

    model_type: str
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    max_model_len: int
    sliding_window: int | None = None
    is_cross_encoder: bool = False
    seed: int = 0

    @property
    def head_dim(self) -> int:
        """The width of one attention head."""
        return self.hidden_size // self.num_heads


DEMO_MODELS = {
    "chat": DemoModel("llama", 256, 704, 3, 4, 2, max_model_len=4096, seed=1),
    "small": DemoModel("llama", 128, 352, 2, 4, 2, max_model_len=4096, seed=2),
    "long": DemoModel("mistral", 128, 352, 2, 4, 2, max_model_len=1_048_576, sliding_window=512, seed=3),
    "rank": DemoModel("llama", 128, 352, 2, 4, 2, max_model_len=512, is_cross_encoder=True, seed=4),
}


def resolve_source(source: str) -> str:
    """Return the source from which vLLM loads a model: a directory for `demo:` and `package:`, else the same source.

    `demo:NAME` is built at its first use; `demo:trained` is in the checkout. `package:NAME` is the directory of the
    model in an installed Python package.

    Raises:
        ValueError: there is no such demo model, or the package is missing or has no model.
    """
    kind, _, name = source.partition(":")
    if kind == "demo":
        return str(_find_trained_model() if name == _TRAINED else build_demo_model(name))
    if kind == "package":
        return str(_find_packaged_model(name))
    return source


def model_cache_dir() -> Path:
    """Return the folder of built models: in $MANTA_STATE_DIR, else in the checkout's .manta, else in the cache."""
    if state_dir := os.environ.get("MANTA_STATE_DIR"):
        return Path(state_dir).absolute() / "models"
    root = _HERE.parents[2]
    if (root / "pyproject.toml").exists():
        return root / ".manta" / "models"
    return Path.home() / ".cache" / "manta" / "models"


def build_demo_model(name: str, cache_dir: Path | None = None) -> Path:
    """Return the directory of a demo model, in Hugging Face's layout; build it if it does not exist yet.

    The directory appears complete or not at all, and its name changes with the recipe.

    Raises:
        ValueError: there is no demo model of that name.
    """
    if name not in DEMO_MODELS:
        known = ", ".join(f"demo:{known}" for known in (_TRAINED, *DEMO_MODELS))
        raise ValueError(f"There is no demo model {name!r}. Use one of {known}.")
    cache_dir = cache_dir or model_cache_dir()
    target = cache_dir / f"demo-{name}-{_recipe_digest()}"
    if target.is_dir():
        return target
    cache_dir.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=cache_dir))
    try:
        _write_model(DEMO_MODELS[name], scratch)
        scratch.chmod(0o755)
        scratch.rename(target)
    except OSError:
        if not target.is_dir():  # Otherwise another process built the same model first.
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def _recipe_digest() -> str:
    digest = hashlib.sha256()
    for name in ("sources.py", "demo_text.txt", "demo_template.jinja"):
        digest.update((_HERE / name).read_bytes())
    return digest.hexdigest()[:12]


def _find_trained_model() -> Path:
    directory = _HERE.parents[2] / "configs" / "models" / "demo"
    if not (directory / "model.safetensors").exists():
        raise ValueError("demo:trained is in Manta's checkout, in configs/models/demo: install Manta from a checkout.")
    return directory


def _find_packaged_model(package: str) -> Path:
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        raise ValueError(f"The package {package!r} is not installed, so its model cannot be served.") from None
    for file in files:
        if file.name == "model.safetensors":
            directory = Path(str(file.locate())).parent
            if (directory / "config.json").exists():
                return directory
    raise ValueError(f"The package {package!r} carries no model (a config.json beside a model.safetensors).")


def _write_model(model: DemoModel, directory: Path) -> None:
    from safetensors.numpy import save_file

    tokenizer = _train_tokenizer()
    tokenizer.save(str(directory / "tokenizer.json"))
    files = {
        "config.json": _render_config(model, tokenizer),
        "generation_config.json": {"eos_token_id": tokenizer.token_to_id("<|im_end|>")},
        "tokenizer_config.json": _render_tokenizer_config(model),
    }
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content, indent=2), encoding="utf-8")
    save_file(_draw_weights(model, tokenizer), directory / "model.safetensors", metadata={"format": "pt"})


def _train_tokenizer() -> "Tokenizer":
    """Return a byte-level BPE tokenizer; the same on every machine."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY_SIZE - len(_MARKUP_TOKENS),
        special_tokens=list(_SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    text = (_HERE / "demo_text.txt").read_text(encoding="utf-8")
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=False) for token in _MARKUP_TOKENS])
    return tokenizer


def _render_tokenizer_config(model: DemoModel) -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": model.max_model_len,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
        "chat_template": (_HERE / "demo_template.jinja").read_text(encoding="utf-8").rstrip("\n"),
    }


def _render_config(model: DemoModel, tokenizer: "Tokenizer") -> dict[str, Any]:
    config = {
        "architectures": [
            model.model_type.capitalize() + ("ForSequenceClassification" if model.is_cross_encoder else "ForCausalLM")
        ],
        "model_type": model.model_type,
        "torch_dtype": "float32",
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": model.hidden_size,
        "intermediate_size": model.intermediate_size,
        "num_hidden_layers": model.num_layers,
        "num_attention_heads": model.num_heads,
        "num_key_value_heads": model.num_kv_heads,
        "head_dim": model.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 1_000_000.0 if model.sliding_window else 10_000.0,
        "max_position_embeddings": model.max_model_len,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": tokenizer.token_to_id("<|im_end|>"),
        "pad_token_id": tokenizer.token_to_id("<|endoftext|>"),
    }
    if model.sliding_window:
        config["sliding_window"] = model.sliding_window
    if model.is_cross_encoder:
        config["num_labels"] = 1
    return config


def _draw_weights(model: DemoModel, tokenizer: "Tokenizer") -> "dict[str, np.ndarray[Any, np.dtype[np.float32]]]":
    """Return the tensors by name, scaled so that the signal keeps its strength from layer to layer.

    No layer writes to the bias channel, so it ends with the same value for every prompt. It keeps the model from
    choosing tokens that are not readable text.
    """
    import numpy as np

    random = np.random.Generator(np.random.PCG64(model.seed))

    def draw(num_rows: int, num_columns: int, scale: float = 1.0) -> "np.ndarray[Any, np.dtype[np.float32]]":
        drawn = random.standard_normal((num_rows, num_columns)) * (scale / num_columns**0.5)
        return np.asarray(drawn, dtype=np.float32)

    def draw_silent(num_rows: int, num_columns: int) -> "np.ndarray[Any, np.dtype[np.float32]]":
        drawn = draw(num_rows, num_columns)
        drawn[_BIAS_CHANNEL] = 0.0
        return drawn

    hidden, kv_size = model.hidden_size, model.num_kv_heads * model.head_dim
    embeddings = draw(tokenizer.get_vocab_size(), hidden, scale=hidden**0.5)
    embeddings[:, _BIAS_CHANNEL] = 2.0
    ones = np.ones(hidden, dtype=np.float32)
    tensors = {"model.embed_tokens.weight": embeddings, "model.norm.weight": ones}
    for layer in range(model.num_layers):
        prefix = f"model.layers.{layer}"
        tensors |= {
            f"{prefix}.input_layernorm.weight": ones.copy(),
            f"{prefix}.post_attention_layernorm.weight": ones.copy(),
            f"{prefix}.self_attn.q_proj.weight": draw(hidden, hidden),
            f"{prefix}.self_attn.k_proj.weight": draw(kv_size, hidden),
            f"{prefix}.self_attn.v_proj.weight": draw(kv_size, hidden),
            f"{prefix}.self_attn.o_proj.weight": draw_silent(hidden, hidden),
            f"{prefix}.mlp.gate_proj.weight": draw(model.intermediate_size, hidden),
            f"{prefix}.mlp.up_proj.weight": draw(model.intermediate_size, hidden),
            f"{prefix}.mlp.down_proj.weight": draw_silent(hidden, model.intermediate_size),
        }
    if model.is_cross_encoder:
        return tensors | {"score.weight": draw(1, hidden)}
    head = draw(tokenizer.get_vocab_size(), hidden, scale=_LOGIT_SPREAD)
    head[:, _BIAS_CHANNEL] = [0.0 if _is_readable(tokenizer, i) else _NEVER for i in range(len(head))]
    return tensors | {"lm_head.weight": head}


def _is_readable(tokenizer: "Tokenizer", token_id: int) -> bool:
    """Return whether a token is plain text: letters, with a space before them or not, or a mark of a sentence."""
    token = tokenizer.id_to_token(token_id) or ""
    if token in _SPECIAL_TOKENS or token in _MARKUP_TOKENS:
        return False
    text = tokenizer.decode([token_id])
    word = text.removeprefix(" ")
    return (word.isascii() and word.isalpha() and (len(word) > 2 or text != word)) or text in {",", "."}
