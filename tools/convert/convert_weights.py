"""Converts a Llama, Qwen2 or Qwen3 model from GGUF to a Hugging Face directory."""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from convert.gguf_model import GgufModel
from convert.safetensors_writer import write_safetensors
from convert.spm_tokenizer import write_spm_tokenizer
from gguf_tokenizer import write_tokenizer


def show_progress(done, total):
    """Prints progress: one line that changes on a terminal, otherwise a line for each quarter."""
    percent = 100 * done // total
    if sys.stderr.isatty():
        print(f"\r  {percent:3d} % of {total / 1e6:.0f} MB", end="\n" if done == total else "", file=sys.stderr)
    elif percent // 25 > show_progress.quarter:
        print(f"  {percent:3d} % of {total / 1e6:.0f} MB", file=sys.stderr)
    show_progress.quarter = percent // 25 % 4


show_progress.quarter = 0


def convert(gguf_path, out_dir, context=None):
    """Converts a GGUF file. After an error, out_dir does not exist.

    context: replaces the context length in the file.
    """
    out_dir = Path(out_dir)
    model = GgufModel(gguf_path)
    config = model.config()
    if context is not None:
        config["max_position_embeddings"] = context
    out_dir.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{out_dir.name}.", dir=out_dir.parent))
    try:
        partial.chmod(0o755)
        if model.field("tokenizer.ggml.model") == "llama":
            write_spm_tokenizer(model, partial)
        else:
            write_tokenizer(model.reader, partial)
        for name, content in (("config.json", config), ("generation_config.json", model.generation_config())):
            (partial / name).write_text(json.dumps(content, indent=2) + "\n")
        write_safetensors(partial / "model.safetensors", list(model.weights()), model.dtype, show_progress)
        partial.rename(out_dir)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(prog="tools/convert_weights", description=__doc__)
    parser.add_argument("gguf", type=Path, help="F32, F16, BF16 or quantised file; F32 stays float32, other types become bfloat16")
    parser.add_argument("out_dir", type=Path, help="directory to make; must not exist")
    arguments = parser.parse_args()
    if arguments.out_dir.exists():
        parser.error(f"{arguments.out_dir} exists already")
    try:
        convert(arguments.gguf, arguments.out_dir)
    # UnsupportedModel and UnsupportedTokenizer are ValueErrors.
    except (OSError, ValueError) as error:
        sys.exit(f"tools/convert_weights: {arguments.gguf}: {error}")
    print(f"{arguments.out_dir} is ready")


if __name__ == "__main__":
    main()
