"""AlpacaEval's annotations to its metrics: win rate, standard error, and the win rate at equal lengths.

An annotation is a judged pair, as the package alpaca-eval writes it: `output_1` is the reference's, `output_2` the
model's, and `preference` 1 for the first, 2 for the second, 0 or 1.5 for a tie, or a number between 1 and 2. Other
numbers are no preferences; the package drops them, and so does this module.

The length-controlled win rate (Dubois et al., 2024) is that of a logistic regression of the preferences on the
difference of lengths, at a difference of 0; the package computes it. Its regression also has the difficulty of each of
AlpacaEval's 805 instructions, which are known by their texts. It is regularized by the judgements of two baselines that
were asked to be brief and to be long. Difficulties and judgements are in its file df_gamed.csv on the hub.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from emobench.core.errors import DataError, Missing
from emobench.core.extras import require
from emobench.core.reading import is_file
from emobench.data.rows import file_rows, hub_files, shown
from emobench.kinds.instruct.judged import win_rate

GAMED, REPO = "df_gamed.csv", "tatsu-lab/alpaca_eval"
INSTRUCTIONS = 805
Annotations = Sequence[Mapping[str, Any]]
FIELDS = {"output_1": (str,), "output_2": (str,), "preference": (int, float, type(None))}


@dataclass(frozen=True, kw_only=True)
class AnnotatedRates:
    """The metrics of a model's annotations; rates and errors are fractions."""

    model: str
    count: int
    """Annotations with a preference."""
    win_rate: float
    standard_error: float
    length_controlled: float | None
    """As AlpacaEval publishes it; None without df_gamed.csv."""
    missing: str = ""
    """Why `length_controlled` is missing."""


def read_annotations(path: Path) -> list[dict[str, Any]]:
    """Read a file of annotations of one model: a JSON list, or one object a line.

    Raises DataError for a row that is no annotation, for an instruction that is there twice, and for several models.
    """
    rows = list(file_rows(path))
    if len(rows) < 2:
        raise DataError(f"{path} holds {len(rows)} annotations; expected two or more.")
    first = {}
    models = {}
    for where, row in rows:
        for name, types in FIELDS.items():
            if name not in row or type(row[name]) not in types:
                raise DataError(
                    f"{where}: expected {', '.join(FIELDS)} of AlpacaEval's annotations, two texts and a number from 1 "
                    f"to 2, 0 for a tie, or null; `{name}` is {shown(row.get(name, 'missing'))}."
                )
        instruction = row.get("instruction")
        if isinstance(instruction, str) and first.setdefault(instruction, where) != where:
            raise DataError(f"{where}: this instruction is judged in {first[instruction]}, too; keep one of them.")
        for column in ("generator_2", "generator_1"):
            name = str(row.get(column, ""))
            if models.setdefault(column, name) != name:
                raise DataError(f"{path}: `{column}` names {models[column]} and {name}; give a file for each model.")
    return [row for _, row in rows]


def gamed_file(data_dirs: Sequence[Path], *, offline: bool) -> Path:
    """Return df_gamed.csv of the first data folder that has it, else of the hub. Raises DataError if neither has it."""
    for folder in data_dirs:
        if is_file(folder / GAMED):
            return folder / GAMED
    try:
        (file,), _ = hub_files(REPO, "main", GAMED, offline=offline)
    except (DataError, Missing) as error:
        raise DataError(
            f"The length-controlled win rate needs {GAMED} of the data set {REPO} on the hub, which is not on "
            f"this machine ({error}) Put it in DIR/{GAMED} and give --data-dir DIR."
        ) from None
    return file


def rates(rows: Annotations, data_dirs: Sequence[Path] = (), *, offline: bool) -> AnnotatedRates:
    """Return the metrics of annotations. Raises DataError where no two have a preference."""
    require("alpaca_eval")
    judged = [preference for preference in map(preference_of, rows) if preference is not None]
    if len(judged) < 2:
        raise DataError(f"{len(judged)} of {len(rows)} annotations have a preference; expected two or more.")
    rate, error = win_rate(judged)
    published = None
    missing = ""
    try:
        published = length_controlled(in_order(rows), gamed_file(data_dirs, offline=offline))
    except DataError as problem:
        missing = str(problem)
    return AnnotatedRates(
        model=str(rows[0].get("generator_2", "")),
        count=len(judged),
        win_rate=rate,
        standard_error=error,
        length_controlled=published,
        missing=missing,
    )


def in_order(rows: Annotations) -> list[Mapping[str, Any]]:
    """Return the annotations of AlpacaEval's 805 instructions in their order, whose difficulty is known by it.

    805 rows without any of these instructions, such as translated ones, are taken to be in order. Raises DataError for
    other rows.
    """
    by_place = {place_of(str(row.get("instruction", ""))): row for row in rows}
    if len(rows) == INSTRUCTIONS and by_place.keys() == {None}:
        return list(rows)
    if len(rows) != INSTRUCTIONS or by_place.keys() != set(range(INSTRUCTIONS)):
        known = len(by_place.keys() - {None})
        raise DataError(
            f"The length-controlled win rate is of AlpacaEval's {INSTRUCTIONS} instructions, whose difficulty is "
            f"known; here are {len(rows)} annotations, of {known} of these instructions."
        )
    return [by_place[place] for place in range(INSTRUCTIONS)]


def preference_of(row: Mapping[str, Any]) -> float | None:
    """Return how much the model's response is preferred, from 0 to 1; None for no number and one that is none."""
    value = row["preference"]
    if value == 0:
        return 0.5
    return float(value) - 1 if value is not None and 1 <= value <= 2 else None


def length_controlled(rows: Annotations, gamed: Path) -> float | None:
    """Return the win rate at equal lengths, a fraction, of rows in AlpacaEval's order (`in_order`).

    None if all pairs differ by the same length. `gamed` is df_gamed.csv, which the package would download at each call.
    """
    judged = []
    longer = set()
    for row in rows:
        preference = preference_of(row)
        annotation = {
            "generator_1": "reference",
            "generator_2": "model",
            "output_1": row["output_1"],
            "output_2": row["output_2"],
            "preference": None if preference is None else 1 + preference,
        }
        judged.append(annotation)
        longer.add(len(row["output_1"]) - len(row["output_2"]))
    if len(longer) == 1:
        return None
    with warnings.catch_warnings(action="ignore"):  # of pkg_resources, and of scikit-learn about the fit's options
        from alpaca_eval.metrics import glm_winrate as package

        with patch.object(package, "hf_hub_download", return_value=str(gamed)):
            metrics = package.get_length_controlled_winrate(
                judged, save_weights_dir=None, is_warn_extreme_changes=False
            )
    return float(metrics["length_controlled_winrate"]) / 100


def place_of(instruction: str) -> int | None:
    """Return the place of an instruction in AlpacaEval, from 0 to 804; None for another text."""
    return PLACES.get(hashlib.sha256(instruction.encode("utf-8", "surrogatepass")).hexdigest()[:8])


_ORDER = """
f0aa9c85 08a21614 00cb4d4f 68de3b36 30b4ceed f6389989 450317a7 d4e70437 460fd743 ee0fd014 36703d1a dab439a1 130f2b8b
a4fc9895 917f8734 a681d3ea a5323aac 887bb54c 70cef834 fce84dd8 c62114aa b5de5633 ef7b14c4 2fbcc1d3 f6aeef2c 961f3d59
a40abf0b b506a51e ad3898f3 cd6eaa23 b0ebeb46 1a6e8a73 025db33e 8132c125 4956959e 5d62e1af 3c04b22c e3e1bee6 1ad01e22
c362d74a 6bf70788 ad45ffd4 4430fd22 cb41d0f4 04bf142b 7c7543b8 3d9f9bdb d834174a 165a2a02 4848cfed 39a7cbee f3bf5e5a
b5e39829 f90ca524 25eaed00 f8175708 a44c5209 3dbdd628 fa002925 00829ae5 7843353c 49b18a0d ffeb0771 987f667e 94202618
875e58cd c73d8151 a54bf03a 65cb5c10 af1386c9 767e6e33 c69636c8 815ee0d8 589bab7a a2941d4f 8ca91d01 ea1c5dcd dd637ddc
df5624a3 7357c007 c010e444 8ae9d6ae 2fea41aa 28d9cc42 c04565cd e7c44489 2fe753a9 9ab2207d 3802273a 5431a1f3 b4a848ec
fb25675f c9ecdbb6 25ed7a45 5686c35d ab396469 e1c440e9 d70b3c3e b9b91135 b10dbec9 4dd9df0d ac586641 756a8bfc 1d24ad4a
bb873b6a 3e525a5d 95e3b709 d07276ff a2cbacf6 1b28a4cd 2d97fceb 51bb3423 d780a2d1 67033cdd 0e301991 41730f7b db87dd8f
f925e8e0 32d998a9 6cc1e9dc a9d961c2 6ee2edea 3f3f6f50 68b189e2 ae634a30 bcf8b287 d2dcf6d5 e4fdd651 72c4c24e 8f9d8a15
1cf2c166 32a3f57e dc7c553e 0a44a206 a54814a0 bd759b91 ca8adbcf a6d06ce0 66947390 826d7c75 4a2d3ce0 0ca14aeb 0dd25a49
0d42a370 201e5d0d 84b26972 ef825862 1e3273e5 cfcb7892 8311de7d f65bf6fd d33c234f 24b7b462 82f6d5ec ae48c6c2 089d54e7
04172fbb a23a4b83 606cde14 499359e9 82166e63 7203fbf8 99077237 989d43e3 b317a786 fe89f4e9 f06eb66c bbf4629b af982ae3
e871181b 2d2413d7 cb5ed364 9fdeee31 204cc01f 8b24eff9 c3666962 070ed8e0 98f5bc7b 244088f2 489c402b cec5e007 041401d2
6424907f 26b815ae 6b7ab25f 850eae26 a3d3ad01 dcaa0dc0 a298daf8 facc1f53 cce26d31 16fbce50 bdaf7518 22e4dd71 fcda8000
8423aa64 0c409dd2 0d500d26 87571575 4a2a44c7 550e61fa 624237fb 4d24c6c9 7db24326 036f4ef4 82f84b0c ce0a5fd8 3d2252e4
05935731 60f6d6e7 ddc7c413 867112d6 7c0ee67e 697e1d0d 55561d23 89ebdfd2 11a3be32 e0a883ff 290d665d a16b5184 fe9a2a3d
5850c683 19b3e8b4 5479b0da 26f12546 4e462cc9 dcb4281e 67f23359 1c5ba6c7 06911328 56ca65c4 37c29da6 b39bf1f9 798ee833
a3e4d00a 966f83a0 4edf63ef ebc5e2db 311ee257 acbd26e9 4afc5263 4d3a4698 195d100f 36bcd614 d235fa5b b5ab1bbf 6b0ef4d9
a46b83a3 9d9a7d42 98f653dd a95c79ec a9a87986 f149a501 843e9858 c0d9f4b3 4057940c 41ec6bda e993bdd4 65bb2ff2 6c28b7c8
0a3d7a71 4a71fde8 7a509554 41406b0b b93583e8 17483199 f986f6c8 7ce974f5 e4c261a4 7c22d928 e9edb9b1 7c2da88a 9cc0cef9
6c4015cb 405849dc f3f19a85 f47aa524 67cbcc80 10d48aa0 7442db19 a44d50ce 31f2ab16 4ac3f665 1c1b54af cce50fa9 ada3cf12
7019966d 2ab3d9ea 4bd8bd3e 6da7d14f a7e5741a 03f1f1a5 44aa9f72 34e1dd41 196676d3 0da42d8e 4be47919 f7f777aa 9d1fa21e
c0c38252 99619b0f 41ae7def 15761e00 79fc3a93 09faba9a 3f208290 041e767a 8c3c6092 f97693be 596f65ac f0ec9d98 8f483e18
db20d51d 6ee3a035 09ce621d 021d6ff9 3fef19c4 94ad2130 d3916ad9 6ef514b3 a740e475 3c09a6c5 8c42fab2 eb794a30 c2108506
bb33171e 243fed7f e9d2b299 7ebe3dfc 9946127b e79074c6 bff2923b a3fafc22 dde3d08c b0082e9a 6f1eb620 15d952f9 a4edbb77
325097b6 a93b27ff 53d44936 364ce7fc 8948f9a2 fa0128d7 6feda374 be7ab56a c4a06d20 177b6f8d e17c2333 0f8baf0c e8fe8682
441d0d84 70b9e6c2 5eab145e f9d5081c 23832350 2e158618 091796cb 9c89043c e7f97966 771746d0 6ae141fb 29daecc1 a38e8d7e
e9d782b0 5d249a7f 7c800c56 5dac3b61 284405e9 aae19bb7 bad9ea43 b03e6a6b 1fea5817 9510fcf0 6922d323 bb740e6e 492971f7
444adac0 8b684495 65482fe1 ba9bfee6 d3f6e4c3 3dbdcf3c dbe1b0a0 7b70b982 6fead41d 72b9877a 7e4929a8 40ff1d1b 28058130
47ed52a3 50eb30f0 6401e610 17cd9682 a1afe9f3 490d1df3 07ea6334 b00c275b 8ec26c3d 94a64ea5 f883bfba 7248a57d b89ca9af
318f903a 4acc6516 9bdae274 4aa9405d 42cc6d6c 66635074 de0a69a2 45f471ed 964ab15b 6a70492c fa4deae2 9d3dfe2f 3370891c
67a04476 1a9776b0 b24f70e5 8539e796 403d45c2 5e0cb2a7 f07dcfd1 0b72144b 14288aab 9569ad06 e528d64a a65a3322 23c5e890
00b8773d b59957ae 41b12a8e ae7c535f 01a56f2b b95ce82a 0ec15c20 414a32a4 fed7d150 4372f3b8 954163cf 649017aa f03528d2
b1ac71f1 7a1661d3 81402c33 804b9597 e9cde3ee 5bcb4d08 c6626f3d 50c22117 f9cb6fbd 8b6d3b6e fa5066a7 4021ecc5 c4b134b9
5a09910c 4b289877 54b4e3e2 83619179 21e0eaa6 76faf1fb 98d9a7ba f0cc4866 51b8f3a5 311c3867 2ce18d12 4a2dc1a8 68502fa5
d4cc9e7c df0d8157 bbf7246c 3e197ab3 2f79fc19 7b2cc82a 2571004d bd68243c 92c8be1d 5bc8eaab 2aa84da2 c109fdfe 22b55087
4121b9b4 15aa0c6b b3324ecb dc490bac 6083c391 2fb461fa 66034209 28ffc8ad 63002729 da266b76 3e73bdfd 311e4f7d 47d4a769
d20c980a 70bfb6ba b925c2c8 1080bd6c 90239a4b 053a27dc ff3a8676 75a727e2 0919a403 99eb2574 04be27d6 172c61e6 f520600c
7476916d 0895d4c1 50b4dcc6 91d24642 ff5384ef 1fa49856 5f76a687 2b88c17d 7d0f0b10 c7cf6c4a d26539a7 4c96dfa6 910f58d0
d9e8bb66 83661459 b8ad6e7c 2fdfbe7f c484ac24 d340d629 7626476b e49fb7d1 b19d222b c6dd4dd8 ec083771 fa5f697e 6d02e545
aa5ad9a2 39ad234e 4145b3b5 90d313eb a5f5a365 891d6f25 2fcae941 8233a61c a6e940d8 ac1ac7f8 5681f64e 79ee69c7 187b43b4
026dea84 2fc0b53e d0c6b267 96a8e28c a226f463 da4293c0 fd39349b 0a582cff 9920eaae bcd93122 e6882459 d34022f0 d122b29a
9a3537bc ff30ac52 da647e9d 0d8fbc1c 3d386714 3e843bf1 cec2f946 455d5ad4 b2bc5ef9 d88518e3 96a122c2 7e09f9c5 cd50a91a
a677b909 49b05ff9 6162e8d8 72c6e617 35cf7f78 d54acbe7 39b1f358 698bef09 d794932e 93990a16 7c17a9cb 8754c07d 14688075
c25338aa 1fe9b4bb defde1c2 779e4ca2 87873d06 ff183ae7 03a72877 74123372 edc77522 28a38362 71608046 925cf0bc a1174946
03e63a9a 39adc148 80605982 a73394b7 005b4f1f ab98ac81 0cb01c15 e420ab8a 3d1613ab a46b68ae 84320316 ef0175c5 60cd9ab3
4501a658 7fa3d8d2 30f7effc d941c8ba f0424655 e6c65316 a0286546 eeec374f 2e46b736 79f8cc9c 6ba78549 256805de 28f10b93
85a8ac03 2bf1fd30 bd2baa2c abbb920b 682c91ad 3a24f030 8ebac14a b1ae7872 1e7a6ece f27e37ce 9209a497 8ec4d1fc 665c6541
2c7714c3 04dc0261 5ebb564e 49cb3d5f 8365da93 639817e9 939f3a85 b755bfa5 37467c6e d4207a1a 9e30ef8a 8bd867c8 1596163d
26945301 35c9f5ac 76b6fe55 1bb6f897 127aff5f 6d5845e0 2cbf443e 04f7b21c c71ef481 717d4257 50807af6 fcbc36cd ab15c7c0
2729f5b7 c4a8a82b f98c1c00 de7d7863 0ce7251f 393d3b16 f2508429 8da7c166 1325a4b8 bee5ba94 c8d30eab f4ac4480 ed9e4f1f
1facef27 a161bafb 1d2e0e74 48607515 3b707268 39ce6170 14bb063c 9c84e82e 4a588bdc 05c2603e 4bd74039 61b2e6d5 46e47065
acab837a 7d5afca8 e2c11917 97768e18 5b542421 e3dacd49 da361805 f66e61a0 4ba20e78 16f0722b f24d1c64 7c58ebba 5f2817f1
31b7a1fe 84aad61e 1e663531 841466c8 10ea100c d069197d 1fe0bdfd df51ff90 f7489280 c8c9efa9 92076690 58a653fe 57f2473c
1a0aefa9 ce96f269 bb46f150 9829ec11 f72f74b8 14396843 1c1df309 b36a66db dd7483a0 eaa54f22 55e0adbc 8d234b2a 62aba60f
0302a4f0 b146be56 c0e8a768 13118228 398ecfc2 13078929 b49b1e51 cfafae8a 16c7eea9 8c3068d3 e3394da3 c214c2c2 145670ee
1b3cc220 ec4ccb60 1de0df65 cec81912 b7ec83e3 985d197d 9e129d71 eadb3fc9 bf1261f9 800fa6b2 f86f086f 6b0c684c e6069551
dfaf8eef 93f5e0c5 da2aeb4d b8697d86 e401c099 91fa4e6c b7765bb0 98ee7776 6747d081 13b164d6 248e0630 2c12ce55 16fb9ebc
a53173fa a68e4eb5 e74184b8 9e2ca9e8 13417583 f78ffd2e 71c182a9 24a94203 ef7c43c9 8d0c0a99 2420ffb5 4b9c6346 54ae5826
61851f74 630b6be6 89e59555 45de2eb5 005461fd 6db8664f afbb35d6 194cd48a 4749f4f1 6156799f a5490ba1 9672cee9 9341a2e4
eab11ce9 78e02ad0 b967b4f2 4827f45f 24257ffc 99fb27f8 9d5e6478 27bc6c9f ae0703a9 eaf87736 baf4b5d6 f89409c4
"""
"""The 805 instructions of AlpacaEval in their order: the first 8 hex digits of the sha256 of each text."""
PLACES = {digest: place for place, digest in enumerate(_ORDER.split())}
