"""Every broken file is refused with all of its mistakes, each at its place; the head of a file says which."""

import json
import re
from pathlib import Path

import pytest

from tokenmill.catalog import load_catalog
from tokenmill.errors import ProblemError
from tokenmill.reading import load_problem
from tokenmill_models.stage import stages
from toy_stage import STAGES

FOLDER = Path(__file__).parent / "broken"
FILES = sorted(FOLDER.glob("**/*.toml"))  # those of shipped/ name the stages of the product, the others toys
GOOD = """
[[workload]]
name = "chat"
stage = "toy"
model = "llama-3.1-8b"
[workload.demand]
requests_per_second = 10
input_tokens = 1000
output_tokens = 200
"""


@pytest.fixture(scope="module")
def catalog():
    return load_catalog()


def expected(text):
    lines = [line[2:] for line in text.splitlines()[1:] if line.startswith("# ")]
    return [re.fullmatch(r"([^ ]+(?: \d+)?)(?: \((.*?)\)?)?", line).groups() for line in lines]


def mistakes(source, catalog, known=STAGES, **options):
    with pytest.raises(ProblemError) as refused:
        load_problem(source, catalog=catalog, known=known, **options)
    return refused.value.mistakes


def test_there_are_many():
    assert len(FILES) > 40


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_mistake_is_found_at_its_place(file, catalog):
    found = mistakes(file, catalog, stages() if file.parent.name == "shipped" else STAGES)
    wanted = expected(file.read_text())
    for key, words in wanted:
        at_key = [str(mistake) for mistake in found if mistake.key == key or mistake.key.endswith(f": {key}")]
        assert at_key, f"{key} is not among {[str(m) for m in found]}"
        assert any((words or "") in message for message in at_key), (words, at_key)
    assert len(found) == len(wanted), [str(mistake) for mistake in found]
    assert all(mistake.found and mistake.allowed for mistake in found)


def test_one_change_makes_it_good(catalog):
    assert load_problem(GOOD, catalog=catalog, known=STAGES).workloads[0].name == "chat"


def test_size_is_looked_at_before_reading(tmp_path, catalog):
    file = tmp_path / "huge.toml"
    with file.open("wb") as lines:
        lines.truncate(2 * 2**30)  # takes no room on the disk
    (mistake,) = mistakes(file, catalog)
    assert "2147483648 bytes" in mistake.found


@pytest.mark.parametrize("content", [b"\xff\xfe\x00t", bytes(range(256)), b"title = '\xe9'"])
def test_bytes_that_are_no_text(tmp_path, catalog, content):
    file = tmp_path / "binary.toml"
    file.write_bytes(content)
    (mistake,) = mistakes(file, catalog)
    assert "UTF-8" in mistake.allowed


def test_files_that_are_not_there(tmp_path, catalog):
    assert "no file" in mistakes(tmp_path / "absent.toml", catalog)[0].found
    assert "folder" in mistakes(tmp_path, catalog)[0].found
    assert "no file" in mistakes(str(tmp_path / "absent"), catalog)[0].found


@pytest.mark.parametrize(
    "text",
    [
        '{"workload": []',
        '{"workload": [], "workload": []}',
        "[1, 2]",
        "{" * 100_000,
        "a = " + "[" * 50_000,
        "a = " + "9" * 10_000,
        '{"seed": ' + "9" * 10_000 + "}",
        "",
        "\0",
    ],
    ids=["cut", "twice", "list", "deep json", "deep toml", "digits toml", "digits json", "empty", "null"],
)
def test_texts_that_are_no_problem(text, catalog):
    assert mistakes(text or "\n", catalog)


def test_json_takes_the_same_keys_and_says_the_same(catalog):
    raw = {"limits": {"power": 3}, "workload": [{"name": "chat", "stage": "toy"}]}
    in_json = [m.key for m in mistakes(json.dumps(raw), catalog)]
    assert in_json == [
        "workload.chat.model",
        "workload.chat.demand.requests_per_second",
        "workload.chat.demand.input_tokens",
        "workload.chat.demand.output_tokens",
        "limits.power",
    ]


def test_hostile_values_are_shown_short(catalog):
    text = GOOD.replace("chat", "c" * 100_000).replace(
        "requests_per_second = 10", f'requests_per_second = "{"9" * 100_000}"'
    )
    for mistake in mistakes(text, catalog):
        assert len(str(mistake)) < 1000
