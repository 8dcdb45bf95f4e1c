#!/usr/bin/env bash
# Builds the wheel, installs it in an empty environment, and solves a packaged problem from another folder.
set -euo pipefail

python=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m build --wheel --outdir "$work/dist" "$root" >"$work/build.log" 2>&1 || { cat "$work/build.log" >&2; exit 1; }
"$python" -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check "$work"/dist/*.whl

cd "$work"
problem=$("$work/env/bin/python" -c 'from tokenmill.data import path; print(path("problems") / "serve-70b.toml")')
case "$problem" in
"$work"/env/*) ;;
*) echo "the problem comes from $problem, not from the wheel" >&2; exit 1 ;;
esac
"$work/env/bin/tokenmill" solve "$problem" --json plan.json
"$work/env/bin/python" -c '
import json
plan = json.load(open("plan.json"))
assert plan["status"] in ("optimal", "feasible"), plan["status"]
print("wheel-check: passed,", plan["status"], plan["objective"]["name"], plan["objective"]["value"])'
