"""What must hold of any choice of a price, and of any chip that a problem file states."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tokenmill.catalog import load_catalog
from tokenmill.catalog_prices import choose_price
from tokenmill.catalog_records import Price

CATALOG = load_catalog()
SYSTEM = CATALOG.system("hgx-h100")
AMOUNT = st.floats(0.01, 100)


@st.composite
def price_rows(draw):
    def row(provider, amount, month, evidence):
        return Price(
            "h100-sxm", None, provider, "on-demand", "r", amount, None, "chip", month, month, "", "list", evidence
        )  # fmt: skip

    months = st.sampled_from(["2025-01", "2026-02", "2026-05"])
    evidence = st.sampled_from(["datasheet", "guess"])
    return draw(st.lists(st.builds(row, st.sampled_from("abcd"), AMOUNT, months, evidence), min_size=1, max_size=12))


@given(price_rows())
def test_a_choice_lies_within_its_rows_and_names_its_providers(rows):
    choice = choose_price(rows, SYSTEM, "2026-05")
    amounts = [row.per_chip_hour for row in rows if row.provider in choice.providers]
    assert min(amounts) <= choice.per_chip_hour <= max(amounts)
    assert choice.date == max(row.date for row in rows if row.evidence == choice.evidence)
    assert choice.evidence == "datasheet" or all(row.evidence == "guess" for row in rows)


@given(price_rows(), st.randoms())
def test_the_order_of_rows_and_older_rows_do_not_matter(rows, random):
    choice = choose_price(rows, SYSTEM, "2026-05")
    shuffled = list(rows)
    random.shuffle(shuffled)
    older = replace(rows[0], date="2024-01", as_of="2024-01", per_chip_hour=1e-6)
    again = choose_price([*shuffled, older], SYSTEM, "2026-05")
    assert (again.per_chip_hour, again.providers, again.date) == (choice.per_chip_hour, choice.providers, choice.date)


@given(price_rows(), st.floats(0.1, 10))
def test_prices_scale(rows, factor):
    scaled = [replace(row, per_chip_hour=row.per_chip_hour * factor) for row in rows]
    before, after = (choose_price(r, SYSTEM, "2026-05").per_chip_hour for r in (rows, scaled))
    assert abs(after - before * factor) <= 1e-9 * after


@given(st.sampled_from(sorted(CATALOG.chips)), st.floats(1e8, 1e12), st.floats(1e9, 1e13))
def test_a_stated_figure_stands_and_no_other_changes(name, memory, bandwidth):
    before = CATALOG.chips[name]
    stated = {"memory": memory, "bandwidth": bandwidth, "power": 100.0, "bf16": 1e12}
    after = CATALOG.with_chips({name: stated}).chip(name)
    assert (after.capacity, after.bandwidth, after.tdp, after.peak["bf16"]) == (memory, bandwidth, 100.0, 1e12)
    assert {k: v for k, v in after.peak.items() if k != "bf16"} == {k: v for k, v in before.peak.items() if k != "bf16"}
    assert after.scale_up == before.scale_up
    assert after.ranks == before.ranks
    assert not after.missing
