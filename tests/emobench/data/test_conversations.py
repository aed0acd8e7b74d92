"""Conversations as ids and masks, against TRL's completion-only ones, for tokenizers of five kinds."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from emobench.core.errors import DataError, ModelError, UnknownNameError
from emobench.data.conversations import (
    AlpacaFormat,
    ChatFormat,
    Conversation,
    Format,
    Tokens,
    Turn,
    conversation_of,
    instruction_of,
)
from emobench.data.instruction_sets import load_conversations, source_of
from emobench.data.packing import WEIGHTS, Counts
from emobench.data.responses import shortened
from emobench.models.packaged import packaged_folder

ROWS = [
    {"instruction": "Name three colours.", "output": "Red, green and blue."},
    {"instruction": "Add the numbers.", "input": "1 and 2", "output": "3"},
    {"instruction": "Say it again.\n\nTwice.", "input": "", "output": " It. It.\n"},
    {"instruction": "Écris « été ».", "input": "naïve 🙂", "output": "été 🙂"},
]
CHAT = [
    [("user", "Hi."), ("assistant", "Hello!")],
    [("system", "Be short."), ("user", "Add 1 and 2."), ("assistant", "3"), ("user", "And 4?"), ("assistant", "7")],
]
TEXT = [f"{row.get('input', '')} {row['instruction']} {row['output']}" for row in ROWS] * 4 + [
    "Below is an instruction that describes a task. ### Response: ### Instruction: user assistant system\n"
]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}[INST] {{ m['content'] }} [/INST]"
    "{% elif m['role'] == 'assistant' %} {{ m['content'] }}{{ eos_token }}"
    "{% else %}{{ raise_exception('only user and assistant') }}{% endif %}{% endfor %}"
)
FORGETFUL = (  # a response is written otherwise when more follows, as some templates drop earlier reasoning
    "{% for m in messages %}<|{{ m['role'] }}|>{% if m['role'] != 'assistant' or loop.last %}{{ m['content'] }}"
    "{% else %}(dropped){% endif %}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def byte_level(**special: Any) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=list(special.values()), initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


def gpt2() -> Any:
    end = "<|endoftext|>"
    return PreTrainedTokenizerFast(tokenizer_object=byte_level(eos=end), eos_token=end, bos_token=end)


def opt() -> Any:
    """A BOS before each text, which is the EOS, too."""
    tokenizer = byte_level(eos="</s>")
    tokenizer.post_processor = processors.TemplateProcessing(single="</s> $A", special_tokens=[("</s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", bos_token="</s>")


def llama() -> Any:
    """Words that begin with the mark of a space, bytes for what is unknown, and a BOS."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=["<unk>", "<s>", "</s>", *bytes_])
    tokenizer.train_from_iterator(TEXT, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>", chat_template=LLAMA
    )


def qwen() -> Any:
    """ChatML, no BOS, and an EOS that is the end of a message."""
    tokenizer = byte_level(pad="<|endoftext|>", start="<|im_start|>", end="<|im_end|>")
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in ("<|im_start|>", "<|im_end|>")])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=CHATML
    )


def packaged(name: str) -> Any:
    if packaged_folder(name) is None:
        pytest.skip(f"the packages of {name} are not installed (`emobench models list`)")
    return AutoTokenizer.from_pretrained(packaged_folder(name))


KINDS = {
    "gpt2": gpt2,
    "opt": opt,
    "llama": llama,
    "qwen": qwen,
    "smollm2": lambda: packaged("smollm2-135m-instruct"),
    "gemma": lambda: packaged("gemma-3-270m"),
}


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Any:
    return KINDS[request.param]()


def conversations(rows: Sequence[Any] = ROWS) -> list[Conversation]:
    return [conversation_of(row, f"rows:{i}") for i, row in enumerate(rows, 1)]


def chats() -> list[Conversation]:
    rows = [{"messages": [{"role": role, "content": text} for role, text in chat]} for chat in CHAT]
    return conversations(rows)


def by_trl(tokenizer: Any, rows: list[dict[str, Any]], folder: Path) -> list[Tokens]:
    """Return what TRL trains on: the ids, and where its labels are not -100."""
    import trl
    from datasets import Dataset
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=len(tokenizer), hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                         num_attention_heads=1)  # fmt: skip
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    options = trl.SFTConfig(
        output_dir=str(folder), completion_only_loss=True, max_length=None, report_to=[], use_cpu=True, bf16=False
    )
    trainer = trl.SFTTrainer(
        LlamaForCausalLM(config), options, train_dataset=Dataset.from_list(rows), processing_class=tokenizer
    )
    found = trainer.train_dataset
    return [Tokens(row["input_ids"], [label != -100 for label in row["labels"]]) for row in found]


@pytest.mark.filterwarnings("ignore")  # of TRL's own
def test_the_alpaca_prompt_is_what_trl_makes_of_prompt_and_completion(tokenizer: Any, tmp_path: Path) -> None:
    ours = [AlpacaFormat(tokenizer).tokens(one) for one in conversations()]
    texts = [AlpacaFormat(tokenizer)._text(one.asked) for one in conversations()]
    rows = [{"prompt": text, "completion": row["output"]} for text, row in zip(texts, ROWS, strict=True)]
    theirs = by_trl(tokenizer, rows, tmp_path)
    prompts = [AlpacaFormat(tokenizer).prompt(one.asked) for one in conversations()]
    # Elsewhere TRL warns that the model is asked otherwise at inference.
    same = [i for i, prompt in enumerate(prompts) if theirs[i].ids_T[: len(prompt)] == prompt]
    assert len(same) >= 2
    assert [ours[i] for i in same] == [theirs[i] for i in same]


@pytest.mark.filterwarnings("ignore")  # of TRL's own
def test_the_chat_template_is_what_trl_makes_of_messages(tokenizer: Any, tmp_path: Path) -> None:
    if not tokenizer.chat_template:
        tokenizer.chat_template = CHATML
    able = [one for one in chats() if "raise_exception" not in tokenizer.chat_template or one.turns[0].role == "user"]
    ours = []
    for one in able:
        ids_T, counts_T = ChatFormat(tokenizer).tokens(one, "last")
        ours.append(Tokens(ids_T, [counts > 0 for counts in counts_T]))
    messages = [[{"role": turn.role, "content": turn.text} for turn in one.turns] for one in able]
    rows = [{"prompt": these[:-1], "completion": these[-1:]} for these in messages]
    assert ours == by_trl(tokenizer, rows, tmp_path)


@pytest.mark.parametrize("form", [AlpacaFormat, ChatFormat])
def test_an_example_begins_with_what_a_model_is_asked(tokenizer: Any, form: type[Format]) -> None:
    if form is ChatFormat and not tokenizer.chat_template:
        tokenizer.chat_template = CHATML
    for one in conversations():
        prompt, (ids_T, counts_T) = form(tokenizer).prompt(one.asked), form(tokenizer).tokens(one)
        assert ids_T[: len(prompt)] == prompt
        assert counts_T == [False] * len(prompt) + [True] * (len(ids_T) - len(prompt))
        assert one.turns[-1].text.strip() in tokenizer.decode(ids_T[len(prompt) :])


def test_alpacas_texts_have_one_bos_and_one_eos(tokenizer: Any) -> None:
    begins = tokenizer("a").input_ids[0] == tokenizer.bos_token_id
    for one in conversations():
        ids_T = AlpacaFormat(tokenizer).tokens(one).ids_T
        ends = [tokenizer.bos_token_id] if begins else []
        special = [i for i in ids_T if i in {tokenizer.bos_token_id, tokenizer.eos_token_id}]
        assert special == [*ends, tokenizer.eos_token_id]
        assert ids_T[-1] == tokenizer.eos_token_id
        assert not begins or ids_T[0] == tokenizer.bos_token_id


def test_all_responses_or_the_last_carry_the_loss() -> None:
    tokenizer = qwen()
    ids_T, counts_T = ChatFormat(tokenizer).tokens(chats()[1])

    def counted(counts_T: list[bool]) -> str:
        return tokenizer.decode([i for i, counts in zip(ids_T, counts_T, strict=True) if counts])

    assert counted(counts_T) == "3<|im_end|>\n7<|im_end|>\n"
    last = ChatFormat(tokenizer).tokens(chats()[1], "last")
    assert last.ids_T == ids_T
    assert counted(last.counts_T) == "7<|im_end|>\n"


def test_a_template_that_writes_earlier_turns_otherwise_takes_the_last_response_alone() -> None:
    tokenizer = qwen()
    tokenizer.chat_template = FORGETFUL
    with pytest.raises(DataError, match=r"rows:2: response 1 would not follow"):
        ChatFormat(tokenizer).tokens(chats()[1])
    ids_T, counts_T = ChatFormat(tokenizer).tokens(chats()[1], "last")
    assert tokenizer.decode([i for i, counts in zip(ids_T, counts_T, strict=True) if counts]) == "7<|im_end|>"


def test_responses_are_shortened_and_counted_and_dropped_only_when_nothing_is_left() -> None:
    examples = [Tokens([1, 2, 3], [False, True, True]), Tokens([1, 2, 3, 4, 5], [False, False, True, True, True]),
                Tokens([1, 2, 3, 4, 5], [False, False, False, False, True])]  # fmt: skip
    counts = Counts()
    kept = [shortened(example, 4, counts) for example in examples]
    assert kept == [examples[0], Tokens([1, 2, 3, 4], [False, False, True, True]), Tokens([], [])]
    assert counts == Counts(whole=1, shortened=1, dropped=1, lost=1)


def test_three_forms_of_rows() -> None:
    turns = (Turn("user", "Hi."), Turn("assistant", "Hello!"))
    messages = [{"role": role, "content": text} for role, text in turns]
    rows: list[dict[str, Any]] = [
        {"messages": messages},
        {"prompt": "Hi.", "completion": "Hello!"},
        {"prompt": messages[:1], "completion": messages[1:]},
        {"instruction": "Hi.", "output": "Hello!"},
    ]
    assert {one.turns for one in conversations(rows)} == {turns}
    asked = instruction_of({"instruction": "Add.", "input": "1 and 2", "output": "unread"}, "row")
    assert (asked.turns, asked.input) == ((Turn("user", "Add."),), "1 and 2")


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"text": "a"}, r"rows:1: the row has no response; expected .*, and its fields are text\."),
        ({"messages": [{"role": "user", "content": "a"}]}, "has no response; its last message must be"),
        ({"messages": []}, "has no response"),
        (
            {"messages": [{"role": "tool", "content": "a"}]},
            r'message 1 of messages is .*"tool"',
        ),
        (
            {"messages": [{"role": "user", "content": None}]},
            r'message 1 of messages: "content" must be a text, got null',
        ),
        ({"instruction": "a", "input": 3, "output": "b"}, r'"input" must be a text, got 3'),
        ({"prompt": 1, "completion": "b"}, r'"prompt" must be a text, got 1'),
    ],
)
def test_rows_without_a_conversation_are_one_sentence(row: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        conversations([row])


def test_what_a_format_cannot_hold_is_one_sentence() -> None:
    with pytest.raises(DataError, match=r"rows:2: the Alpaca prompt takes one instruction .*; here is system, user, "):
        AlpacaFormat(gpt2()).tokens(chats()[1])
    with pytest.raises(ModelError, match=r"chat template.* Take the Alpaca prompt, or a chat model"):
        ChatFormat(gpt2()).tokens(chats()[0])
    with pytest.raises(
        DataError, match=r"rows:2: the chat template refuses the conversation \(only user and assistant\)"
    ):
        ChatFormat(llama()).tokens(chats()[1])
    no_eos = PreTrainedTokenizerFast(tokenizer_object=byte_level(eos="<|endoftext|>"))
    with pytest.raises(ModelError, match="has no EOS token, which ends responses"):
        AlpacaFormat(no_eos).tokens(conversations()[0])


def test_a_tokenizer_that_cannot_read_a_prompt_is_named() -> None:
    words = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"a": 0}, unk_token="?")), eos_token="a"
    )
    with pytest.raises(ModelError, match=r"cannot read the Alpaca prompt \(WordLevel error: Missing \[UNK\] token"):
        AlpacaFormat(words).tokens(conversations()[0])


# Conversations are read from every form and format; what has no response is refused by its line.

USER, ANSWER = {"role": "user", "content": "Say hi."}, {"role": "assistant", "content": "Hi."}
ASKS: list[dict[str, Any]] = [{"instruction": f"Say {i}.", "input": "", "output": f"It is {i}."} for i in range(120)]


def load(folder: Path, split: str = "train") -> Any:
    return load_conversations("own", split, data_dirs=[folder], offline=True)


@pytest.mark.parametrize("end", ["jsonl", "json", "parquet"])
def test_json_lines_json_and_parquet_are_the_same_data(end: str, tmp_path: Path) -> None:
    file = tmp_path / f"own.train.{end}"
    if end == "parquet":
        pq.write_table(pa.Table.from_pylist(ASKS), file)
    else:
        file.write_text(json.dumps(ASKS) if end == "json" else "\n".join(map(json.dumps, ASKS)))
    found = load(tmp_path)
    held = load(tmp_path, "validation")
    assert sorted(found.texts) + sorted(held.texts) != sorted(found.texts)
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "own.train.jsonl").write_text("\n".join(map(json.dumps, ASKS)))
    assert found.fingerprint == load(tmp_path / "lines").fingerprint


def test_messages_of_parquet_are_read(tmp_path: Path) -> None:
    rows = [{"messages": [{**USER, "content": f"Say {i}."}, ANSWER]} for i in range(60)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "own.train.parquet")
    found = load(tmp_path)
    assert found.conversation(0).turns[-1].text == "Hi."
    assert len(found) == 58


def test_the_responses_to_one_prompt_of_fifty_are_held_out(tmp_path: Path) -> None:
    """All responses to a prompt are on one side; the two parts are disjoint, and all of the data."""
    rows = [{**row, "output": f"{row['output']} {k}"} for row in ASKS for k in range(3)]
    (tmp_path / "own.train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    train, validation = load(tmp_path), load(tmp_path, "validation")
    assert (len(train), len(validation)) == (351, 9)
    prompts = [{data.conversation(i).turns[0].text for i in range(len(data))} for data in (train, validation)]
    assert prompts[0].isdisjoint(prompts[1])
    (tmp_path / "own.validation.jsonl").write_text(json.dumps(ASKS[0]))
    assert (len(load(tmp_path)), len(load(tmp_path, "validation"))) == (360, 1)


def test_blank_responses_are_left_out_and_counted(tmp_path: Path) -> None:
    (tmp_path / "own.train.jsonl").write_text("\n".join(map(json.dumps, [*ASKS, {**ASKS[0], "output": " \n"}])))
    train, validation = load(tmp_path), load(tmp_path, "validation")
    assert train.blank + validation.blank == 1
    assert len(train) + len(validation) == len(ASKS)


def test_one_prompt_alone_cannot_be_held_out(tmp_path: Path) -> None:
    (tmp_path / "own.train.jsonl").write_text(json.dumps(ASKS[0]))
    with pytest.raises(DataError, match="has 1 prompt; expected two at least"):
        load(tmp_path)


def test_sources() -> None:
    assert source_of("alpaca-gpt4").repo == "vicgalle/alpaca-gpt4"  # type: ignore[union-attr]
    assert source_of("owner/name:turns").repo == "owner/name"  # type: ignore[union-attr]
    assert source_of("responses") is None
    with pytest.raises(UnknownNameError, match="alpaca-gpt4"):
        load_conversations("alpaca-gpt5", "train", data_dirs=[], offline=True)


def weighed(folder: Path, weights: list[object]) -> Any:
    rows = [{"instruction": f"Say {i}.", "output": f"{i}", "weight": weight} for i, weight in enumerate(weights)]
    (folder / "own.train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return load_conversations("own", "train", data_dirs=[folder], offline=True, fields={WEIGHTS: "weight"})


def test_weights_are_part_of_the_data(tmp_path: Path) -> None:
    one, other = weighed(tmp_path, [1, 2.5, 3]), weighed(tmp_path, [1, 2.5, 4])
    assert len(one) == 2
    found = [one.conversation(i).numbers[WEIGHTS].value for i in range(len(one))]
    assert {1.0, 2.5, 3.0} > set(found)
    assert len({one.fingerprint, other.fingerprint, load(tmp_path).fingerprint}) == 3
    assert not load(tmp_path).numbers


def test_responses_have_numbers_of_their_own() -> None:
    """In a field of the row, or in the messages of the assistant."""
    turns = [("user", "A?"), ("assistant", "a"), ("user", "B?"), ("assistant", "b")]
    messages = [{"role": role, "content": text} for role, text in turns]
    row: dict[str, Any] = {"messages": messages, "w": [2, [0, 1.5]], "b": -3}
    fields = {WEIGHTS: "w", "b": "b"}
    numbers = conversation_of(row, "f:1", fields=fields).numbers
    assert {name: column.value for name, column in numbers.items()} == {WEIGHTS: [2.0, [0.0, 1.5]], "b": -3.0}
    messages[1]["w"], messages[3]["w"] = 0.5, 2  # type: ignore[assignment]
    assert conversation_of({"messages": messages}, "f:1", fields={WEIGHTS: "w"}).numbers[WEIGHTS].value == [0.5, 2.0]
    for wrong in ([1], [1, 2, 3]):
        with pytest.raises(DataError, match=rf'f:1: "w" has {len(wrong)} items; expected 2, one for each response'):
            conversation_of({**row, "w": wrong}, "f:1", fields=fields)
    for wrong in ([1, -1], [1, [2, -1]], [1, [2, float("nan")]], [1, [[2]]], "1", [1, True]):
        with pytest.raises(DataError, match=r'f:1: "w" has .*; expected a number from 0 to 1,000,000'):
            conversation_of({**row, "w": wrong}, "f:1", fields=fields)


@pytest.mark.parametrize("weight", ["2", -1, True, None, float("nan")])
def test_a_weight_is_a_number_of_at_least_zero(tmp_path: Path, weight: object) -> None:
    with pytest.raises(DataError, match='jsonl:2: "weight" has '):
        weighed(tmp_path, [1, weight, 1])


ASKED = [{"instruction": f"Say {i}.", "output": str(i)} for i in range(4)]
TURNS = [{"turns": [{**USER, "content": f"Say {i}."}, {**ANSWER, "content": f"{i}"}]} for i in range(4)]


@pytest.mark.parametrize(
    ("name", "file", "branch", "rows"),
    [
        ("org/set", "data/train-00000-of-00001.parquet", "main", ASKED),
        ("org/set/easy@v1", "easy/train.jsonl", "v1", ASKED),
        ("org/set:turns", "train.jsonl", "main", TURNS),
        ("org/set", "train.csv", "main", ASKED),
        ("org/set", "default/train/0000.parquet", "refs/convert/parquet", ASKED),
    ],
)
def test_a_data_set_of_the_hub_by_its_id(
    name: str, file: str, branch: str, rows: list[Any], publish: Callable[..., Path]
) -> None:
    """From a cache as a download leaves it: its own files, or those that the hub converted."""
    folder = publish("org/set", {file: rows}, branch)
    train, held_out = (load_conversations(name, split, data_dirs=[], offline=True) for split in ("train", "validation"))
    assert train.origin.startswith(f"hub: org/set@{folder.name}, without")
    said = [data.conversation(i).turns[-1].text for data in (train, held_out) for i in range(len(data))]
    assert sorted(said) == ["0", "1", "2", "3"]


def test_a_validation_file_of_the_hub_is_the_validation_split(publish: Callable[..., Path]) -> None:
    folder = publish("org/set", {"train.json": json.dumps(ASKS[:6]), "dev.json": json.dumps(ASKS[6:8])})
    train, validation = (
        load_conversations("org/set", split, data_dirs=[], offline=True) for split in ("train", "validation")
    )
    assert (len(train), len(validation)) == (6, 2)
    assert train.origin == validation.origin == f"hub: org/set@{folder.name}"
    assert validation.where[0] == f"hub: org/set@{folder.name}, dev.json, row 1"
