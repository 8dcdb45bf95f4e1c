"""Known traps of published hardware figures, each against the figure that makers' documents or measurements state."""

import csv
from math import inf

import pytest

from tokenmill import data
from tokenmill.catalog import load_catalog
from tokenmill.errors import CatalogError

CATALOG = load_catalog()
GIB = 2.0**30

# chip, precision, dense TFLOP/s, and what is printed elsewhere for it
DENSE = [
    ("h100-sxm", "fp8", 1979, "3,958 counts 2:4 sparsity"),
    ("h100-sxm", "bf16", 989, "1,979 counts sparsity"),
    ("b200-sxm", "fp8", 4500, "9,000 is sparse"),
    ("b200-sxm", "fp4", 9000, "144 PF a DGX B200 is sparse: 72 dense"),
    ("gb200", "fp4", 10000, "1,440 PF a rack is sparse: 720 dense"),
    ("b300-sxm", "fp4", 13500, "not half of the sparse 18 PF"),
    ("b300-sxm", "int8", 153.5, "INT8 was cut; a table still prints 4,500"),
    ("gb300", "int8", 165, "INT8 was cut; a table still prints 5,000"),
    ("r200", "fp4", 35000, "50 PF is inference with compression"),
    ("mi300x", "fp8", 2615, "5,230 is sparse"),
    ("mi355x", "fp8", 5033, "10.1 PF is sparse"),
    ("gaudi-3", "bf16", 1677, "1,835 needs a clock that is not shipped"),
    ("trainium2", "fp8", 1299, "2,563 is 4x sparse"),
]


@pytest.mark.parametrize(("chip", "precision", "tera", "trap"), DENSE)
def test_peaks_are_dense(chip, precision, tera, trap):
    assert CATALOG.chip(chip).peak[precision] == pytest.approx(tera * 1e12), trap


@pytest.mark.parametrize("chip", ["tpu-v5p", "tpu-v6e", "gaudi-3", "trainium1"])
def test_fp8_runs_at_the_bf16_rate_there(chip):
    assert CATALOG.chip(chip).peak["fp8"] == CATALOG.chip(chip).peak["bf16"]


@pytest.mark.parametrize("chip", ["a100-sxm-80gb", "v100-sxm2-32gb", "tpu-v4"])
def test_fp8_is_absent_there(chip):
    assert "fp8" not in CATALOG.chip(chip).peak


def test_mxfp4_is_no_faster_than_mxfp8_on_trainium3():
    assert CATALOG.chip("trainium3").peak["fp4"] == CATALOG.chip("trainium3").peak["fp8"]


@pytest.mark.parametrize(
    ("system", "precision", "petaflops"),
    [("hgx-b200", "fp4", 72), ("gb200-nvl72", "fp4", 720), ("hgx-b300", "fp4", 108), ("gb300-nvl72", "fp4", 1080)],
)
def test_chips_add_up_to_the_dense_figure_of_their_system(system, precision, petaflops):
    found = CATALOG.system(system)
    assert found.chips * CATALOG.chip(found.chip).peak[precision] == pytest.approx(petaflops * 1e15)


def test_engines_are_not_summed():
    orin = CATALOG.chip("jetson-agx-orin-64gb")  # 275 sparse TOPS: GPU 170 and DLAs 105
    assert orin.peak["int8"] == pytest.approx(170e12 / 2)
    assert orin.other_engines["dla_int8"] == pytest.approx(105e12 / 2)
    strix = CATALOG.chip("ryzen-ai-max-395")
    assert "int8" not in strix.peak
    assert strix.other_engines["npu_int8"] == 50e12


# GB/s one way: half of what is printed both ways
ONE_WAY = [
    ("a100-sxm-80gb", 300),
    ("h100-sxm", 450),
    ("b200-sxm", 900),
    ("gb200", 900),
    ("r200", 1800),
    ("tpu7x", 600),
    ("mi300x", 448),
    ("mi350x", 1075 / 2),
    ("mi355x", 1075 / 2),
    ("trainium2", 640),
    ("trainium3", 704),
]


@pytest.mark.parametrize(("chip", "rate"), ONE_WAY)
def test_links_are_one_way(chip, rate):
    assert CATALOG.chip(chip).scale_up == pytest.approx(rate * 1e9)


def test_a_mesh_pair_gets_its_share_of_the_total():
    for name in ("mi300x-8", "mi325x-8"):
        assert CATALOG.system(name).scale_up_pair == pytest.approx(448e9 / 7)
    assert CATALOG.system("mi355x-8").scale_up_pair == pytest.approx(1075e9 / 2 / 7)
    assert CATALOG.system("hgx-h100").scale_up_pair == 450e9


def test_a_link_of_a_superchip_is_shared_by_its_two_gpus():
    assert CATALOG.chip("gb200").host_link == pytest.approx(450e9 / 2)


@pytest.mark.parametrize("name", ["efa-v1", "efa-v2", "tcpx", "tcpxo"])
def test_rates_printed_for_a_node_of_eight_are_kept_for_a_chip(name):
    gbit_per_node = {"efa-v1": 400, "efa-v2": 3200, "tcpx": 800, "tcpxo": 1600}[name]
    assert CATALOG.links[name].bandwidth * 8 == pytest.approx(gbit_per_node / 8 * 1e9)


# what a driver shows in MiB, from result descriptions; never the label times 1e9
DRIVER = [("h100-sxm", 81559), ("b200-sxm", 183359), ("gb200", 189471), ("b300-sxm", 275040), ("gb300", 284208)]


@pytest.mark.parametrize(("chip", "mib"), DRIVER)
def test_capacity_is_what_the_driver_shows(chip, mib):
    assert CATALOG.chip(chip).capacity == pytest.approx(mib * 2**20, rel=2e-3)


@pytest.mark.parametrize(
    ("chip", "gib"), [("mi325x", 256), ("a100-sxm-80gb", 80), ("mi300x", 192), ("h200-sxm", 141), ("tpu-v5e", 16)]
)
def test_capacity_where_the_unit_is_known(chip, gib):
    assert CATALOG.chip(chip).capacity == gib * GIB


@pytest.mark.parametrize(
    ("chip", "ranks"), [("mi250x", 2), ("trainium1", 2), ("inferentia2", 2), ("tpu7x", 1), ("h100-sxm", 1)]
)
def test_ranks_of_a_chip(chip, ranks):
    assert CATALOG.chip(chip).ranks == ranks


def test_a_chip_is_one_gpu_not_a_pair_and_not_a_superchip():
    assert CATALOG.chip("h100-nvl-94gb").capacity == 94 * GIB
    assert CATALOG.chip("gb200").peak["bf16"] == 2500e12


def test_xeon_rates_follow_from_the_instruction_rate():
    cores, clock = 128, 2.0e9
    xeon = CATALOG.chip("xeon-6980p")
    assert xeon.peak["bf16"] == pytest.approx(cores * clock * 1024, rel=1e-2)
    assert xeon.peak["int8"] == pytest.approx(cores * clock * 2048, rel=1e-2)


def test_grace_fp32_is_twice_its_fp64_rate():
    assert CATALOG.chip("grace").peak["fp32"] == pytest.approx(2 * 3.55e12, rel=1e-2)


def test_shipped_node_networks():
    gbit = {
        "hgx-b200": 400,
        "hgx-b300": 800,
        "gb200-nvl72": 400,
        "p6e-gb200": 800,
        "a3-highgpu-8g": 100,
        "p4d-24xlarge": 50,
    }
    for name, rate in gbit.items():
        assert CATALOG.system(name).scale_out == rate / 8 * 1e9


def test_bus_bandwidth_above_the_wire_is_not_the_share_taken():
    assert CATALOG.link_share("h100-sxm").value == pytest.approx(0.745)  # all-gather; in-switch all-reduce shows 0.989
    assert CATALOG.link_share("h200-sxm").value < 1


def test_a_peculiar_machine_is_not_generalised():
    assert CATALOG.link_share("l40s").value > 0.3  # one box without peer-to-peer reached 0.044


@pytest.mark.parametrize("name", ["rubin-cpx", "vr-nvl144-cpx", "amd-cerebras", "vr-nvl144"])
def test_what_is_not_offered_is_refused_with_its_reason(name):
    reason = CATALOG.refused[name].reason
    for lookup in (CATALOG.system, CATALOG.chip):
        with pytest.raises(CatalogError, match="not offered") as raised:
            lookup(name)
        assert reason in str(raised.value)


@pytest.mark.parametrize("name", ["jalapeno", "sohu"])
def test_what_has_no_published_rates_is_known_and_not_planned_with(name):
    assert CATALOG.chip(name).missing
    with pytest.raises(CatalogError, match="no published"):
        CATALOG.system(name)


def test_trends_are_no_prices_and_regions_are_whole():
    folder = data.path("catalog")
    for file in ("rental", "purchase", "services", "vcpu"):
        assert "ratio" not in (folder / "prices" / f"{file}.csv").read_text()
    regions = {grid.region for grid in CATALOG.grids.values() if grid.price}
    assert {"Northern Virginia", "New Mexico"} <= regions
    assert not regions & {"New", "Northern"}


def test_spot_is_below_on_demand_of_the_same_offer():
    listed = {(p.offer, p.region): p.per_chip_hour for p in CATALOG.prices if p.market == "on-demand" and p.offer}
    spots = [p for p in CATALOG.prices if p.market == "spot"]
    assert spots
    for spot in spots:
        assert spot.per_chip_hour < listed.get((spot.offer, spot.region), inf)


def test_host_and_gpu_rows_are_summed():
    prices = CATALOG.prices_of("a3-highgpu-8g", "on-demand")
    assert [p.per_chip_hour * 8 for p in prices] == [pytest.approx(78.372 + 9.460, abs=1e-3)]


def test_modelled_cost_of_ownership_is_not_a_market():
    assert not any(price.market == "owner-tco" for price in CATALOG.prices)
    with (data.path("catalog") / "prices" / "owner_tco.csv").open() as file:
        assert next(csv.reader([line for line in file if line.startswith("chip,")]))[4] == "market"
