"""Reads and writes Hugging Face directories, the format that the server loads."""

import json
import shutil
from pathlib import Path

import torch
import transformers
from safetensors import SafetensorError
from safetensors.torch import save_file
from tokenizers import Tokenizer

from finetuning.errors import InputError

# Two modules can share KV if these fields of their configs are equal. The server checks the same
# fields.
SHARED_FIELDS = ("model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
                 "vocab_size", "rope_parameters")
FAMILIES = ("llama", "qwen2", "qwen3")

# This tool prints its own progress.
transformers.utils.logging.disable_progress_bar()


def read_json(path):
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; expected a Hugging Face directory of a model") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {error}") from None
    if not isinstance(value, dict):
        raise InputError(f"{path}: expected an object")
    return value


class ModuleDir:
    """One module on disk: its config, tokenizer and weights. The methods raise InputError."""

    def __init__(self, path):
        self.path = Path(path)
        self.fields = read_json(self.path / "config.json")
        if self.fields.get("model_type") not in FAMILIES:
            raise InputError(f"{self.path}/config.json: model_type: expected one of {', '.join(FAMILIES)}, "
                             f"got {self.fields.get('model_type')!r}")
        self.config = transformers.AutoConfig.from_pretrained(self.path, local_files_only=True)
        self.tokenizer = self._read_tokenizer()
        # The type of the weights on disk. The server stores KV in the same type.
        self.dtype = {"bfloat16": torch.bfloat16, "float32": torch.float32}.get(
            self.fields.get("dtype") or self.fields.get("torch_dtype"))
        if self.dtype is None:
            raise InputError(f"{self.path}/config.json: dtype: expected bfloat16 or float32")
        self.eos_ids = self._read_eos()

    def load(self, device="cpu"):
        """Loads the weights as float32. Training and the server compute in float32."""
        try:
            model = transformers.AutoModelForCausalLM.from_pretrained(
                self.path, dtype=torch.float32, attn_implementation="sdpa", local_files_only=True)
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            raise InputError(f"{self.path}: {error}") from None
        return model.to(device)

    def encode(self, text):
        """Returns the token ids of a text. Names of special tokens become special tokens."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def prompt_prefix(self):
        """Returns the token ids that the tokenizer puts before every prompt. Often empty."""
        return self.tokenizer.encode("").ids

    def _read_tokenizer(self):
        path = self.path / "tokenizer.json"
        read_json(path)
        try:
            return Tokenizer.from_file(str(path))
        # The library raises no narrower exception.
        except Exception as error:
            raise InputError(f"{path}: {error}") from None

    def _read_eos(self):
        ids = []
        for name in ("config.json", "generation_config.json"):
            eos = read_json(self.path / name).get("eos_token_id") if (self.path / name).exists() else None
            ids += eos if isinstance(eos, list) else [] if eos is None else [eos]
        return list(dict.fromkeys(ids))


def check_shareable(base, decoder):
    """Raises InputError unless `decoder` can read KV of `base`."""
    for field in SHARED_FIELDS:
        of_base, of_decoder = (getattr(module.config, field, None) for module in (base, decoder))
        if of_base != of_decoder:
            raise InputError(f"{decoder.path}: {field} is {of_decoder}, but {of_base} in the prefill module {base.path}")
    if json.loads(base.tokenizer.to_str()) != json.loads(decoder.tokenizer.to_str()):
        raise InputError(f"{decoder.path}/tokenizer.json is another tokenizer than that of the prefill module {base.path}")
    if base.dtype != decoder.dtype:
        raise InputError(f"{decoder.path}: dtype is {decoder.dtype}, but {base.dtype} in the prefill module {base.path}")


def write_module(model, base, out):
    """Writes a directory that the server can load.

    The weights are those of `model` in the base's dtype. The other files are copies of the base's.
    Raises InputError if a weight is not finite.
    """
    out.mkdir(parents=True, exist_ok=True)
    for file in base.path.iterdir():
        if file.suffix in (".json", ".jinja", ".txt") and file.name != "model.safetensors.index.json":
            shutil.copyfile(file, out / file.name)
    # A tied weight is written once, under the name of the weight to which it is tied.
    tied = set(model.all_tied_weights_keys)
    tensors = {name: tensor.to(base.dtype).contiguous().cpu() for name, tensor in model.state_dict().items()
               if name not in tied}
    if not all(tensor.isfinite().all() for tensor in tensors.values()):
        raise InputError("the weights are no longer finite: try a lower --learning-rate")
    partial = out / "model.safetensors.partial"
    save_file(tensors, partial, metadata={"format": "pt"})
    # The library lets only the user read the file. Servers must be able to read it.
    partial.chmod(0o644)
    partial.rename(out / "model.safetensors")
