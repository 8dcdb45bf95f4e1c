"""What the command line writes: JSON, errors, exit codes. No user mistake ends in a traceback."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from os import devnull
from pathlib import Path
from signal import SIG_IGN
from typing import Any

from tokenmill.errors import AuditError, Mistake, ProblemError, SolverError, TokenmillError
from tokenmill.interrupts import at_interrupt

SOLVED, INFEASIBLE, BAD_INPUT, NO_PLAN, INTERNAL = range(5)
_INTERRUPTED = 130  # what the command line's parser makes of Ctrl-C
_CODES = {"optimal": SOLVED, "feasible": SOLVED, "infeasible": INFEASIBLE, "unbounded": NO_PLAN, "unknown": NO_PLAN}


def exit_code(status: str) -> int:
    """Return the exit code of a plan's status."""
    return _CODES.get(status, INTERNAL)


def write_json(data: Any) -> None:
    """Print one JSON object on stdout."""
    sys.stdout.write(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def settle(arguments: Sequence[str]) -> list[str]:
    """Return the words as the parser wants them.

    `--json` of `solve` takes a file (stdout where none follows), of every other command nothing. `--given`, `--set` and
    `--plot` take all ``key=value`` words that follow.
    """
    settled: list[str] = []
    repeated = ""
    for at, word in enumerate(arguments):
        if word in _REPEATED:
            repeated = word
            continue
        if repeated and "=" in word and not word.startswith("--"):
            settled += [repeated, word]
            continue
        if repeated and settled[-2:-1] != [repeated]:
            settled.append(repeated)
        repeated = ""
        if word == "-" and settled[-1:] == ["--json"] and not _writes_files(arguments):
            continue
        settled.append(word)
        if word == "--json" and _writes_files(arguments):
            following = arguments[at + 1] if at + 1 < len(arguments) else "--"
            settled += ["-"] if following.startswith("-") and following != "-" else []
    if repeated and settled[-2:-1] != [repeated]:
        settled.append(repeated)
    return settled


# how every error of the project names the nearest known name
_NEAREST = re.compile(r"did you mean '([^']+)'")
_REPEATED = ("--given", "--set", "--plot")


def _writes_files(arguments: Sequence[str]) -> bool:
    return next((word for word in arguments if not word.startswith("-")), "") == "solve"


def json_target(arguments: Sequence[str]) -> str | None:
    """Return where JSON was asked to go: a path, "-" for stdout, None where it was not."""
    for at, word in enumerate(arguments):
        if word == "--json":
            return arguments[at + 1] if _writes_files(arguments) and at + 1 < len(arguments) else "-"
        if word.startswith("--json="):
            return word.partition("=")[2]
        if word == "--as" and arguments[at + 1 : at + 2] == ["json"]:
            return "-"
    return None


def check_target(option: str, target: str | None) -> None:
    """Refuse an output file whose folder is not there, before any work is done.

    Raises
    ------
    ProblemError
        Where the folder does not exist.
    """
    if target in (None, "-") or Path(str(target)).parent.is_dir():
        return
    raise ProblemError([Mistake(option, repr(target), "a file in a folder that exists and can be written")])


@contextmanager
def progress() -> Iterator[None]:
    """Show on a terminal how a solve of more than some seconds goes on: best plan, bound, gap; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield
        return
    from tokenmill.milp.progress import Progress, watched

    shown = [0.0]

    def show(moment: Progress) -> None:
        if moment.seconds > SILENT and moment.seconds > shown[0] + 1:
            shown[0] = moment.seconds
            sys.stderr.write(f"\r\x1b[K{moment.text()} (Ctrl-C takes the best plan)")
            sys.stderr.flush()

    with watched(show):
        try:
            yield
        finally:
            if shown[0]:
                sys.stderr.write("\r\x1b[K")


@contextmanager
def whole() -> Iterator[None]:
    """Let Ctrl-C wait while a plan in hand is written: what was asked for is there, and whole."""
    with at_interrupt(SIG_IGN):
        yield


SILENT = 2.0
"""Seconds of a solve before anything is said of it."""


def guarded(run: Callable[[], Any], arguments: Sequence[str]) -> int:
    """Run a command; turn what it raises into messages and exit codes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a title may have what the terminal's encoding lacks
            stream.reconfigure(errors="replace")
    try:
        result = run()
        sys.stdout.flush()
    except ProblemError as error:
        return _bad_input(error.mistakes, arguments)
    except (SolverError, AuditError) as error:
        return _internal(error, arguments)
    except TokenmillError as error:
        near = _NEAREST.search(str(error))
        return _bad_input([Mistake("", str(error), "", near and near[1])], arguments)
    except KeyboardInterrupt:
        return _stopped()
    except BrokenPipeError:
        sys.stderr.close()
        return SOLVED
    except SystemExit as stop:  # what the printer of tables makes of a closed pipe
        return SOLVED if isinstance(stop.__context__, BrokenPipeError) else int(stop.code or SOLVED)
    except OSError as error:
        return _unwritten(error) if error.filename is None else _internal(error, arguments)
    except Exception as error:
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # of the command line's own parser
            found = error.format_message().rstrip(".")
            return _bad_input([Mistake("command line", f"{found}; see tokenmill --help", "")], arguments)
        if hasattr(error, "exit_code"):
            return int(error.exit_code)
        return _internal(error, arguments)
    if result == _INTERRUPTED:
        return _stopped()
    return result if isinstance(result, int) else SOLVED


def _unwritten(error: OSError) -> int:
    """Say that the output could not be written; what is left of it is dropped, so that nothing fails again at the end."""
    sys.stdout = open(devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr.write(f"error: the output cannot be written: {error.strerror or error}\n")
    return INTERNAL


def _stopped() -> int:
    sys.stderr.write("stopped before there was a plan\n")
    return NO_PLAN


def _bad_input(mistakes: Sequence[Mistake], arguments: Sequence[str]) -> int:
    errors = [{"key": m.key, "found": m.found, "allowed": m.allowed, "nearest": m.nearest} for m in mistakes]
    _write_errors(errors, arguments)
    for mistake in mistakes:
        text = str(mistake) if mistake.allowed else mistake.found
        sys.stderr.write(f"error: {text}\n")
    return BAD_INPUT


def _internal(error: Exception, arguments: Sequence[str]) -> int:
    name = type(error).__name__
    _write_errors([{"key": "", "found": f"{name}: {error}", "allowed": "", "nearest": None}], arguments)
    sys.stderr.write(
        f"internal error: {name}: {error}\nThis is a defect of tokenmill; please report it with the problem file.\n"
    )
    return INTERNAL


def _write_errors(errors: list[dict[str, Any]], arguments: Sequence[str]) -> None:
    target = json_target(arguments)
    if target is None:
        return
    data = {"schema": 1, "status": "error", "errors": errors}
    if target == "-":
        write_json(data)
        return
    from tokenmill.plan_json import dump, write_text

    try:
        write_text(dump(data), target)
    except ProblemError as error:
        sys.stderr.write(f"error: {error}\n")
