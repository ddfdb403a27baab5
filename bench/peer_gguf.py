"""Converts a Hugging Face Llama with bf16 weights to GGUF, so that peers run the same weights.

Runs in the peers' own environment: python peer_gguf.py MODEL_DIRECTORY OUT.gguf {bf16|f16}
"""

import json
import pathlib
import sys

import gguf
import numpy as np

TOP = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
       "lm_head.weight": "output.weight"}
LAYER = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def tensors(path):
    """Yields (name, float32 array) of each tensor. All tensors must be bf16."""
    raw = np.memmap(path, dtype=np.uint8, mode="r")
    size = int(raw[:8].view(np.uint64)[0])
    for name, entry in json.loads(bytes(raw[8:8 + size])).items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "BF16":
            sys.exit(f"peer_gguf: {path}: {name}: expected BF16, got {entry['dtype']}")
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        bits = np.frombuffer(raw[begin:end].tobytes(), dtype=np.uint16).astype(np.uint32) << 16
        yield name, bits.view(np.float32).reshape(entry["shape"])


def gguf_name(name):
    if name in TOP:
        return TOP[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{LAYER[rest.removesuffix('.weight')]}.weight"


def interleaved(weight, heads):
    """Converts the rows of heads from the order of transformers to that of llama.cpp.

    llama.cpp rotates neighbouring rows. transformers rotates rows that are half a head apart.
    """
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def add_tokenizer(writer, model):
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    config = json.loads((model / "tokenizer_config.json").read_text())
    added = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    ids = {**tokenizer["model"]["vocab"], **added}
    kind = {i: gguf.TokenType.CONTROL for i in added.values()}
    tokens = sorted(ids, key=ids.get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([kind.get(ids[token], gguf.TokenType.NORMAL) for token in tokens])
    merges = tokenizer["model"]["merges"]
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    for key, add in (("bos_token", writer.add_bos_token_id), ("eos_token", writer.add_eos_token_id)):
        token = config.get(key)
        if token is not None:
            add(ids[token if isinstance(token, str) else token["content"]])


def main():
    model, out, kind = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    dtype = {"bf16": gguf.GGMLQuantizationType.BF16, "f16": gguf.GGMLQuantizationType.F16}[kind]
    file_type = {"bf16": gguf.LlamaFileType.MOSTLY_BF16, "f16": gguf.LlamaFileType.MOSTLY_F16}[kind]
    config = json.loads((model / "config.json").read_text())
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer = gguf.GGUFWriter(out, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_rope_dimension_count(config["hidden_size"] // heads)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_file_type(file_type)
    add_tokenizer(writer, model)
    for name, values in tensors(model / "model.safetensors"):
        if "q_proj" in name or "k_proj" in name:
            values = interleaved(values, heads if "q_proj" in name else kv_heads)
        if values.ndim == 1:
            writer.add_tensor(gguf_name(name), values)
        else:
            writer.add_tensor(gguf_name(name), gguf.quants.quantize(values, dtype), raw_dtype=dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


main()
