"""Makes decoders that share one frozen prefill module, and measures them.

  tools/finetune train --base DIR --data FILE.jsonl --out DIR
  tools/finetune evaluate --tokenizer DIR --data FILE.jsonl --server HOST:PORT [--model NAME]
  tools/finetune evaluate --base DIR --decoder DIR --data FILE.jsonl --reference

  tools/finetune reference --base DIR --decoder DIR --prompts FILE.json
  tools/finetune study
  tools/finetune study-public --base DIR --data DIR --work DIR
  tools/finetune test

The command `study` measures the cost of sharing a small base's KV on three tasks. The command
`study-public` measures it on GSM8K and BFCL, and needs a GPU. The command `test` runs the tests of
this tool.

Data is JSON Lines of {"prompt": ..., "answer": ...}. A directory is a Hugging Face directory that
the server can load.
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
        # cuDNN makes a new plan for each shape, and each token gives a new shape.
        torch.backends.cuda.enable_cudnn_sdp(False)
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
        raise InputError("--report: cannot be used with --tune, which never repeats finished work")
    (tuning if args.tune else public).run(args)


def add_device(parser):
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="default: cuda if there is a GPU")


def add_pair(parser, required):
    parser.add_argument("--base", required=required, help="the prefill module")
    parser.add_argument("--decoder", required=required, help="a module that decodes over KV of --base; may be --base itself")
    parser.add_argument("--share", type=share, default=1.0,
                        help="share of the prompt's KV that --base computes; --decoder computes the rest (default 1, as in the server)")
    add_device(parser)


def add_train(commands):
    parser = commands.add_parser("train", help="make a decoder from a base",
                                 description="Writes a Hugging Face directory. Its folder training/ has checkpoints and the loss curve.")
    parser.add_argument("--base", required=True, help="the frozen prefill module; training of the decoder starts from its weights")
    parser.add_argument("--data", required=True, help='JSON Lines of {"prompt", "answer"}; with --method full also of {"text"}')
    parser.add_argument("--out", required=True, help="the decoder's directory")
    parser.add_argument("--method", choices=("cache-conditioned", "full"), default="cache-conditioned",
                        help="cache-conditioned (default): train over KV of the base, as the server runs it; full: train a whole model")
    parser.add_argument("--share", type=share_or_any, default=1.0,
                        help="cache-conditioned: share of the prompt's KV that the base computes. Default 1, as in the "
                             "server. any: a random share for each example, for a decoder that also computes prompts itself")
    parser.add_argument("--learning-rate", type=positive(float), default=2e-5, help="highest learning rate; default 2e-5")
    parser.add_argument("--epochs", type=positive(int), default=3, help="default 3")
    parser.add_argument("--batch", type=positive(int), default=16, help="examples in a step; default 16")
    parser.add_argument("--seed", type=int, default=0, help="seed of the order of examples; default 0")
    parser.add_argument("--schedule", choices=("cosine", "linear"), default="cosine", help="decay to 0 after the warm-up")
    parser.add_argument("--warmup", type=share, default=0.03, help="share of the steps that warm up; default 0.03")
    parser.add_argument("--weight-decay", type=float, default=0.1, help="default 0.1")
    parser.add_argument("--save-every", type=positive(int), default=200, metavar="STEPS", help="default 200")
    parser.add_argument("--resume", action="store_true", help="continue from the last checkpoint in --out")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32",
                        help="precision of the arithmetic; weights and optimizer are always float32. Default float32")
    parser.add_argument("--pass-tokens", type=positive(int), metavar="TOKENS",
                        help="upper bound on tokens of a step that run at a time, to limit memory; default: the whole step")
    add_device(parser)
    parser.set_defaults(run=train)


def add_evaluate(commands):
    parser = commands.add_parser("evaluate", help="count exactly right answers",
                                 description="Compares greedy answers with those of the data. The answers come from a running "
                                             "server (tools/cluster up, baton serve) or from this process.")
    parser.add_argument("--data", required=True, help='JSON Lines of {"prompt", "answer"}')
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--server", metavar="HOST:PORT", help="a running router")
    where.add_argument("--reference", action="store_true", help="run PyTorch in this process, with the server's boundary rule")
    parser.add_argument("--model", default="", help="with --server: the decoder's name; optional if there is only one")
    parser.add_argument("--tokenizer", metavar="DIR", help="with --server: the directory of that model")
    add_pair(parser, required=False)
    parser.add_argument("--json", metavar="FILE", help="write every answer here; -: standard output")
    parser.set_defaults(run=evaluate)


def add_reference(commands):
    parser = commands.add_parser("reference", help="greedy tokens over KV of a base, as JSON",
                                 description="Writes the tokens that a server with this prefill module and this decoder must "
                                             "generate. The arithmetic is fp32, and KV has the type of the weights. `gaps` "
                                             "are the differences of the best two logits.")
    add_pair(parser, required=True)
    parser.add_argument("--prompts", required=True, metavar="FILE", help="JSON: a list of texts or of lists of token ids")
    parser.add_argument("--max-tokens", type=positive(int), default=64, help="default 64")
    parser.add_argument("--ignore-eos", action="store_true", help="continue after an end of sequence")
    parser.add_argument("--json", metavar="FILE", default="-", help="default: standard output")
    parser.set_defaults(run=reference)


def add_study(commands):
    parser = commands.add_parser("study", help="measure the cost of sharing KV on a small model",
                                 description="Measures decoders for three tasks that are fine-tuned from one small base with each "
                                             "method. Counts right answers by the share of the prompt's KV that the base computes, "
                                             "and through a server that the study starts (build/release/bin/baton). CPU only.")
    parser.add_argument("--train", type=positive(int), default=0, metavar="SEEDS",
                        help="train all decoders with this many seeds. Default: measure the decoders in "
                             "tools/finetuning/study/weights and train one of them again")
    parser.add_argument("--work", default="build/study", metavar="DIR", help="folder of data and decoders; default build/study. "
                        "Decoders that exist there are not trained again")
    parser.add_argument("--json", metavar="FILE", help="write all figures to FILE")
    parser.add_argument("--svg", metavar="FILE", help="write a plot of accuracy by sharing ratio to FILE")
    parser.add_argument("--make-base", action="store_true", help="train the base itself from random weights, into DIR/base")
    parser.set_defaults(run=study)


def add_study_public(commands):
    parser = commands.add_parser(
        "study-public", help="measure the cost of sharing KV on public data and a real base",
        description="Fine-tunes a base on GSM8K and BFCL with each method and several seeds. Counts right answers by the share of "
                    "the prompt's KV that the base computes, and through servers that the study starts. Adds each result to "
                    "DIR/cells.jsonl, so that an interrupted run can continue. Writes DIR/report.json and DIR/ratios.TASK.svg "
                    "at the end.")
    parser.add_argument("--base", default="models/smollm2-135m-instruct", metavar="DIR", help="default models/smollm2-135m-instruct "
                        "(tools/fetch_model)")
    parser.add_argument("--data", default="../shared/data/prompts", metavar="DIR",
                        help="folder with gsm8k/train.jsonl of openai/grade-school-math and bfcl/ of ShishirPatil/gorilla: "
                             "BFCL_v4_PART.json and possible_answer/. Default ../shared/data/prompts")
    parser.add_argument("--work", default="build/study-public", metavar="DIR", help="default build/study-public")
    parser.add_argument("--settings", default=Path(__file__).resolve().parent / "study" / "public.json", metavar="FILE",
                        help="seeds, recipes, sizes; default tools/finetuning/study/public.json")
    parser.add_argument("--tasks", metavar="NAME,...", help="default: all tasks of the settings")
    parser.add_argument("--parallel", type=positive(int), default=1, metavar="PROCESSES",
                        help="number of decoders that are trained or measured at a time; each needs about 15 GB of GPU memory. "
                             "Default 1")
    parser.add_argument("--baton", default="build/release/bin/baton", metavar="FILE",
                        help="the server's program; none: measure without a server. Default build/release/bin/baton")
    parser.add_argument("--report", action="store_true", help="only report the results in --work")
    parser.add_argument("--tune", action="store_true", help="compare the recipes of the settings (\"tuning\") on rows that are "
                        "neither in training nor in testing; writes DIR/tuning.json. Needs its own --work")
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
