"""A view of a GGUF file as a Hugging Face model of the family Llama, Qwen2 or Qwen3."""

import re

import gguf
import numpy as np

CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}

_TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}
_ROPE_FACTORS = "rope_freqs.weight"


class UnsupportedModel(ValueError):
    """The GGUF file has a field or tensor that the conversion does not support."""


class GgufModel:
    def __init__(self, path):
        self.reader = gguf.GGUFReader(path)
        self.tensors = {tensor.name: tensor for tensor in self.reader.tensors}
        self.architecture = self.field("general.architecture")
        if self.architecture not in CLASSES:
            raise UnsupportedModel(f"general.architecture: expected {', '.join(CLASSES)}, got {self.architecture!r}")

    def field(self, name, default=None):
        field = self.reader.get_field(name)
        return default if field is None else field.contents()

    def _needed(self, name):
        value = self.field(f"{self.architecture}.{name}")
        if value is None:
            raise UnsupportedModel(f"{self.architecture}.{name} is missing")
        return value

    @property
    def dtype(self):
        """float32 if all tensors are float32. Otherwise bfloat16: values are rounded already."""
        exact = all(tensor.tensor_type == gguf.GGMLQuantizationType.F32 for tensor in self.reader.tensors)
        return "float32" if exact else "bfloat16"

    def config(self):
        """Returns config.json as a dictionary. Raises UnsupportedModel."""
        hidden, heads = self._needed("embedding_length"), self._needed("attention.head_count")
        head_dim = self.field(f"{self.architecture}.attention.key_length", hidden // heads)
        config = {
            "architectures": [CLASSES[self.architecture]],
            "model_type": self.architecture,
            "torch_dtype": self.dtype,
            "hidden_act": "silu",
            "hidden_size": hidden,
            "intermediate_size": self._needed("feed_forward_length"),
            "num_hidden_layers": self._needed("block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": self.field(f"{self.architecture}.attention.head_count_kv", heads),
            "head_dim": head_dim,
            "max_position_embeddings": self._needed("context_length"),
            "rms_norm_eps": _shortest(self._needed("attention.layer_norm_rms_epsilon")),
            "rope_theta": _shortest(self.field(f"{self.architecture}.rope.freq_base", 10000.0)),
            "tie_word_embeddings": "output.weight" not in self.tensors,
            "vocab_size": int(self.tensors["token_embd.weight"].shape[1]),
            **self.generation_config(),
        }
        self._check_rope_type(head_dim)
        if _ROPE_FACTORS in self.tensors:
            config["rope_scaling"] = self._llama3_scaling(config["rope_theta"], head_dim)
        return config

    def generation_config(self):
        """Returns generation_config.json as a dictionary, without ids beyond the vocabulary."""
        vocab = self.tensors["token_embd.weight"].shape[1]
        ids = {name: self.field(f"tokenizer.ggml.{key}_token_id")
               for name, key in (("bos_token_id", "bos"), ("eos_token_id", "eos"), ("pad_token_id", "padding"))}
        return {name: id for name, id in ids.items() if id is not None and id < vocab}

    def _check_rope_type(self, head_dim):
        scaling = self.field(f"{self.architecture}.rope.scaling.type", "none")
        if scaling != "none":
            raise UnsupportedModel(f"{self.architecture}.rope.scaling.type: expected none, got {scaling!r}")
        rotated = self.field(f"{self.architecture}.rope.dimension_count", head_dim)
        if rotated != head_dim:
            raise UnsupportedModel(f"{self.architecture}.rope.dimension_count: expected {head_dim}, got {rotated}")

    def _llama3_scaling(self, theta, head_dim):
        """Returns the parameters of Llama 3's rope scaling that give the stored divisors.

        GGUF stores a divisor for each frequency, and not the parameters.
        """
        stored = _dequantised(self.tensors[_ROPE_FACTORS])
        # The factor is 8 in Llama 3.1 and 3.3, and 32 in Llama 3.2.
        for factor in (8.0, 32.0):
            scaling = {"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                       "original_max_position_embeddings": 8192}
            if np.allclose(stored, llama3_divisors(scaling, theta, head_dim), rtol=1e-3):
                return scaling
        raise UnsupportedModel(f"{_ROPE_FACTORS}: not the factors of Llama 3.1, 3.2 or 3.3")

    def weights(self):
        """Yields (Hugging Face name, shape, function that returns the float32 array) by tensor.

        The order is that of the file.
        """
        for tensor in self.reader.tensors:
            if tensor.name == _ROPE_FACTORS:
                continue
            shape = tuple(int(extent) for extent in reversed(tensor.shape))
            yield self._hugging_face_name(tensor.name), shape, lambda tensor=tensor: self._load(tensor)

    def _hugging_face_name(self, name):
        if name in _TOP:
            return _TOP[name]
        match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
        if not match or match[2] not in _LAYER:
            raise UnsupportedModel(f"tensor {name!r} does not belong to a {self.architecture} model")
        return f"model.layers.{match[1]}.{_LAYER[match[2]]}.{match[3]}"

    def _load(self, tensor):
        array = _dequantised(tensor)
        if self.architecture == "llama" and ".attn_q." in tensor.name:
            return _unpermuted(array, self._needed("attention.head_count"))
        if self.architecture == "llama" and ".attn_k." in tensor.name:
            return _unpermuted(array, self.field("llama.attention.head_count_kv", self._needed("attention.head_count")))
        return array


def _shortest(value):
    """Returns the shortest decimal of a float32: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(value)))


def _dequantised(tensor):
    array = gguf.dequantize(tensor.data, tensor.tensor_type)
    return np.asarray(array, dtype=np.float32).reshape([int(extent) for extent in reversed(tensor.shape)])


def _unpermuted(array, heads):
    """Undoes GGUF's order of the rows of Llama heads.

    GGUF rotates neighbouring rows. Hugging Face rotates rows that are half a head apart.
    """
    rows = array.shape[0] // heads
    return array.reshape(heads, rows // 2, 2, -1).swapaxes(1, 2).reshape(array.shape)


def llama3_divisors(scaling, theta, head_dim):
    """Returns the divisor of each rope frequency for rope_type "llama3" of transformers."""
    wavelength = 2 * np.pi * theta ** (np.arange(0, head_dim, 2) / head_dim)
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    smooth = (scaling["original_max_position_embeddings"] / wavelength - low) / (high - low)
    return 1 / ((1 - np.clip(smooth, 0, 1)) / scaling["factor"] + np.clip(smooth, 0, 1))
