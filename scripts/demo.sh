#!/usr/bin/env bash
# Installs unisono with its core dependencies into .venv, trains on the bundled digits, measures all-reduce on 2 ranks.
# With arguments: installs, then runs `unisono` with them, in the directory it was called from.
set -euo pipefail
here=$PWD
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
. scripts/common.sh
make_venv .venv -e .
cd "$here"
if [ $# -gt 0 ]; then exec "$root/.venv/bin/unisono" "$@"; fi
"$root/.venv/bin/unisono" train
exec "$root/.venv/bin/unisono" bench --ranks 2
