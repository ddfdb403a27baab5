"""The training loop: AdamW, warm-up, decay and checkpoints.

A run that resumes from a checkpoint gives the same result as an uninterrupted run.
"""

import dataclasses
import json
import math
import os
import pickle
import signal
from pathlib import Path

import torch

from finetuning import examples as data
from finetuning.errors import InputError
from finetuning.line_plot import line_plot
from finetuning.module_dir import write_module
from finetuning.progress import Progress
from finetuning.sequences import prefill

METHODS = ("cache-conditioned", "full")
SCHEDULES = ("cosine", "linear")
PRECISIONS = ("float32", "bfloat16")
MAX_GRADIENT_NORM = 1.0


@dataclasses.dataclass(frozen=True)
class Options:
    method: str = "cache-conditioned"
    # Share of a prompt's KV that the base computes. None: a random share for each example.
    share: float | None = 1.0
    learning_rate: float = 2e-5
    epochs: int = 3
    # Examples of a step.
    batch: int = 16
    # Seed of the order of examples.
    seed: int = 0
    schedule: str = "cosine"
    # Share of all steps.
    warmup: float = 0.03
    weight_decay: float = 0.1
    # Steps between checkpoints. None: no checkpoints.
    save_every: int | None = 200
    # Precision of the arithmetic. Weights and their sums are always float32.
    precision: str = "float32"
    # Upper bound on tokens of a step that run at a time, with padding. None: no bound.
    pass_tokens: int | None = None


def answer_loss(base, decoder, examples, shares, kv_dtype):
    """Returns the mean cross entropy over the tokens of the answers.

    `base` is frozen and computes a share of each prompt's KV. A share of 1 is equation 7 of
    PrefillShare. A share of 0 is full fine-tuning.
    """
    sequences = prefill(base, decoder, [example.prompt for example in examples], shares, kv_dtype)
    inputs = [example.prompt[-1:] + example.answer[:-1] for example in examples]
    hidden = sequences.extend(decoder, inputs)
    # [answer tokens, hidden]
    predicts = torch.cat([hidden[i, hidden.shape[1] - len(row):] for i, row in enumerate(inputs)])
    labels = torch.tensor([token for example in examples for token in example.answer], device=decoder.device)
    return torch.nn.functional.cross_entropy(decoder.lm_head(predicts).float(), labels)


def passes(examples, most_tokens):
    """Splits a step's examples into lists of indices that have at most `most_tokens` tokens.

    Examples of similar length share a list, so that there is little padding.
    """
    if most_tokens is None:
        return [list(range(len(examples)))]
    out, widths = [], (0, 0)
    for i in sorted(range(len(examples)), key=lambda i: len(examples[i].prompt) + len(examples[i].answer)):
        sizes = len(examples[i].prompt), len(examples[i].answer)
        # Prompts and answers are padded separately.
        widths = tuple(map(max, widths, sizes))
        if not out or (len(out[-1]) + 1) * sum(widths) > most_tokens:
            out, widths = [*out, []], sizes
        out[-1].append(i)
    return out


def shares_of(count, step, options):
    """Returns the share of each prompt's KV that the base computes."""
    if options.method == "full":
        return [0.0] * count
    if options.share is not None:
        return [options.share] * count
    return torch.rand(count, generator=torch.Generator().manual_seed(options.seed * 1_000_003 + step)).tolist()


def rate_factor(step, steps, options):
    """Returns the learning rate of a step as a share of the highest rate.

    The rate warms up linearly and then decays to 0.
    """
    warmup = max(1, math.ceil(options.warmup * steps))
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / max(1, steps - warmup)
    return 1 - done if options.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))


def batch_of(examples, step, options):
    """Returns the examples of a step.

    Each epoch has its own permutation, which the seed determines. A resumed run therefore finds the
    examples of any step.
    """
    per_epoch = math.ceil(len(examples) / options.batch)
    epoch, index = divmod(step, per_epoch)
    generator = torch.Generator().manual_seed(options.seed * 1_000_003 + epoch)
    order = torch.randperm(len(examples), generator=generator)
    return [examples[i] for i in order[index * options.batch:(index + 1) * options.batch].tolist()]


class _Interrupt:
    """A context in which Ctrl-C and SIGTERM only set the flag `came`."""

    came = False

    def _note(self, signum, frame):
        self.came = True

    def __enter__(self):
        self._before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *error):
        for number, handler in self._before.items():
            signal.signal(number, handler)


class Training:
    """One training run. A checkpoint holds its state."""

    def __init__(self, base_dir, examples, options, out, device):
        self._base_dir, self._examples, self._options, self._out = base_dir, examples, options, Path(out)
        torch.manual_seed(options.seed)
        self._decoder = base_dir.load(device).train()
        self._base = base_dir.load(device).eval().requires_grad_(False)
        # Weight decay usually excludes norms and biases.
        decayed = [p for p in self._decoder.parameters() if p.dim() > 1]
        others = [p for p in self._decoder.parameters() if p.dim() <= 1]
        self._optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": options.weight_decay},
                                             {"params": others, "weight_decay": 0.0}], lr=options.learning_rate)
        self.steps = options.epochs * math.ceil(len(examples) / options.batch)
        # The loss of each completed step.
        self.losses = []
        # A run can resume a checkpoint if all these values are equal.
        self._identity = dataclasses.asdict(options) | {"data": data.digest(examples), "base": str(base_dir.path.resolve())}
        del self._identity["save_every"]

    @property
    def _checkpoint(self):
        return self._out / "training" / "checkpoint.pt"

    def start_or_resume(self, resume):
        if resume:
            self._load()
        elif self._checkpoint.exists() or (self._out / "model.safetensors").exists():
            raise InputError(f"{self._out}: has a model or a run already; use --resume or another --out")

    def run(self, stop_after=None):
        """Trains to the end, or for `stop_after` steps.

        Writes the module after the last step. Raises InputError if a signal interrupts the run.
        """
        progress = Progress(f"{self._options.method} {self._out.name}", self.steps, len(self.losses))
        end = self.steps if stop_after is None else min(self.steps, len(self.losses) + stop_after)
        # A signal takes effect after the step, because half a step cannot be resumed.
        with _Interrupt() as interrupt:
            while len(self.losses) < end and not interrupt.came:
                self._step()
                progress.show(len(self.losses), f"loss {self.losses[-1]:.4f}")
                if self._options.save_every and len(self.losses) % self._options.save_every == 0:
                    self._save()
            self._save()
        if interrupt.came:
            kept = "continue with --resume" if self._options.save_every else "no checkpoint was requested"
            raise InputError(f"interrupted after {len(self.losses)} of {self.steps} steps; {kept}")
        if len(self.losses) == self.steps:
            write_module(self._decoder, self._base_dir, self._out)

    def _step(self):
        step = len(self.losses)
        for group in self._optimizer.param_groups:
            group["lr"] = self._options.learning_rate * rate_factor(step, self.steps, self._options)
        examples = batch_of(self._examples, step, self._options)
        self._optimizer.zero_grad()
        loss = self._backward(examples, shares_of(len(examples), step, self._options))
        if not math.isfinite(loss):
            raise InputError(f"step {step + 1}: the loss is {loss}: try a lower --learning-rate")
        torch.nn.utils.clip_grad_norm_(self._decoder.parameters(), MAX_GRADIENT_NORM)
        self._optimizer.step()
        self.losses.append(loss)

    def _backward(self, examples, shares):
        """Adds up the gradients of a step in one or more passes. Returns the loss of the step."""
        tokens = sum(len(example.answer) for example in examples)
        # The sum stays on the device. A read after each pass would wait for the pass.
        total = torch.zeros((), device=self._decoder.device)
        for chosen in passes(examples, self._options.pass_tokens):
            some = [examples[i] for i in chosen]
            with torch.autocast(self._decoder.device.type, torch.bfloat16, enabled=self._options.precision == "bfloat16"):
                loss = answer_loss(self._base, self._decoder, some, [shares[i] for i in chosen], self._base_dir.dtype)
            loss = loss * (sum(len(example.answer) for example in some) / tokens)
            loss.backward()
            total += loss.detach()
        return total.item()

    def _save(self):
        folder = self._checkpoint.parent
        folder.mkdir(parents=True, exist_ok=True)
        if self._options.save_every:
            self._save_checkpoint()
        (folder / "loss.json").write_text(json.dumps(self._identity | {"steps": self.steps, "losses": self.losses}) + "\n")
        line_plot(folder / "loss.svg", f"{self._options.method}: {self._out.name}", "step", "loss",
                  {"loss of the step's batch": list(enumerate(self.losses, 1)),
                   "mean of 20 steps": list(enumerate(_smoothed(self.losses, 20), 1))})

    def _save_checkpoint(self):
        partial = self._checkpoint.with_suffix(".partial")
        torch.save({"identity": self._identity, "losses": self.losses, "weights": self._decoder.state_dict(),
                    "optimizer": self._optimizer.state_dict(), "rng": torch.get_rng_state(),
                    "cuda_rng": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []}, partial)
        os.replace(partial, self._checkpoint)

    def _load(self):
        try:
            state = torch.load(self._checkpoint, map_location="cpu", weights_only=True)
            identity = state["identity"]
        except FileNotFoundError:
            raise InputError(f"{self._checkpoint}: there is no such file; nothing to resume") from None
        except (OSError, RuntimeError, pickle.UnpicklingError, KeyError, TypeError, EOFError) as error:
            raise InputError(f"{self._checkpoint}: is damaged: {error}") from None
        for name, ours in self._identity.items():
            if identity.get(name) != ours:
                raise InputError(f"{self._checkpoint}: {name}: the checkpoint has {identity.get(name)}, the command line {ours}; expected equal values")
        self._decoder.load_state_dict(state["weights"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.losses = state["losses"]
        torch.set_rng_state(state["rng"])
        if torch.cuda.is_available() and len(state["cuda_rng"]) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all(state["cuda_rng"])


def _smoothed(values, width):
    sums, out = 0.0, []
    for i, value in enumerate(values):
        sums += value - (values[i - width] if i >= width else 0)
        out.append(sums / min(i + 1, width))
    return out
