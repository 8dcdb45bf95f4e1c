"""What a file from outside must be before a byte of it is read."""

from __future__ import annotations

from pathlib import Path

from tokenmill.errors import ImportFileError


def check_file(path: Path, largest: int) -> None:
    """Refuse what is no regular file (a device or pipe never ends) or has more than `largest` bytes.

    Raises
    ------
    ImportFileError
        With the path, what was found and what is allowed.
    OSError
        Where nothing is there.
    """
    size = path.stat().st_size
    if not path.is_file():
        raise ImportFileError(f"{path}: found no regular file; allowed: a file")
    if size > largest:
        raise ImportFileError(f"{path}: found {size} bytes; allowed: at most {largest}")
