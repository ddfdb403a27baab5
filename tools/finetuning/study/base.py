"""The study's base before training: random weights, and a tokenizer trained on the base's texts."""

import json
import random

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM

from finetuning.study import corpus, tasks


def write_untrained(directory, settings):
    """Writes a Hugging Face directory. `settings` is "base" of study.json."""
    directory.mkdir(parents=True, exist_ok=True)
    _tokenizer(settings).save(str(directory / "tokenizer.json"), pretty=False)
    (directory / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}) + "\n")
    torch.manual_seed(settings["seed"])
    config = LlamaConfig(vocab_size=settings["vocabulary"], bos_token_id=0, eos_token_id=1, pad_token_id=None,
                         tie_word_embeddings=True, rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
                         **settings["shape"])
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(directory)


def texts(settings):
    rng = random.Random(settings["seed"])
    return [corpus.text(rng) for _ in range(settings["texts"])]


def _tokenizer(settings):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=settings["vocabulary"], special_tokens=["<s>", "</s>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    rng = random.Random(settings["seed"])
    prompts = [row["prompt"] + row["answer"] for task in tasks.TASKS for row in tasks.make(task, rng, 1000)]
    tokenizer.train_from_iterator(texts(settings)[:4000] + prompts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return tokenizer
