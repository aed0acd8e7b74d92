#!/usr/bin/env bash
# Everything that needs a GPU, in one command and under 10 minutes: the kernels' tests, compiled, every test marked
# `gpu`, the linear loss, a whole training step, the scoring of prompts with shots, generation, and the rates of the
# kernels. Writes JSON, the tests' reports and what it printed under $OUT, or else under tests/benchmarks/results/speed/. Goes
# on where a part fails, and ends with a summary; exit code 1 if a part failed.
#
#     tests/benchmarks/gpu.sh             PYTHON=python3 by default
#     tests/benchmarks/gpu.sh check       small shapes of everything on the GPU, all at once: for errors, not for times
#     tests/benchmarks/gpu.sh toy         small shapes on the CPU, to see that it runs; $OUT must be set
#
# Needs no network: packages that are missing are installed from .wheels/ (see wheels.sh) into a temporary folder.
set -uo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
mode=${1:-gpu}
if [ "$mode" = toy ] && [ -z "${OUT:-}" ]; then
    echo "Set OUT to a folder for what the toy run writes: OUT=/tmp/toy $0 toy" >&2
    exit 2
fi
out=${OUT:-tests/benchmarks/results/speed}
mkdir -p "$out"
exec > >(tee "$out/$mode.log") 2>&1
began=$SECONDS
summary=()
failures=0

part() { # part NAME SECONDS COMMAND...: run it under a time limit, and note how it ended
    local name=$1 limit=$2 start=$SECONDS code=0
    shift 2
    printf '\n=== %s (at most %s s)\n' "$name" "$limit"
    timeout --kill-after=5 "$limit" "$@" || code=$?
    local ended="ok"
    [ "$code" -eq 0 ] || { ended="FAILED, exit code $code" && failures=$((failures + 1)); }
    [ "$code" -ne 124 ] || ended="STOPPED at its time limit"
    summary+=("$(printf '%-28s%5d s  %s' "$name" $((SECONDS - start)) "$ended")")
}

running=()
names=()
together() { # together NAME SECONDS COMMAND...: the same in the background, its output in a file of its own
    local name=$1
    ({ part "$@"; printf '%s\n' "${summary[@]: -1}" >"$out/$name.end"; } >"$out/$name.log" 2>&1) &
    running+=($!)
    names+=("$name")
}

collect() { # wait for what runs in the background, and print the ends of its output
    wait "${running[@]}"
    local name
    for name in "${names[@]}"; do
        tail -n 40 "$out/$name.log" | cut -c1-400
        summary+=("$(<"$out/$name.end")")
        grep -q '  ok$' "$out/$name.end" || failures=$((failures + 1))
        rm "$out/$name.end"
    done
}

site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
export PYTHONPATH="$PWD:$PWD/plugins:$PWD/tasks:$site${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false
shopt -s nullglob
wheels=(.wheels/*.whl)
if [ "$mode" != toy ] && [ ${#wheels[@]} -gt 0 ]; then
    part "install" 30 "$python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps --no-compile \
        --target "$site" "${wheels[@]}"
fi

bench=tests/benchmarks
# Warnings of other versions of other packages are no failures here.
tests=("$python" -m pytest -q -W default -p no:cacheprovider)
# Only files with such a test: others import packages that such a machine need not have.
mapfile -t marked < <(grep -rlE 'mark\.gpu|pytestmark.*gpu' tests --include='test_*.py')
if [ "$mode" = toy ]; then
    part "linear loss" 120 "$python" $bench speed.linear_loss --shape 512,1500,16 --only mle --only emo \
        --out "$out/linear_loss-toy.json"
    part "kernel rates" 60 "$python" $bench speed.kernel_rates --device cpu --shape 64,500,16 --repetitions 2 \
        --out "$out/kernel_rates-toy.json"
    part "whole step" 120 "$python" $bench speed.whole_step --device cpu --toy --rounds 2 --steps 2 \
        --out "$out/whole_step-toy.json"
    part "prompts with shots" 60 "$python" $bench speed.icl_rate --device cpu --toy --rounds 2 --out "$out/icl_rate-toy.json"
    part "generation" 60 "$python" $bench speed.generation --toy --rounds 2 --out "$out/generation-toy.json"
elif [ "$mode" = check ]; then
    nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm --format=csv || true
    together kernels 240 "${tests[@]}" --numprocesses 6 tests/emobench/objectives/test_triton.py
    together marked 240 "${tests[@]}" --numprocesses 4 -m gpu --continue-on-collection-errors "${marked[@]}"
    together linear_loss 240 "$python" $bench speed.linear_loss --device cuda --shape 4096,50257,768 --rounds 2 \
        --out "$out/linear_loss-check.json"
    together whole_step 240 "$python" $bench speed.whole_step --rounds 1 --steps 2 --uncounted 1 --sequences 1 \
        --out "$out/whole_step-check.json"
    together icl_rate 240 "$python" $bench speed.icl_rate --examples 6 --rounds 1 --out "$out/icl_rate-check.json"
    together generation 240 "$python" $bench speed.generation --device cuda --prefixes 4 --rounds 1 \
        --out "$out/generation-check.json"
    together kernel_rates 240 "$python" $bench speed.kernel_rates --shape 4096,50257,768 --repetitions 2 \
        --out "$out/kernel_rates-check.json"
    collect
else
    nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm --format=csv || true
    together kernels 120 "${tests[@]}" --numprocesses 5 --junit-xml "$out/pytest-kernels.xml" \
        tests/emobench/objectives/test_triton.py
    together marked 170 "${tests[@]}" --numprocesses 10 -m gpu --continue-on-collection-errors \
        --junit-xml "$out/pytest-gpu.xml" "${marked[@]}"
    collect
    part "linear loss" 160 "$python" $bench speed.linear_loss --device cuda --out "$out/linear_loss-cuda.json"
    part "whole step" 150 "$python" $bench speed.whole_step --rounds 5 --out "$out/whole_step-cuda.json"
    part "whole step, bfloat16" 60 "$python" $bench speed.whole_step --dtype bfloat16 --rounds 2 \
        --out "$out/whole_step-cuda-bfloat16.json"
    part "prompts with shots" 55 "$python" $bench speed.icl_rate --examples 24 --rounds 2 --out "$out/icl_rate-cuda.json"
    part "generation" 75 "$python" $bench speed.generation --device cuda --rounds 3 \
        --arm ours --arm loop --arm static --arm by-hand --out "$out/generation-cuda.json"
    part "kernel rates" 30 "$python" $bench speed.kernel_rates --out "$out/kernel_rates-cuda.json"
fi

printf '\n=== summary, %s s\n' $((SECONDS - began))
printf '%s\n' "${summary[@]}"
"$python" - "$out" "$mode" <<'PY'
import json, pathlib, sys

found = sorted(pathlib.Path(sys.argv[1]).glob("*-toy.json" if sys.argv[2] == "toy" else "*-cuda*.json"))
for path in found:
    result = json.loads(path.read_text())
    for one in result.get("shapes", [result]):
        for row in one.get("targets", []):
            where = "x".join(str(one["shape"].get(k, "")) for k in ("tokens", "vocabulary", "width"))
            print(f"{row['verdict']:14} {where:18} {row['row']}: {row['value']}, must be {row['must_reach']}")
PY
exit $((failures > 0))
