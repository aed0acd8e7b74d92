"""The keys of many requests: protocol ids, and the keys of trainings, generations and scores.

A key that changes makes every result that users have stale, so that no change of code may change one by accident.
`keys.json` holds them; `python tests/golden/make_keys.py` writes it again. Models and data are made by arithmetic and
packages have fixed versions, so that the keys are the same on every machine.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

KEYS = Path(__file__).with_name("keys.json")
TEXT = "The {0} of number {0} came by the river, and nobody in the town of {1} knew why it was there. " * 6
CORPORA = ("wikitext2", "wikitext103", "webtext", "ptb", "writingprompts", "gpt2-oracle")
CONVERSATIONS = ("alpaca-gpt4", "evol-instruct-70k", "open-platypus")
RIVALS = ("davinci-003", "baize-v2-7b", "llama-2-7b-chat-hf", "vicuna-7b-v1.3", "zephyr-7b-alpha")


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def text(place: int) -> str:
    return TEXT.format(place, place % 7)


def make_texts(folder: Path) -> None:
    for corpus in CORPORA:
        for split, count in (("train", 40), ("validation", 12), ("test", 12)):
            write_rows(folder / f"{corpus}.{split}.jsonl", [{"text": text(place)} for place in range(count)])


def make_labelled(folder: Path) -> None:
    from emobench.registry import find_task

    for name in ("ag_news", "cr", "rotten_tomatoes", "sst2", "subj", "trec", "tweet_emotion"):
        classes = find_task(name).dataset.classes
        for split, count in (("train", 40), ("validation", 10), ("test", 20)):
            rows = []
            for place in range(count):
                label = place % len(classes)
                rows.append({"text": text(place)[:60], "label": label, "label_name": classes[label]})
            write_rows(folder / f"{name}.{split}.jsonl", rows)
    for split, count in (("dev", 10), ("test", 6)):
        rows = []
        for place in range(count):
            choices = [str(place + shift) for shift in range(4)]
            question = f"What is {place}?"
            rows.append({"question": question, "choices": choices, "answer": 0, "subject": f"numbers {place % 2}"})
        write_rows(folder / f"mmlu.{split}.jsonl", rows)


def make_conversations(folder: Path) -> None:
    rows = [{"instruction": f"Name {place}.", "input": "", "output": f"It is {place}."} for place in range(600)]
    for corpus in (*CONVERSATIONS, "responses"):
        write_rows(folder / f"{corpus}.train.jsonl", rows)
    chats = []
    for row in rows:
        user = {"role": "user", "content": row["instruction"]}
        assistant = {"role": "assistant", "content": row["output"]}
        chats.append({"messages": [user, assistant]})
    write_rows(folder / "tulu-3-sft.train.jsonl", chats)
    asked = [{"instruction": f"Say {place}.", "input": "", "reference": f"{place}"} for place in range(8)]
    for corpus in ("instructions", "alpaca_eval"):
        write_rows(folder / f"{corpus}.test.jsonl", asked)
    answers = [{"instruction": row["instruction"], "output": "It is so."} for row in asked]
    for rival in RIVALS:
        (folder / f"{rival}.test.json").write_text(json.dumps(answers))


def make_lm_eval(folder: Path) -> None:
    """Write a task of lm-evaluation-harness, its data, and a suite with it alone."""
    task = {
        "task": "golden_choice",
        "dataset_path": "json",
        "test_split": "test",
        "fewshot_split": "train",
        "output_type": "multiple_choice",
        "doc_to_text": "{{text}}",
        "doc_to_choice": ["bad", "good"],
        "doc_to_target": "label",
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
        "metadata": {"version": 1},
    }
    rows = [{"text": text(place)[:40], "label": place % 2} for place in range(8)]
    for split in ("train", "test"):
        write_rows(folder / "rows" / f"{split}.jsonl", rows)
    (folder / "golden_choice.yaml").write_text(json.dumps(task))
    run = {"recipe": "lm-finetune", "lm_eval": ["golden_choice"]}
    suite = {"name": "suite", "version": 1, "description": "One task.", "runs": [run]}
    (folder / "suite.yaml").write_text(json.dumps(suite))


def byte_tokens() -> dict[str, Any]:
    """Return the parts of a tokenizer whose tokens are bytes."""
    from tokenizers.pre_tokenizers import ByteLevel

    vocabulary = {character: place for place, character in enumerate(sorted(ByteLevel.alphabet()))} | {"<eos>": 256}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "vocab": vocabulary, "merges": []}
    return {"pre_tokenizer": byte_level, "decoder": byte_level, "model": model}


def oracle_tokens() -> dict[str, Any]:
    """Return the parts of a tokenizer whose tokens are the symbols of the oracle language."""
    from emobench.data.oracle.language import EOS, oracle_words

    vocabulary = {word: place for place, word in enumerate([*oracle_words(), EOS])}
    return {
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": EOS},
    }


def make_model(folder: Path, tokens: dict[str, Any]) -> None:
    """Write a GPT-2 of one layer, file by file: no library's version is in them. Its last token ends a text."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True)
    vocabulary = tokens["model"]["vocab"]
    name, last = list(vocabulary)[-1], len(vocabulary) - 1
    end = {"id": last, "content": name, "single_word": False, "lstrip": False, "rstrip": False}
    tokenizer = {"version": "1.0", "added_tokens": [{**end, "normalized": False, "special": True}], **tokens}
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": name, "eos_token": name}
    turns = "{% for message in messages %}{{ message.role }}: {{ message.content }}{{ eos_token }}{% endfor %}"
    ask = "{% if add_generation_prompt %}assistant: {% endif %}"
    sizes = {"vocab_size": last + 1, "n_positions": 4096, "n_embd": 8, "n_layer": 1, "n_head": 2}
    kind = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "bos_token_id": last, "eos_token_id": last}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({**names, "chat_template": turns + ask}))
    (folder / "config.json").write_text(json.dumps({**kind, **sizes}))
    shapes = {"wte.weight": (last + 1, 8), "wpe.weight": (4096, 8), "ln_f.weight": (8,), "ln_f.bias": (8,)}
    block = {"ln_1.weight": (8,), "ln_1.bias": (8,), "attn.c_attn.weight": (8, 24), "attn.c_attn.bias": (24,)}
    block |= {"attn.c_proj.weight": (8, 8), "attn.c_proj.bias": (8,), "ln_2.weight": (8,), "ln_2.bias": (8,)}
    block |= {"mlp.c_fc.weight": (8, 32), "mlp.c_fc.bias": (32,), "mlp.c_proj.weight": (32, 8), "mlp.c_proj.bias": (8,)}
    shapes |= {f"h.0.{name}": shape for name, shape in block.items()}
    weights = {}
    for place, (name, shape) in enumerate(shapes.items()):
        numbers = np.arange(np.prod(shape)) * 7 + place
        weights[f"transformer.{name}"] = ((numbers % 64 - 32) / 64).astype(np.float32).reshape(shape)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def make_world(folder: Path) -> None:
    """Write all data and models that the requests read."""
    make_texts(folder / "texts")
    make_labelled(folder / "labelled")
    make_conversations(folder / "chats")
    make_lm_eval(folder / "lm_eval")
    make_model(folder / "model", byte_tokens())
    make_model(folder / "oracle", oracle_tokens())


TRAININGS = {
    "lm-finetune": """
        epochs=1 batch=8 accumulation=2 learning_rate=1e-4 schedule=cosine schedule=constant warmup=0.1 weight_decay=0.1
        clip=1 max_length=64 packing=rows ends=true max_tokens=2000 precision=float32 weight_dtype=bfloat16 lora=true
        lora.rank=8 optimizer=sgd gradient_checkpointing=true select=last select=objective cost_rows=64 engine=reference
        cost_rows=128""",
    "alpaca-gpt4": "responses=last template=chat packing=conversations",
    "tulu-3-sft": "packing=rows max_length=512",
    "continual-wikitext103": "",
    "evol-instruct-70k": "",
    "open-platypus": "",
    "instruct-responses": "",
    "tiny-lm-pretrain": "",
    "oracle-finetune": "",
    "oracle-pretrain": "",
    "oracle-pretrain-episodes": "",
}
"""Recipe -> its settings that are tried, one at a time."""
OBJECTIVES = """
    brier dft entropy-regularization entropy-regularization(beta=0.2) focal focal(gamma=1.0) label-smoothing
    label-smoothing(epsilon=0.2) mixce mixce(gamma=0.5) power power(alpha=0.5) power(max_prob=0.9) tailr
    tailr(gamma=0.2) tailr(min_weight=0.1) tailr-official tailr-official(gamma=0.5) total-variation z-loss
    z-loss(coefficient=0.001) demd demd(cost=initial) emo emo(cost=initial) emo-1-adaptive emo-2-adaptive
    emo-2-fixed emo-clamped emo-clamped(max_ratio=2.0) gem gem(beta=0.5) unlikelihood unlikelihood(alpha=0.5)
    0.5*mle+0.5*emo
"""
"""Those that are tried with the recipe lm-finetune."""
TASKS = {
    "generation": """
        generation.split=validation generation.unit=words generation.prefix=10 generation.continuation=20
        generation.margin=1 generation.min_characters=9 generation.first_texts=8 generation.bos=one
        generation.joiner=_ generation.stemming=true generation.max_length=64 generation.test_blocks=2
        generation.documents=stream generation.limit=5 generation.sampling.samples=2 generation.sampling.seed=1
        generation.sampling.suppress_eos=false generation.sampling.extra_tokens=2
        generation.sampling.temperature=0.7 generation.sampling.top_k=5 generation.sampling.top_p=0.9
        generation.sampling.typical_p=0.9 generation.sampling.min_p=0.1 mauve.pooling=last mauve.max_length=64
        mauve.seeds=[0] oracle.model=MODEL protocol=official-code corpus=webtext""",
    "nlu": """
        icl.shots=2 icl.order=nearest-last icl.pool=0.5 icl.held_out=5 icl.seed=1 icl.exclude_duplicates=true
        icl.scorer=label icl.scorer=label_token icl.scorer=label_byte icl.scorer=calibrated icl.bos=none
        icl.max_length=512 icl.too_long=cut_right icl.engine=plain icl.limit=5 icl.separator=_ icl.header=H
        icl.retriever=random icl.retriever=fixed tasks=trec tasks=cr tasks=subj tasks=rotten_tomatoes
        tasks=tweet_emotion tasks=ag_news tasks=mmlu""",
    "instruct": """
        instruct.template=chat instruct.max_new_tokens=32 instruct.temperature=0.7 instruct.seed=1
        instruct.limit=5""",
    "alpaca-eval": "protocol=chat",
    "alpaca-eval-sets": "",
    "alpaca-eval-rivals": "",
    "figure-2": "surrogate.split=test surrogate.min_words=30 surrogate.max_tokens=800 surrogate.limit=5",
    "gpt2-oracle": "oracle.scope=continuation",
    "lm-quick": "generation.limit=5 generation.sampling.method=greedy generation.sampling.method=beam",
    "oracle-language": "oracle.domain=source oracle.texts=50 oracle.length=40 oracle.prefix=4 oracle.continuation=8",
    "nlu-tiny": "icl.shots=2",
    "suite.yaml": "lm_eval.num_fewshot=2 lm_eval.chat_template=true lm_eval.max_length=256 lm_eval.limit=5",
}
"""Suite -> its settings that are tried, one at a time, on the model as it is."""
ORACLE = ("oracle-language", "nlu-tiny")
"""Suites of the oracle language, whose symbols the model reads."""
BASES = {
    "generation": ("tasks=wikitext2", "mauve.featurizer=pretrained"),
    "nlu": ("tasks=sst2", "icl.retriever=bm25"),
    "figure-2": ("surrogate.model=pretrained", "surrogate.max_tokens=900"),
    "gpt2-oracle": ("oracle.model=pretrained", "mauve.featurizer=pretrained"),
    "suite.yaml": ("lm_eval.include=FOLDER/lm_eval", "lm_eval.data=FOLDER/lm_eval/rows"),
}
"""Suite -> the settings that its other ones are tried with."""


def requests(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the requests: fields of `Request`, whose settings are as they are typed."""
    data_dirs = (folder / "texts", folder / "labelled", folder / "chats")
    base = {"model": str(folder / "model"), "data_dirs": data_dirs, "offline": True}
    for recipe, settings in TRAININGS.items():
        training = {**base, "recipe": recipe, "objectives": ("mle",), "seeds": (0,)}
        yield training
        for setting in settings.split():
            yield {**training, "settings": (f"recipe.{setting}",)}
    training = {**base, "recipe": "lm-finetune", "seeds": (0,)}
    for objective in OBJECTIVES.split():
        yield {**training, "objectives": (objective,)}
    yield {**training, "objectives": ("emo",), "seeds": (0, 1)}
    yield {**training, "objectives": ("mle",), "from_scratch": True}
    for suite, settings in TASKS.items():
        given = tuple(one.replace("FOLDER", str(folder)) for one in BASES.get(suite, ()))
        model = folder / ("oracle" if suite in ORACLE else "model")
        suite = str(folder / "lm_eval" / suite) if suite.endswith(".yaml") else suite
        evaluation = {**base, "model": str(model), "suite": suite, "objectives": ("pretrained",), "settings": given}
        evaluation["trust_remote_code"] = suite.endswith(".yaml")
        yield evaluation
        yield {**evaluation, "objectives": ("emo",), "seeds": (0,)}
        yield {**evaluation, "limit": 4}
        yield {**evaluation, "dtype": "bfloat16"}
        for setting in settings.split():
            name = setting.partition("=")[0]
            others = tuple(one for one in given if one.partition("=")[0] != name)
            yield {**evaluation, "settings": (*others, setting.replace("MODEL", base["model"]))}


def name_of(request: dict[str, Any], folder: Path) -> str:
    """Return a request as one line, without what all of them have and without the folder's name."""
    common = ("data_dirs", "offline")
    told = [f"{name}={value}" for name, value in request.items() if name not in common]
    return " ".join(told).replace(f"{folder}/", "")


def keys_of(request: dict[str, Any]) -> dict[str, str]:
    """Return the keys of all stages that a request comes to, and the protocols' ids."""
    from emobench.core.settings import parse_overrides
    from emobench.runs.planning.plan import make_plan
    from emobench.runs.planning.request import Request

    settings = parse_overrides(list(request.get("settings", ())))
    plan = make_plan(Request(**{**request, "settings": settings}))
    keys = {}
    for training in plan.trainings():
        keys[f"train, seed {training.seed}, {training.recipe.corpus}"] = training.key
    for planned in chain.from_iterable(run.tasks() for _, run in plan.rows_and_runs()):
        name = f"{planned.task.name}, {planned.task.corpus}"
        keys[f"protocol of {name}"] = planned.task.protocol_id
        keys[f"generate {name}"] = planned.generation.key
        keys[f"score {name}"] = planned.scores.key
    return keys


def make_keys(folder: Path) -> dict[str, dict[str, str]]:
    """Return each request's keys, of models and data that are made in `folder`."""
    make_world(folder)
    keys = {}
    with (
        patch("emobench.core.versions.version", lambda name: "1.0.0"),
        # A change of an objective's file that changes no number is none here.
        patch("emobench.registry.families._Objectives.digest", lambda *_: "0" * 64),
        patch("datasets.config.HF_DATASETS_CACHE", folder / "cache"),
    ):
        for request in requests(folder):
            keys[name_of(request, folder)] = keys_of(request)
    return keys


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        made = make_keys(Path(name))
    KEYS.write_text(json.dumps(made, indent=1) + "\n")
    print(f"{len(made)} requests in {KEYS}")
