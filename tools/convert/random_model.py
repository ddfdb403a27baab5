"""Writes models with the shapes of real models and random weights.

A GPU takes as long for random weights as for real ones.
"""

import dataclasses
import json
import pathlib
import shutil

import numpy as np

from convert.safetensors_writer import to_bfloat16, write_safetensors

TOKENIZER = pathlib.Path(__file__).resolve().parent.parent.parent / "test" / "golden" / "tiny_llama3_bf16"


@dataclasses.dataclass(frozen=True)
class Shape:
    """The shape of a Llama model. `vocab` 0 stands for the size of the tokenizer's vocabulary."""

    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int = 0
    context: int = 4096


SHAPES = {
    "tiny": Shape(4, 256, 512, 4, 2, 64, context=16384),
    "llama-3.2-1b": Shape(16, 2048, 8192, 32, 8, 64, 128256, 131072),
    "llama-3.2-3b": Shape(28, 3072, 8192, 24, 8, 128, 128256, 131072),
    "llama-3.1-8b": Shape(32, 4096, 14336, 32, 8, 128, 128256, 131072),
}


def write_random_model(directory, shape, generation_config=None, same_layers=False):
    """Writes a model with weights as in test/model/random_weights.h.

    The tokenizer is tiny, so larger token ids have no text. No token ends an output. `same_layers`
    gives all layers the same weights, because the weights of a large model take long to draw.
    """
    vocab = shape.vocab or json.loads((TOKENIZER / "config.json").read_text())["vocab_size"]
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "dtype": "bfloat16",
        "hidden_size": shape.hidden, "intermediate_size": shape.ffn, "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads, "head_dim": shape.head_dim,
        "vocab_size": vocab, "max_position_embeddings": shape.context, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": False, "bos_token_id": 0}))
    (directory / "generation_config.json").write_text(json.dumps(generation_config or {}))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / name, directory)

    random, drawn = np.random.default_rng(1), {}

    def uniform(kind, name, size, spread, mean=0.0):
        def draw():
            values = random.random(size, dtype=np.float32)
            values *= 2 * spread
            values += mean - spread
            return to_bfloat16(values)

        def load():
            if kind not in drawn:
                drawn[kind] = draw()
            return drawn[kind]
        return name, size, load if same_layers else draw

    def projection(kind, name, rows, cols):
        return uniform(kind, name, (rows, cols), 2.5 / cols**0.5)

    def norm(name):
        return uniform(name, name, (shape.hidden,), 0.3, mean=1.0)

    queries, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    tensors = [uniform("embedding", "model.embed_tokens.weight", (vocab, shape.hidden), 1.0)]
    for layer in (f"model.layers.{i}" for i in range(shape.layers)):
        tensors += [norm(f"{layer}.input_layernorm.weight"),
                    projection("q", f"{layer}.self_attn.q_proj.weight", queries, shape.hidden),
                    projection("k", f"{layer}.self_attn.k_proj.weight", kv, shape.hidden),
                    projection("v", f"{layer}.self_attn.v_proj.weight", kv, shape.hidden),
                    projection("o", f"{layer}.self_attn.o_proj.weight", shape.hidden, queries),
                    norm(f"{layer}.post_attention_layernorm.weight"),
                    projection("gate", f"{layer}.mlp.gate_proj.weight", shape.ffn, shape.hidden),
                    projection("up", f"{layer}.mlp.up_proj.weight", shape.ffn, shape.hidden),
                    projection("down", f"{layer}.mlp.down_proj.weight", shape.hidden, shape.ffn)]
    tensors += [norm("model.norm.weight"), projection("lm_head", "lm_head.weight", vocab, shape.hidden)]
    write_safetensors(directory / "model.safetensors", tensors, "bfloat16")
