"""Print the requirements of a dependency group of pyproject.toml, one a line: installers differ in reading groups."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def main() -> int:
    """Print the group named on the command line."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    for requirement in project["dependency-groups"][sys.argv[1]]:
        sys.stdout.write(f"{requirement}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
