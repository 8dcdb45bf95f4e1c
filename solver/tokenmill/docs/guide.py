"""Puts into a page what its commands print: a block that begins with ``$ tokenmill`` is run where it stands."""

from __future__ import annotations

import io
import os
import re
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

from tokenmill import data

BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
LONGEST = 60
"""Lines of output beyond which the rest is left out."""


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of every ``$ tokenmill`` line of a page's console blocks."""
    for block in BLOCK.findall(text):
        for line in block.splitlines():
            if line.startswith("$ tokenmill "):
                yield shlex.split(line.removeprefix("$ tokenmill "))


def with_output(text: str) -> str:
    """Return a page with the output of its commands beneath them, run in one folder of their own, in order."""
    if not any(True for _ in commands(text)):
        return text
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(data.path("problems"), Path(folder) / "problems")
        with chdir(folder):
            return BLOCK.sub(lambda found: f"```console\n{_run(found[1])}```", text)


def _run(block: str) -> str:
    from tokenmill.cli import main

    shown: list[str] = []
    for line in block.splitlines():
        shown.append(line)
        if line.startswith("$ tokenmill "):
            printed = io.StringIO()
            with redirect_stdout(printed), redirect_stderr(printed):
                main(shlex.split(line.removeprefix("$ tokenmill ")))
            lines = printed.getvalue().rstrip().splitlines()
            shown += lines[:LONGEST] + (["..."] if len(lines) > LONGEST else []) + [""]
    return "\n".join(shown).rstrip() + "\n"
