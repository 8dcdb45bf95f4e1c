"""Which price is taken, and reading price lists."""

import pytest

from tokenmill.catalog import load_catalog
from tokenmill.catalog_prices import choose_price, first_month, months_between
from tokenmill.catalog_records import Price
from tokenmill.errors import CatalogError, ImportFileError
from tokenmill.imports.prices import read_price_list, read_prices

CATALOG = load_catalog()
HGX = CATALOG.system("hgx-h100")


def price(provider, amount, as_of="2026-05", region="r", evidence="datasheet", market="on-demand"):
    return Price(
        chip="h100-sxm", system=None, provider=provider, market=market, region=region, per_chip_hour=amount, purchase=None,
        unit="chip", as_of=as_of, date=first_month(as_of), offer="", source=f"list of {provider}", evidence=evidence,
    )  # fmt: skip


def test_median_over_providers_of_the_newest_month():
    rows = [price("a", 9, "2025-12"), price("a", 2), price("b", 3), price("c", 10)]
    choice = choose_price(rows, HGX, "2026-05")
    assert (choice.per_chip_hour, choice.providers, choice.date, choice.stale) == (3, ("a", "b", "c"), "2026-05", False)


def test_a_provider_counts_once_at_its_cheapest_region():
    rows = [price("a", 8, region="far"), price("a", 6), price("b", 2)]
    assert choose_price(rows, HGX, "2026-05").per_chip_hour == 4


def test_guesses_count_only_where_nothing_better_is_there():
    assert choose_price([price("a", 1, evidence="guess"), price("b", 5)], HGX, "2026-05").per_chip_hour == 5
    alone = choose_price([price("a", 1, evidence="guess")], HGX, "2026-05")
    assert (alone.per_chip_hour, alone.evidence) == (1, "guess")


def test_a_price_over_a_year_older_than_the_newest_is_stale():
    assert choose_price([price("a", 1, "2025-04")], HGX, "2026-05").stale
    assert not choose_price([price("a", 1, "2025-05")], HGX, "2026-05").stale
    assert choose_price([], HGX, "2026-05") is None


def test_a_clouds_own_system_takes_that_clouds_price():
    choice = CATALOG.price("p5-48xlarge", "on-demand")
    assert (choice.per_chip_hour, choice.providers) == (pytest.approx(55.04 / 8), ("AWS",))
    assert CATALOG.price("a3-highgpu-8g", "on-demand").providers == ("GCP",)
    assert CATALOG.price("p5e-48xlarge", "on-demand") is None  # not sold on demand


def test_a_generic_system_takes_the_median_of_its_chip():
    # newest month: AWS 6.88, GCP 10.98, Nebius 2.95
    choice = CATALOG.price("hgx-h100", "on-demand")
    assert choice.per_chip_hour == pytest.approx(6.88)
    assert choice.providers == ("AWS", "GCP", "Nebius")


def test_the_choice_can_be_narrowed():
    assert CATALOG.price("hgx-h100", "on-demand", provider="nebius").per_chip_hour == pytest.approx(2.95)
    assert CATALOG.price("hgx-h100", "on-demand", region="eu-west-2").per_chip_hour == pytest.approx(71.552 / 8)
    early = CATALOG.price("hgx-h100", "on-demand", price_date="2026-05-31")
    assert early.date.startswith("2026-05")
    assert early.per_chip_hour == pytest.approx((2.95 + 3.0) / 2)  # 2.95, 4.25, 3.00 and 2.245 in May
    assert CATALOG.price("hgx-h100", "on-demand", provider="nobody") is None


def test_purchases_are_of_whole_systems():
    assert CATALOG.price("gb200-nvl72", "buy").purchase == 3_100_000
    assert CATALOG.price("hgx-a100-80gb", "buy").purchase == 199_000  # list price of the system
    cards = CATALOG.price("rtx-4090", "buy")
    assert (cards.purchase, cards.evidence) == (8 * 1600, "guess")
    assert "without their host" in cards.source
    assert CATALOG.price("apple-m4-max", "buy").purchase == 5000
    assert CATALOG.price("p5-48xlarge", "buy") is None


def test_dates():
    assert [first_month(d) for d in ("2026", "2026-H2", "2026-05", "2026-05-20")] == [
        "2026-01",
        "2026-07",
        "2026-05",
        "2026-05",
    ]
    assert months_between("2025-11", "2026-02") == 3
    for wrong in ("May 2026", "2026-13", "2026-5", ""):
        with pytest.raises(CatalogError, match="allowed: YYYY"):
            first_month(wrong)


HEADER = "provider,instance_type,accelerator,accelerator_count,region,on_demand_usd_per_hour,spot_low_usd_per_hour,spot_high_usd_per_hour\n"


def listed(tmp_path, rows, header=HEADER):
    file = tmp_path / "list.csv"
    file.write_text(header + rows)
    return file


def test_instance_prices_are_divided_by_their_chips(tmp_path):
    rows = read_prices(listed(tmp_path, "AWS,p5.48xlarge,H100,8,us-east-1,55.04,16.0,18.0\n"), as_of="2026-08")
    assert [(r.market, r.per_chip_hour, r.chip, r.system) for r in rows] == [
        ("on-demand", 55.04 / 8, "h100-sxm", "p5-48xlarge"),
        ("spot", 17.0 / 8, "h100-sxm", "p5-48xlarge"),
    ]
    assert {r.date for r in rows} == {"2026-08"}


def test_rows_left_out_are_named_with_the_reason(tmp_path):
    found = read_price_list(
        listed(
            tmp_path,
            "AWS,good,H100,8,r,8,,\n"
            "AWS,equal,H100,8,r,8,8,8\n"
            "GCP,flex,H100,8,us-central1,33.61,42.71,42.71\n"
            "GCP,,H100,8,r,78.37,,\n"
            "AWS,m8i.large,,0,r,0.1,,\n"
            "AWS,odd,Z9000,8,r,8,,\n"
            "AWS,bad,H100,8,r,eight,,\n"
            "AWS,none,H100,8,r,,,\n"
            "AWS,zero,H100,0,r,8,,\n"
            "AWS,negative,H100,8,r,-8,,\n"
            "AWS,infinite,H100,8,r,inf,,\n",
        )
    )
    assert [(p.offer, p.market) for p in found.prices] == [("good", "on-demand"), ("equal", "on-demand")]
    reasons = dict(
        zip(("equal", "flex", "host", "cpu", "odd", "bad", "none", "zero", "neg", "inf"), found.refused, strict=True)
    )
    assert "no discount" in reasons["equal"]
    assert "flexible-start" in reasons["flex"]
    assert "row 3 (GCP flex us-central1)" in reasons["flex"]
    assert "without its host" in reasons["host"]
    assert "no accelerator" in reasons["cpu"]
    assert "'Z9000' is not known" in reasons["odd"]
    assert "found 'eight'; allowed: a number" in reasons["bad"]
    assert "no price" in reasons["none"]
    assert "at least 1" in reasons["zero"]
    assert "finite" in reasons["neg"]
    assert "finite" in reasons["inf"]


def test_columns_as_the_provider_lists_have_them(tmp_path):
    header = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,SpotPrice,Region,AvailabilityZone\n"
    rows = read_prices(
        listed(tmp_path, "p4d.24xlarge,A100,8,96,1152,21.96,13.2,us-west-2,us-west-2a\n", header), provider="AWS"
    )
    assert [(r.provider, r.chip, r.as_of) for r in rows] == [("AWS", "a100-sxm-40gb", "undated")] * 2


@pytest.mark.parametrize(
    ("header", "rows", "said"),
    [
        ("a,b\n", "1,2\n", "allowed: one of instance_type or InstanceType"),
        (HEADER, "", "found no rows"),
        (HEADER, "AWS,x,,0,r,1,,\n", "no price of a known chip"),
        (HEADER, "AWS,x\n", "another number of columns"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, header, rows, said):
    with pytest.raises(ImportFileError, match=said):
        read_prices(listed(tmp_path, rows, header))


def test_a_wrong_date(tmp_path):
    with pytest.raises(ImportFileError, match="allowed: YYYY"):
        read_prices(listed(tmp_path, "AWS,x,H100,8,r,8,,\n"), as_of="yesterday")
