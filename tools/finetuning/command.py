"""Makes decoders that share one frozen prefill module, and measures them.

  tools/finetune train --base DIR --data FILE.jsonl --out DIR
  tools/finetune evaluate --tokenizer DIR --data FILE.jsonl --server HOST:PORT [--model NAME]
  tools/finetune evaluate --base DIR --decoder DIR --data FILE.jsonl --reference
  tools/finetune reference --base DIR --decoder DIR --prompts FILE.json

  tools/finetune study                    a base, three tasks, and what sharing the base's KV costs
  tools/finetune study-public --base DIR --data DIR --work DIR   the same on GSM8K and BFCL, for a GPU
  tools/finetune test                     this tool's own tests

Data is JSON Lines of {"prompt": ..., "answer": ...}. A directory is a Hugging Face directory as the server loads it.
"""

import argparse
import dataclasses
import json
import sys
from pathlib import Path

from finetuning.errors import InputError


def positive(kind):
    def parse(text):
        value = kind(text)
        if not value > 0:
            raise ValueError
        return value
    parse.__name__ = f"positive {kind.__name__}"
    return parse


def share(text):
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError
    return value


def share_or_any(text):
    return None if text == "any" else share(text)


def pick_device(name):
    import torch
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda: PyTorch finds no usable GPU")
    if name == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)  # it plans anew for each shape, and each token is one
    return name


def train(args):
    from finetuning.examples import read_examples
    from finetuning.module_dir import ModuleDir
    from finetuning.training import Options, Training
    module = ModuleDir(args.base)
    examples = read_examples(args.data, module, whole_texts=args.method == "full")
    options = Options(**{field.name: getattr(args, field.name) for field in dataclasses.fields(Options)})
    if Path(args.out).resolve() == module.path.resolve():
        raise InputError(f"--out: {args.out} is the base itself")
    training = Training(module, examples, options, args.out, pick_device(args.device))
    training.start_or_resume(args.resume)
    training.run()
    print(f"finetune: {args.out}: {training.steps} steps over {len(examples)} examples, last loss {training.losses[-1]:.4f}; "
          f"loss curve: {args.out}/training/loss.svg")


def load_pair(args):
    from finetuning.module_dir import ModuleDir, check_shareable
    base, decoder = ModuleDir(args.base), ModuleDir(args.decoder)
    check_shareable(base, decoder)
    device = pick_device(args.device)
    return base, base.load(device).eval(), decoder.load(device).eval()


def evaluate(args):
    from finetuning.accuracy import Server, score, texts_of_reference
    from finetuning.examples import read_examples
    from finetuning.module_dir import ModuleDir
    if args.reference:
        if not args.base or not args.decoder:
            raise InputError("--reference needs --base and --decoder")
        module, base, decoder = load_pair(args)
        examples = read_examples(args.data, module)
        texts = texts_of_reference(base, decoder, module, examples, args.share)
    else:
        if not args.tokenizer:
            raise InputError("--server needs --tokenizer, the directory of the model that it serves")
        examples = read_examples(args.data, ModuleDir(args.tokenizer))
        texts = Server(args.server, args.model).texts(examples)
    result = score(examples, texts)
    print("accuracy {accuracy:.1%} ({right} of {total}; 95 % interval {low:.1%} to {high:.1%})".format(**result))
    if args.json:
        rows = [{"expected": example.text, "got": text} for example, text in zip(examples, texts)]
        write_json(args.json, result | {"answers": rows})


def read_prompts(path, module):
    try:
        prompts = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {error}") from None
    vocabulary = module.config.vocab_size
    out = []
    for number, prompt in enumerate(prompts if isinstance(prompts, list) else [None]):
        ids = module.prompt_prefix() + module.encode(prompt) if isinstance(prompt, str) else prompt
        if not isinstance(ids, list) or not ids or not all(type(i) is int and 0 <= i < vocabulary for i in ids):
            raise InputError(f"{path}: prompt {number}: expected a list of texts or of lists of token ids in [0, {vocabulary})")
        out.append(ids)
    return out


def reference(args):
    from finetuning.reference import generate_in_batches
    module, base, decoder = load_pair(args)
    prompts = read_prompts(args.prompts, module)
    longest = max(map(len, prompts), default=0) + args.max_tokens
    if longest > module.config.max_position_embeddings:
        raise InputError(f"{args.prompts}: prompt and --max-tokens take {longest} tokens, but the model's context is "
                         f"{module.config.max_position_embeddings}")
    outputs = generate_in_batches(base, decoder, prompts, args.max_tokens, kv_dtype=module.dtype, share=args.share,
                                  eos_ids=() if args.ignore_eos else module.eos_ids)
    write_json(args.json, {"base": args.base, "decoder": args.decoder, "share": args.share,
                           "outputs": [{"prompt": prompt} | output for prompt, output in zip(prompts, outputs)]})


def write_json(path, value):
    text = json.dumps(value, ensure_ascii=False) + "\n"
    if path == "-":
        sys.stdout.write(text)
    else:
        Path(path).write_text(text, encoding="utf-8")


def study(args):
    from finetuning.study import study as runner
    runner.run(args)


def study_public(args):
    from finetuning.study import public, tuning
    if args.tune and args.report:
        raise InputError("--report: is of the study; with --tune what is done is not done again")
    (tuning if args.tune else public).run(args)


def add_device(parser):
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="default: cuda where there is one")


def add_pair(parser, required):
    parser.add_argument("--base", required=required, help="the prefill module")
    parser.add_argument("--decoder", required=required, help="a module that decodes over KV of --base; may be --base itself")
    parser.add_argument("--share", type=share, default=1.0,
                        help="the share of the prompt's KV that comes from --base, the rest from --decoder (default 1, as the server does)")
    add_device(parser)


def add_train(commands):
    parser = commands.add_parser("train", help="make a decoder from a base",
                                 description="Writes a Hugging Face directory; checkpoints and the loss curve are in its folder training/.")
    parser.add_argument("--base", required=True, help="the frozen prefill module, which the decoder also starts from")
    parser.add_argument("--data", required=True, help='JSON Lines of {"prompt", "answer"}; with --method full also of {"text"}')
    parser.add_argument("--out", required=True, help="the decoder's directory")
    parser.add_argument("--method", choices=("cache-conditioned", "full"), default="cache-conditioned",
                        help="cache-conditioned (default): over KV of the base, as the server runs it; full: a model of its own")
    parser.add_argument("--share", type=share_or_any, default=1.0,
                        help="cache-conditioned: the share of the prompt's KV that comes from the base. Default 1, as in the "
                             "server; any: drawn for each example, for a decoder that also computes prompts itself")
    parser.add_argument("--learning-rate", type=positive(float), default=2e-5, help="the highest; default 2e-5")
    parser.add_argument("--epochs", type=positive(int), default=3, help="default 3")
    parser.add_argument("--batch", type=positive(int), default=16, help="examples in a step; default 16")
    parser.add_argument("--seed", type=int, default=0, help="of the order of examples; default 0")
    parser.add_argument("--schedule", choices=("cosine", "linear"), default="cosine", help="decay to 0 after the warm-up")
    parser.add_argument("--warmup", type=share, default=0.03, help="share of the steps; default 0.03")
    parser.add_argument("--weight-decay", type=float, default=0.1, help="default 0.1")
    parser.add_argument("--save-every", type=positive(int), default=200, metavar="STEPS", help="default 200")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint in --out")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32",
                        help="of what is computed; weights and optimizer are float32 in both. Default float32")
    parser.add_argument("--pass-tokens", type=positive(int), metavar="TOKENS",
                        help="most tokens of a step that run at once, for what fits into memory; default: the whole step")
    add_device(parser)
    parser.set_defaults(run=train)


def add_evaluate(commands):
    parser = commands.add_parser("evaluate", help="count exactly right answers",
                                 description="Greedy answers, compared with the data's. Through a server that runs "
                                             "(tools/cluster up, baton serve), or in this process.")
    parser.add_argument("--data", required=True, help='JSON Lines of {"prompt", "answer"}')
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--server", metavar="HOST:PORT", help="a running router")
    where.add_argument("--reference", action="store_true", help="PyTorch in this process, with the server's boundary rule")
    parser.add_argument("--model", default="", help="with --server: the decoder's name; may be left out if there is only one")
    parser.add_argument("--tokenizer", metavar="DIR", help="with --server: the directory of that model")
    add_pair(parser, required=False)
    parser.add_argument("--json", metavar="FILE", help="write every answer here; -: standard output")
    parser.set_defaults(run=evaluate)


def add_reference(commands):
    parser = commands.add_parser("reference", help="greedy tokens over KV of a base, as JSON",
                                 description="What a server with this prefill module and this decoder must generate: fp32 "
                                             "arithmetic, KV in the weights' type. `gaps` says how far the best logit led.")
    add_pair(parser, required=True)
    parser.add_argument("--prompts", required=True, metavar="FILE", help="JSON: a list of texts or of lists of token ids")
    parser.add_argument("--max-tokens", type=positive(int), default=64, help="default 64")
    parser.add_argument("--ignore-eos", action="store_true", help="generate on past an end of sequence")
    parser.add_argument("--json", metavar="FILE", default="-", help="default: standard output")
    parser.set_defaults(run=reference)


def add_study(commands):
    parser = commands.add_parser("study", help="what sharing KV costs, on a small model",
                                 description="Decoders for three tasks from one small base, fine-tuned each way: right answers by the "
                                             "share of the prompt's KV that comes from the base, and through a server that is "
                                             "started for it (build/release/bin/baton). CPU only.")
    parser.add_argument("--train", type=positive(int), default=0, metavar="SEEDS",
                        help="train all decoders anew, with this many seeds, instead of measuring those in "
                             "tools/finetuning/study/weights and training one again")
    parser.add_argument("--work", default="build/study", metavar="DIR", help="where data and decoders go; default build/study. "
                        "What is there already is not trained again")
    parser.add_argument("--json", metavar="FILE", help="write all figures here")
    parser.add_argument("--svg", metavar="FILE", help="draw accuracy by sharing ratio here")
    parser.add_argument("--make-base", action="store_true", help="train the base itself from nothing, into DIR/base")
    parser.set_defaults(run=study)


def add_study_public(commands):
    parser = commands.add_parser(
        "study-public", help="what sharing KV costs, on public data and a real base",
        description="Fine-tunes a base on GSM8K and BFCL each way with several seeds, and counts right answers by the share of the "
                    "prompt's KV that comes from the base, and through servers that are started for it. Results come into "
                    "DIR/cells.jsonl one by one; a run that was cut off goes on where it was. Then DIR/report.json and "
                    "DIR/ratios.TASK.svg.")
    parser.add_argument("--base", default="models/smollm2-135m-instruct", metavar="DIR", help="default models/smollm2-135m-instruct "
                        "(tools/fetch_model)")
    parser.add_argument("--data", default="../shared/data/prompts", metavar="DIR",
                        help="holds gsm8k/train.jsonl of openai/grade-school-math and bfcl/ of ShishirPatil/gorilla: "
                             "BFCL_v4_PART.json and possible_answer/. Default ../shared/data/prompts")
    parser.add_argument("--work", default="build/study-public", metavar="DIR", help="default build/study-public")
    parser.add_argument("--settings", default=Path(__file__).resolve().parent / "study" / "public.json", metavar="FILE",
                        help="seeds, recipes, sizes; default tools/finetuning/study/public.json")
    parser.add_argument("--tasks", metavar="NAME,...", help="default: all of the settings")
    parser.add_argument("--parallel", type=positive(int), default=1, metavar="PROCESSES",
                        help="decoders that are trained or measured at a time, with some 15 GB of GPU memory each; default 1")
    parser.add_argument("--baton", default="build/release/bin/baton", metavar="FILE",
                        help="the server; none: without. Default build/release/bin/baton")
    parser.add_argument("--report", action="store_true", help="only report on what --work holds")
    parser.add_argument("--tune", action="store_true", help="compare the settings' recipes (\"tuning\") on rows that are kept from "
                        "training and are not those tested on; writes DIR/tuning.json. Wants a --work of its own")
    add_device(parser)
    parser.set_defaults(run=study_public)


def main():
    parser = argparse.ArgumentParser(prog="tools/finetune", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="train|evaluate|reference|study|study-public")
    add_train(commands)
    add_evaluate(commands)
    add_reference(commands)
    add_study(commands)
    add_study_public(commands)
    args = parser.parse_args()
    try:
        args.run(args)
    except InputError as error:
        print(f"finetune: {error}", file=sys.stderr)
        return 1
    return 0
