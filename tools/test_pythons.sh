#!/usr/bin/env bash
# Runs the fast tests on every Python from 3.11 to 3.13 of this machine (PuLP 3.3 on 3.11, PuLP 4 from 3.12).
set -euo pipefail

cd "$(dirname "$0")/.."
tested=0
failed=""
for version in 3.11 3.12 3.13; do
  python=""
  for candidate in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version".*/bin/python; do
    path=$(command -v "$candidate" 2>/dev/null || true)
    if [ -n "$path" ] && "$path" -c "import sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != '$version')" 2>/dev/null; then
      python=$path
      break
    fi
  done
  if [ -z "$python" ]; then
    echo "Python $version: not on this machine"
    continue
  fi
  env=".venv-$version"
  [ -x "$env/bin/python" ] || "$python" -m venv "$env"
  "$env/bin/python" tools/requirements.py dev >"$env/dev.txt"
  "$env/bin/python" -m pip install --quiet --disable-pip-version-check --editable . --requirement "$env/dev.txt"
  echo "Python $version: $("$env/bin/python" -m pip list 2>/dev/null | grep -i '^pulp ')"
  "$env/bin/python" -m pytest -q -m "not slow" || failed="$failed $version"
  tested=$((tested + 1))
done
[ "$tested" -gt 0 ] || { echo "no Python from 3.11 to 3.13 found" >&2; exit 1; }
[ -z "$failed" ] || { echo "failed on:$failed" >&2; exit 1; }
