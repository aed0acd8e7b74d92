#!/usr/bin/env bash
# Run the tests with other versions of Python, each in a fresh environment. pyproject.toml names the versions that must work.
#
#     tests/benchmarks/pythons.sh python3.12 python3.13          the tests that take less than 5 s each
#     tests/benchmarks/pythons.sh python3.13 -- tests/golden     or what pytest is given
set -euo pipefail
cd "$(dirname "$0")/../.."
pythons=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do pythons+=("$1"); shift; done
[ $# = 0 ] || shift
tests=("$@")
[ ${#tests[@]} -gt 0 ] || tests=(-m "not slow")
for python in "${pythons[@]}"; do
    folder=$(mktemp -d)
    "$python" -m venv "$folder"
    install=("$folder/bin/python" -m pip install --quiet --disable-pip-version-check --constraint constraints.txt)
    "${install[@]}" torch
    "${install[@]}" ".[dev]"
    "${install[@]}" --no-deps openicl
    "$folder/bin/python" --version
    "$folder/bin/python" -m pytest --numprocesses auto --dist worksteal "${tests[@]}"
    rm -rf "$folder"
done
