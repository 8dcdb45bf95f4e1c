"""Tables about a system that nothing asks for are said to change nothing."""

import tomllib

from tokenmill.api import check
from tokenmill.reading import load_problem

FILE = """
[hardware]
systems = ["hgx-h100"]
[[hardware.price]]
system = "hgx-h100"
market = "on-demand"
per_chip_hour = "$2/h"
[[hardware.price]]
system = "hgx-b200"
market = "on-demand"
per_chip_hour = "$4/h"
[[hardware.supply]]
system = "hgx-h200"
at_most = 1
[[hardware.supply]]
system = "hgx-h100"
at_most = 9
[[scenario]]
name = "late"
probability = 1.0
supply = { "gb200-nvl72" = 0, "hgx-h100" = 3 }
[[workload]]
name = "chat"
stage = "serving"
model = "llama-3.1-8b"
demand = { requests_per_second = 1, input_tokens = 100, output_tokens = 100 }
"""


def test_each_table_of_a_system_that_is_not_asked_for_is_named():
    notes = [note for note in check(load_problem(tomllib.loads(FILE)))["notes"] if "changes nothing" in note]
    assert [note.partition(", which")[0] for note in notes] == [
        "hardware.price: found a price of hgx-b200",
        "hardware.supply: found a supply of hgx-h200",
        "scenario.supply: found a supply of gb200-nvl72",
    ]


def test_where_no_systems_are_named_those_on_offer_count():
    everything = FILE.replace('systems = ["hgx-h100"]', "")
    notes = " ".join(
        note for note in check(load_problem(tomllib.loads(everything)))["notes"] if "changes nothing" in note
    )
    assert "hgx-" not in notes
