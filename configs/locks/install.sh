#!/usr/bin/env bash
# Install lists of packages into .venv with uv, from where pip would take them: pip's options are uv's variables here.
#   install.sh [OPTION of uv pip install]... LIST...
set -euo pipefail
cd "$(dirname "$0")/../.."
uv=.venv/bin/uv

pip_option() { # The environment's value of one of pip's options, else that of its configuration files.
    local variable=PIP_${1^^}
    variable=${variable//-/_}
    echo "${!variable:-$(.venv/bin/pip config get "global.$1" 2> /dev/null || true)}"
}
hand_over() { # VARIABLE of uv, pip's option: unless the variable is set.
    local value=${!1:-$(pip_option "$2")}
    if [[ $value ]]; then export "$1=$value"; fi
}
hand_over UV_DEFAULT_INDEX index-url
hand_over UV_INDEX extra-index-url
hand_over UV_FIND_LINKS find-links
hand_over SSL_CERT_FILE cert
if [[ ${UV_FIND_LINKS:-} ]]; then export UV_FIND_LINKS=${UV_FIND_LINKS// /,}; fi
export UV_INDEX_STRATEGY=unsafe-best-match # As pip does: the lists name exact versions, wherever they are.

[[ -x $uv ]] || .venv/bin/pip install -qq --disable-pip-version-check --require-hashes \
    -r <(sed -n '/^uv==/,/[^\\]$/p' configs/locks/dev.txt)
exec "$uv" pip install --quiet --python .venv/bin/python --no-deps "$@"
