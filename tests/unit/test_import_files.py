"""Files from outside are refused before a byte of them is read, where reading them would never end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tokenmill.errors import ImportFileError, ProblemError
from tokenmill.imports.architecture import read_architecture
from tokenmill.imports.files import check_file
from tokenmill.imports.topology import read_graph
from tokenmill.imports.traces import read_trace
from tokenmill.plan import load_plan


@pytest.fixture
def endless(tmp_path):
    if not hasattr(os, "mkfifo"):
        pytest.skip("no pipes here")
    path = tmp_path / "pipe.json"
    os.mkfifo(path)  # opening it waits for a writer who never comes
    return path


@pytest.mark.parametrize("read", [read_architecture, read_graph, read_trace])
def test_a_pipe_is_refused(read, endless):
    with pytest.raises(ImportFileError, match="no regular file"):
        read(endless)


def test_a_plan_is_no_pipe(endless):
    with pytest.raises(ProblemError, match="no regular file"):
        load_plan(endless)


def test_the_largest_file_is_read(tmp_path):
    file = Path(tmp_path / "f")
    file.write_bytes(b"12345")
    check_file(file, 5)
    with pytest.raises(ImportFileError, match="5 bytes; allowed: at most 4"):
        check_file(file, 4)
