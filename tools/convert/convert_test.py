"""Run with: tools/python -m unittest convert.convert_test"""

import json
import tempfile
import unittest
from pathlib import Path

import gguf
import numpy as np
from safetensors import safe_open

from convert import convert_weights
from convert.gguf_model import _LAYER, _TOP, UnsupportedModel, llama3_divisors
from convert.safetensors_writer import to_bfloat16

GOLDEN = Path(__file__).resolve().parents[2] / "test" / "golden"
TOKENS = ["<s>", "</s>", "a", "b"]


def hf_tensors(directory):
    with safe_open(directory / "model.safetensors", framework="np") as file:
        return {name: file.get_tensor(name) for name in file.keys()}


def gguf_name(name):
    for short, long in _TOP.items():
        if name == long:
            return short
    _, _, layer, rest = name.split(".", 3)
    stem, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{next(short for short, long in _LAYER.items() if long == stem)}.{kind}"


def permuted(array, heads):
    """Returns the q or k rows of a Llama in llama.cpp's order."""
    return array.reshape(heads, 2, array.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(array.shape)


def write_gguf(directory, path, change=lambda writer: None):
    """Writes a golden model in the form that llama.cpp writes."""
    config = json.loads((directory / "config.json").read_text())
    writer = gguf.GGUFWriter(path, config["model_type"])
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    if "head_dim" in config:
        writer.add_key_length(config["head_dim"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 3, 1, 1])
    writer.add_token_merges([])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_pad_token_id(2**32 - 1)
    for name, array in hf_tensors(directory).items():
        if config["model_type"] == "llama" and ("q_proj" in name or "k_proj" in name):
            array = permuted(array, heads if "q_proj" in name else kv_heads)
        writer.add_tensor(gguf_name(name), array)
    change(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class ConvertTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.path, self.out = Path(scratch.name) / "m.gguf", Path(scratch.name) / "out"
        self.scratch = Path(scratch.name)

    def convert(self, family, **options):
        write_gguf(GOLDEN / f"tiny_{family}_f32", self.path, **options)
        convert_weights.convert(self.path, self.out)
        return json.loads((self.out / "config.json").read_text())

    def test_each_family_comes_back_bit_by_bit(self):
        for family in ("llama3", "qwen2_5", "qwen3"):
            with self.subTest(family):
                self.out = self.scratch / family
                config = self.convert(family)
                golden = GOLDEN / f"tiny_{family}_f32"
                expected, got = hf_tensors(golden), hf_tensors(self.out)
                self.assertEqual(expected.keys(), got.keys())
                for name in expected:
                    np.testing.assert_array_equal(expected[name], got[name], err_msg=name)
                original = json.loads((golden / "config.json").read_text())
                for field in ("architectures", "hidden_size", "intermediate_size", "num_hidden_layers", "rms_norm_eps",
                              "num_key_value_heads", "tie_word_embeddings", "vocab_size", "bos_token_id"):
                    self.assertEqual(original[field], config[field], field)
                self.assertEqual(config["rope_theta"], original["rope_parameters"]["rope_theta"])
                # An id beyond the vocabulary means that there is none.
                self.assertNotIn("pad_token_id", config)

    def test_llama3_rope_factors_become_rope_scaling(self):
        scaling = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": 8192}

        def add_factors(writer):
            writer.add_tensor("rope_freqs.weight", llama3_divisors(scaling, 10000.0, 16).astype(np.float32))

        self.assertEqual(self.convert("llama3", change=add_factors)["rope_scaling"], scaling)

    def test_unsupported_model_is_refused_and_leaves_no_files(self):
        changes = {
            "rope scaling type": lambda writer: writer.add_rope_scaling_type(gguf.RopeScalingType.YARN),
            "partial rotation": lambda writer: writer.add_rope_dimension_count(8),
            "unknown factors": lambda writer: writer.add_tensor("rope_freqs.weight", np.full(8, 3, np.float32)),
            "unknown tensor": lambda writer: writer.add_tensor("blk.0.ffn_gate_inp.weight", np.ones(8, np.float32)),
        }
        for what, change in changes.items():
            with self.subTest(what), self.assertRaises(UnsupportedModel):
                self.convert("llama3", change=change)
            self.assertEqual([path.name for path in self.scratch.iterdir()], ["m.gguf"])

    def test_bfloat16_rounds_to_nearest_even(self):
        values = np.array([1.0, -2.5, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, 0.0], np.float32)
        self.assertEqual([hex(bits) for bits in to_bfloat16(values)],
                         ["0x3f80", "0xc020", "0x3f80", "0x3f82", "0x3f81", "0x0"])


if __name__ == "__main__":
    unittest.main()
