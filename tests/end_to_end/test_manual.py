"""The manual holds every public name, formula, constraint, command and stage; its guide asks what can be asked."""

from __future__ import annotations

import inspect
from importlib import import_module
from pkgutil import iter_modules

import pytest

import tokenmill
from tokenmill import data
from tokenmill.docs import guide
from tokenmill.docs.__main__ import main, pages
from tokenmill.docs.text import rendered
from tokenmill.errors import ProblemError
from tokenmill.milp import constraints
from tokenmill_models.formula import library
from tokenmill_models.stage import stages


@pytest.fixture(scope="module")
def manual():
    return dict(pages(run=False))


def test_every_formula_has_its_equation_and_source(manual):
    for name, formula in library().items():
        if formula.symbol.name.startswith(("own_", "sample_", "toy_", "matrix_")):
            continue  # of other tests
        page = manual[f"formulas/{name.partition('.')[0]}.md"]
        assert f"## {name}\n" in page
        assert formula.source.text in page


def test_every_stage_has_its_keys_choices_and_definitions(manual):
    for stage in stages().values():
        page = manual.get(f"stages/{stage.name}.md")
        if page is None:
            continue  # registered by another test after the manual was made
        for item in stage.inputs:
            assert f"`{item.name}`" in page
        for axis in stage.axes:
            assert f"`{axis.key}`" in page
        assert "### Definitions" in page


def test_every_constraint_family_and_its_rows_are_there(manual):
    for info in iter_modules(constraints.__path__):
        module = import_module(f"{constraints.__name__}.{info.name}")
        for name, member in inspect.getmembers(module, inspect.isfunction):
            if member.__module__ == module.__name__ and not name.startswith("_"):
                assert f"## {name}\n" in manual[f"constraints/{info.name}.md"]


def test_every_public_name_and_command_is_there(manual):
    for name in tokenmill.__all__:
        assert f"## {name}\n" in manual["library.md"]
    from tokenmill.cli import app

    for command in app.registered_commands:
        assert (
            f"## tokenmill {(command.name or command.callback.__name__).replace('_', '-')}\n" in manual["commands.md"]
        )
    for group in app.registered_groups:
        assert f"## tokenmill {group.name}\n" in manual["commands.md"]


def test_tables_of_the_catalogue_hold_every_chip(manual):
    from tokenmill.catalog import load_catalog

    for id in load_catalog().chips:
        assert id in manual["catalogue/chips.md"]


def test_the_guide_asks_ten_questions_of_files_that_are_there(manual):
    from tokenmill.cli import app

    known = {command.name or command.callback.__name__ for command in app.registered_commands}
    text = manual["guide.md"]
    assert sum(line.startswith("## ") for line in text.splitlines()) == 10
    asked = list(guide.commands(text))
    assert len(asked) >= 10
    for words in asked:
        assert words[0] in known
        for word in words[1:]:
            if word.startswith("problems/"):
                assert (data.path("problems").parent / word).is_file()


def test_mathematics_is_rendered_without_a_script():
    pytest.importorskip("latex2mathml")
    assert "<math" in rendered("$$\n\\frac{a}{b}\n$$\n")


@pytest.mark.slow
def test_every_command_of_the_guide_prints_an_answer(tmp_path, manual):
    shown = guide.with_output(manual["guide.md"])
    assert "internal error" not in shown
    assert "error:" not in shown
    assert shown.count("status ") >= 7


def test_pages_are_written_and_nothing_of_others_is_lost(tmp_path, monkeypatch):
    monkeypatch.setattr("tokenmill.docs.__main__.pages", lambda run: iter([("a/b.md", "# B\n")]))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old.md").write_text("old")
    main(tmp_path / "out", run=False)
    assert [path.name for path in (tmp_path / "out").rglob("*.md")] == ["b.md"]
    (tmp_path / "out" / "photo.jpg").write_text("dear")
    with pytest.raises(ProblemError, match=r"photo\.jpg"):
        main(tmp_path / "out", run=False)
    assert (tmp_path / "out" / "photo.jpg").exists()
