#!/usr/bin/env bash
# Installs unisono with its core dependencies into .venv, trains on the bundled digits, measures all-reduce on 2 ranks.
# With arguments: installs, then runs `unisono` with them.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
make_venv .venv -e .
if [ $# -gt 0 ]; then exec .venv/bin/unisono "$@"; fi
.venv/bin/unisono train
exec .venv/bin/unisono bench --ranks 2
