from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from tokenmill import api
from tokenmill.cli import app
from tokenmill.reading import load_problem

README = Path(__file__).parents[2] / "README.md"


@pytest.fixture(scope="module")
def text():
    return README.read_text()


def test_every_command_stands_in_the_table(text):
    table = text.partition("## Commands")[2].partition("\n## ")[0]
    commands = typer.main.get_command(app).commands
    assert [name for name in commands if not re.search(rf"`{name}\b", table)] == []


def test_the_problem_shown_is_one_without_mistakes(text, tmp_path):
    (shown,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    path = tmp_path / "mine.toml"
    path.write_text(shown)
    problem = load_problem(path)
    assert [workload.name for workload in problem.workloads] == ["chat"]
    assert api.check(problem)


def test_the_library_example_runs(text, capsys):
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    shown = example.replace('"problems/', f'"{README.parent}/problems/')
    exec(compile(shown, "README.md", "exec"), {})
    out = capsys.readouterr().out
    assert "optimal" in out
    assert "cost.total = $" in out
