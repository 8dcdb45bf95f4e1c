"""What a file from outside must be before a byte of it is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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


def read_json(path: Path, largest: int) -> dict[str, Any]:
    """Return the JSON object that a file of at most `largest` bytes holds.

    Raises
    ------
    ImportFileError
        Where it cannot be read, is no JSON text, or holds something else than an object.
    """
    try:
        check_file(path, largest)
        fields = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ImportFileError(f"{path}: cannot be read ({error.strerror})") from error
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ImportFileError(f"{path}: not JSON text ({error})") from error
    if not isinstance(fields, dict):
        raise ImportFileError(f"{path}: found a {type(fields).__name__}; allowed: one JSON object")
    return fields
