"""Write the manual as Markdown: ``python -m tokenmill.docs DIR``; ``mkdocs build`` makes a site of it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from tokenmill import data
from tokenmill.docs import formulas, guide, names, stages
from tokenmill.docs.text import rendered
from tokenmill.errors import Mistake, ProblemError
from tokenmill.plan_json import write_text

WITH_MATHEMATICS = ("stages", "formulas", "constraints")


def pages(run: bool = True) -> Iterator[tuple[str, str]]:
    """Yield path and text of every page; `run`: with what the commands of the guide print."""
    root = data.path("problems").parent
    yield (
        "index.md",
        (root / "README.md")
        .read_text(encoding="utf-8")
        .replace("(CONTRIBUTING.md)", "(contributing.md)")
        .replace("(CHANGELOG.md)", "(changelog.md)"),
    )
    yield "contributing.md", (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    yield "changelog.md", (root / "CHANGELOG.md").read_text(encoding="utf-8")
    written = sorted((root / "docs").glob("*.md"))
    for file in written:
        text = file.read_text(encoding="utf-8")
        yield file.name, guide.with_output(text) if run else text
    yield from stages.pages()
    yield from formulas.pages()
    yield "commands.md", names.commands()
    yield "library.md", names.library()
    for name, text in names.families():
        yield f"constraints/{name}.md", text
    for kind, text in names.tables():
        yield f"catalogue/{kind}.md", text


def main(into: Path, run: bool = True) -> None:
    """Write all pages below a folder that holds pages alone; `run`: with output of commands, and mathematics rendered.

    Raises
    ------
    ProblemError
        Where the folder holds anything else: it would be lost.
    """
    if into.exists():
        other = next((file for file in into.rglob("*") if file.is_file() and file.suffix != ".md"), None)
        if other is not None:
            raise ProblemError(
                [Mistake(str(into), f"{other.name}, which is no page", "a folder of pages alone, or a new one")]
            )
        shutil.rmtree(into)
    for path, text in pages(run):
        (into / path).parent.mkdir(parents=True, exist_ok=True)
        write_text(rendered(text) if run and path.partition("/")[0] in WITH_MATHEMATICS else text, into / path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--quick" not in sys.argv)
