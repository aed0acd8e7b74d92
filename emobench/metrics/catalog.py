"""What the metrics of entries are called and mean: the names that the page, the terminal and `emobench metrics` show.

An entry names a metric "<task>/<name>"; here each name has a title in words, a definition in one or two sentences, a
source, a unit and a direction. A name that is not here (a package's, or of a task of lm-evaluation-harness) keeps its
own words.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

VERSUS = "_vs_"
"""Stands between a metric and the rival that it is against: "autoj_win_rate_vs_llama2-7b-chat"."""

RANGES = {
    "fraction": "0 to 100 %",
    "perplexity": "1 or more",
    "nats": "0 or more",
    "bits per byte": "0 or more",
    "loss": "0 or more",
    "tokens": "0 or more",
    "grade": "the judge's scale",
    "cosine": "-1 to 1",
}
"""The values that a metric of a unit can have."""


@dataclass(frozen=True, kw_only=True)
class MetricInfo:
    """What a metric is. `definition` and `source` are "" where nothing is known but the name."""

    name: str
    """As in entries: "ppl_test"."""
    title: str
    """In words, short enough for the heading of a column: "Test perplexity"."""
    definition: str = ""
    source: str = ""
    higher_is_better: bool | None = None
    """None: neither way is better, or it is not known."""
    unit: str = ""
    """As in entries: "fraction", "perplexity", "nats". "loss": that of the task's scores. "" is not known."""

    @property
    def range(self) -> str:
        """The values that the metric can have, as they are shown; "" where the unit is not known."""
        return RANGES.get(self.unit, "")


def describe(name: str) -> MetricInfo:
    """Return what is known of a metric; of an unknown one its name, with spaces for underscores, as the title."""
    base, _, rival = name.partition(VERSUS)
    if known := CATALOG.get(base):
        return replace(known, name=name, title=f"{known.title} vs {rival}") if rival else known
    return MetricInfo(name=name, title=name.replace("_", " ").strip() or name)


def _ngrams(n: int) -> str:
    return "words" if n == 1 else f"{n}-grams"


_ROUGE = "Lin, 2004"
_SIMCTG = "Su et al., NeurIPS 2022"
_EMO = "Ren, Wu and Zhu, ICLR 2024"
_MAUVE = "Pillutla et al., NeurIPS 2021"

CATALOG: dict[str, MetricInfo] = {
    info.name: info
    for info in (
        MetricInfo(
            name="ppl_test",
            higher_is_better=False,
            unit="perplexity",
            title="Test perplexity",
            definition="The exponential of the model's mean negative log-likelihood, in nats per token, of the test "
            "texts. A model that misses what the texts say has a high one.",
        ),
        MetricInfo(
            name="ppl",
            higher_is_better=False,
            unit="perplexity",
            title="Perplexity",
            definition="The exponential of the model's mean negative log-likelihood, in nats per token.",
        ),
        MetricInfo(
            name="ppl_oracle",
            higher_is_better=False,
            unit="perplexity",
            title="Oracle perplexity",
            definition="The perplexity of the model's own texts under the true distribution, or under a stronger "
            "model in its place. A model that writes what the oracle would not has a high one.",
            source=_EMO,
        ),
        MetricInfo(
            name="mauve",
            higher_is_better=True,
            unit="fraction",
            title="MAUVE",
            definition="How close the distribution of generated texts is to that of human texts: the area under the "
            "divergence curve of their quantized features. 100 % means that they cannot be told apart.",
            source=_MAUVE,
        ),
        MetricInfo(
            name="mauve_star",
            higher_is_better=True,
            unit="fraction",
            title="MAUVE*",
            definition="MAUVE with smoothed estimates of the two distributions, which depends less on the number of "
            "texts.",
            source="Pillutla et al., JMLR 2023",
        ),
        *(
            MetricInfo(
                name=f"rouge{n}",
                higher_is_better=True,
                unit="fraction",
                title=f"ROUGE-{n}",
                definition=f"The overlap (F1) of {_ngrams(n)} of a generated text with the human text.",
                source=_ROUGE,
            )
            for n in (1, 2)
        ),
        MetricInfo(
            name="rougeL",
            higher_is_better=True,
            unit="fraction",
            title="ROUGE-L",
            definition="The F1 of the longest common subsequence of words of a generated text and the human text.",
            source=_ROUGE,
        ),
        MetricInfo(
            name="entropy",
            higher_is_better=None,
            unit="nats",
            title="Entropy",
            definition="The mean entropy of the model's next-token distribution on the test texts, in nats. It says "
            "how sure the model is; neither way is better.",
        ),
        MetricInfo(
            name="target_entropy",
            higher_is_better=None,
            unit="nats",
            title="Target entropy",
            definition="The mean entropy of the target's next-token distribution on the test texts, in nats.",
        ),
        MetricInfo(
            name="forward_cross_entropy",
            higher_is_better=False,
            unit="nats",
            title="Forward cross-entropy",
            definition="-sum P log Q in nats per token, of the data's distribution P and the model's Q. It punishes a "
            "model that gives what the data holds too little probability (recall).",
            source=_EMO,
        ),
        MetricInfo(
            name="reverse_cross_entropy",
            higher_is_better=False,
            unit="nats",
            title="Reverse cross-entropy",
            definition="-sum Q log P in nats per token, of the model's distribution Q and the data's P. It punishes a "
            "model that gives probability to what the data does not hold (precision).",
            source=_EMO,
        ),
        MetricInfo(
            name="forward_kl",
            higher_is_better=False,
            unit="nats",
            title="Forward KL",
            definition="sum P log(P / Q) in nats per token: the forward cross-entropy without the data's own entropy.",
        ),
        MetricInfo(
            name="reverse_kl",
            higher_is_better=False,
            unit="nats",
            title="Reverse KL",
            definition="sum Q log(Q / P) in nats per token: the reverse cross-entropy without the model's own entropy.",
        ),
        MetricInfo(
            name="total_variation",
            higher_is_better=False,
            unit="fraction",
            title="Total variation",
            definition="Half the sum of |P - Q| over the vocabulary, the mean over positions: the probability that "
            "the model puts in another place than the data does.",
        ),
        *(
            MetricInfo(
                name=f"rep_{n}",
                higher_is_better=False,
                unit="fraction",
                title=f"Repeated {n}-grams",
                definition=f"The share of a text's {n}-grams that stand in it before.",
                source=_SIMCTG,
            )
            for n in (2, 3, 4)
        ),
        MetricInfo(
            name="diversity",
            higher_is_better=True,
            unit="fraction",
            title="Diversity",
            definition="The product of 1 - rep-n for n = 2, 3 and 4: low where texts repeat themselves.",
            source=_SIMCTG,
        ),
        *(
            MetricInfo(
                name=f"distinct_{n}",
                higher_is_better=True,
                unit="fraction",
                title=f"Distinct {_ngrams(n)}",
                definition=f"Different {_ngrams(n)} of all texts of a sampling run, divided by their words. It falls "
                "with the number of texts.",
                source="Li et al., NAACL 2016",
            )
            for n in (1, 2, 3)
        ),
        MetricInfo(
            name="self_bleu",
            higher_is_better=False,
            unit="fraction",
            title="Self-BLEU",
            definition="The mean BLEU-4 of each text with all others as its references: how alike the texts are.",
            source="Zhu et al., SIGIR 2018",
        ),
        MetricInfo(
            name="coherence",
            higher_is_better=True,
            unit="cosine",
            title="Coherence",
            definition="The cosine of the sentence embeddings of a prefix and of its continuation.",
            source=_SIMCTG,
        ),
        MetricInfo(
            name="accuracy",
            higher_is_better=True,
            unit="fraction",
            title="Accuracy",
            definition="The share of examples that the model answers right.",
        ),
        MetricInfo(
            name="group_accuracy",
            higher_is_better=True,
            unit="fraction",
            title="Mean accuracy of groups",
            definition="The mean over groups of examples, such as subjects, of their accuracy.",
        ),
        MetricInfo(
            name="macro_f1",
            higher_is_better=True,
            unit="fraction",
            title="Macro F1",
            definition="The mean over classes of F1, the harmonic mean of precision and recall.",
        ),
        MetricInfo(
            name="margin",
            higher_is_better=None,
            unit="loss",
            title="Margin",
            definition="The second lowest loss of an example's answers minus the lowest one: how far the answer is "
            "from another one. Neither way is better.",
        ),
        MetricInfo(
            name="ece",
            higher_is_better=False,
            unit="fraction",
            title="Calibration error",
            definition="The mean distance of confidence and accuracy over 15 bins of confidence.",
            source="Guo et al., ICML 2017",
        ),
        MetricInfo(
            name="alpaca_eval_win_rate",
            higher_is_better=True,
            unit="fraction",
            title="AlpacaEval win rate",
            definition="The share of instructions on which a judge prefers the model's answer to the reference's.",
            source="Li et al., 2023",
        ),
        MetricInfo(
            name="autoj_win_rate",
            higher_is_better=True,
            unit="fraction",
            title="Auto-J win rate",
            definition="The share of instructions on which the judge Auto-J prefers the model's answer to a rival's.",
            source="Li et al., ICLR 2024",
        ),
        MetricInfo(
            name="win_rate",
            higher_is_better=True,
            unit="fraction",
            title="Win rate",
            definition="The share of instructions on which a judge prefers the model's response to the reference's, in "
            "both orders; a tie counts half.",
            source="Li et al., 2023",
        ),
        MetricInfo(
            name="grade",
            higher_is_better=True,
            unit="grade",
            title="Grade",
            definition="The mean grade that a judge gives the model's responses.",
            source="Zheng et al., NeurIPS 2023",
        ),
        MetricInfo(
            name="position_bias",
            unit="fraction",
            title="First place wins",
            definition="How often a judge prefers the response that it reads first: 50 % without a bias of position.",
        ),
        MetricInfo(
            name="order_agreement",
            unit="fraction",
            title="Agreement of orders",
            definition="The share of pairs of responses on which a judge gives the same verdict in both orders.",
        ),
        MetricInfo(
            name="length_bias",
            unit="fraction",
            title="Longer response wins",
            definition="The share of decided pairs of responses in which a judge prefers the longer one.",
        ),
        MetricInfo(
            name="parse_failures",
            unit="fraction",
            title="Replies without verdict",
            definition="The share of requests to a judge whose reply has no verdict, or that were refused.",
        ),
        MetricInfo(
            name="ended",
            unit="fraction",
            title="Ended responses",
            definition="The share of responses that the model ended by itself, before the largest number of tokens.",
        ),
        MetricInfo(
            name="response_tokens",
            unit="tokens",
            title="Response length",
            definition="The mean number of tokens of a response, by the model's own tokenizer.",
        ),
        # Of lm-evaluation-harness.
        MetricInfo(
            name="acc",
            higher_is_better=True,
            unit="fraction",
            title="Accuracy",
            definition="The share of examples whose most likely choice is the right one.",
            source="lm-evaluation-harness",
        ),
        MetricInfo(
            name="acc_norm",
            higher_is_better=True,
            unit="fraction",
            title="Normalized accuracy",
            definition="The share of examples whose most likely choice by byte of its text is the right one.",
            source="lm-evaluation-harness",
        ),
        MetricInfo(
            name="exact_match",
            higher_is_better=True,
            unit="fraction",
            title="Exact match",
            definition="The share of answers that equal the right one after the task's own clean-up.",
            source="lm-evaluation-harness",
        ),
        MetricInfo(
            name="word_perplexity",
            higher_is_better=False,
            unit="perplexity",
            title="Perplexity per word",
            definition="The exponential of the negative log-likelihood of the texts divided by their words.",
            source="lm-evaluation-harness",
        ),
        MetricInfo(
            name="byte_perplexity",
            higher_is_better=False,
            unit="perplexity",
            title="Perplexity per byte",
            definition="The exponential of the negative log-likelihood of the texts divided by their bytes.",
            source="lm-evaluation-harness",
        ),
        MetricInfo(
            name="bits_per_byte",
            higher_is_better=False,
            unit="bits per byte",
            title="Bits per byte",
            definition="The negative log-likelihood of the texts in bits, divided by their bytes.",
            source="lm-evaluation-harness",
        ),
    )
}
