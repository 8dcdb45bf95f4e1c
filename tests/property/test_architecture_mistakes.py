"""Any one field of a good configuration spoiled: it is read, or refused with an error that names the file; nothing else."""

import copy
import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill import data
from tokenmill.errors import ImportFileError
from tokenmill.imports.architecture import architecture_report, read_architecture

CONFIGS = [
    json.loads(path.read_text(encoding="utf-8"))
    for path in sorted(Path(data.path("catalog") / "architectures").glob("*.json"))
]
PLACES = [
    (config, path)
    for config in CONFIGS
    for path in [(key,) for key in config]
    + [(key, inner) for key in config if isinstance(config[key], dict) for inner in config[key]]
]
SPOILED = [None, -1, 0, 1, 3, "x", "", True, 1.5, 10**12, [], [1], {}, [None] * 3, float("inf"), float("nan")]


@given(st.sampled_from(PLACES), st.sampled_from(SPOILED), st.booleans())
@settings(max_examples=400, deadline=None)
def test_spoiled_field(place, value, drop):
    config, path = place
    fields = copy.deepcopy(config)
    table = fields
    for key in path[:-1]:
        table = table[key]
    if drop:
        del table[path[-1]]
    else:
        table[path[-1]] = value
    message = ""
    try:
        report = architecture_report(read_architecture(fields))
    except ImportFileError as error:
        message, report = str(error), None
    if report is None:
        assert message.startswith("configuration: ")
    else:
        assert report["parameters"]["total"] >= report["parameters"]["active"] > 0
        assert report["weight_bytes"] > 0
