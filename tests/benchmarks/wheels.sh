#!/usr/bin/env bash
# Fill .wheels/ (ignored by git) with what a GPU machine without a network may lack, for gpu.sh to install there:
# the peers, and emobench itself, whose metadata names the objectives (its code is read from the checkout).
#
#     tests/benchmarks/wheels.sh          PYTHON=python3 by default
#
# Run it again after a change of pyproject.toml. torch, triton, transformers, accelerate, peft, pytest with its plugins
# timeout and xdist, hypothesis, pluggy, typer and rich are expected on the machine.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
rm -rf .wheels
mkdir .wheels
# --no-deps: what these packages need is on the machine.
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest .wheels \
    liger-kernel==0.8.5 EMOLoss==0.0.3 cut-cross-entropy==25.1.1
# What a run with MAUVE and ROUGE needs, for Python 3.12.
platforms=()
for name in manylinux_2_28 manylinux_2_27 manylinux_2_17 manylinux2014; do platforms+=(--platform "${name}_x86_64"); done
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest .wheels \
    --python-version 3.12 --implementation cp "${platforms[@]}" faiss-cpu==1.15.1 mauve-text==0.4.0 nltk==3.10.4
"$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir .wheels rouge-score==0.1.2 .
ls -l .wheels
