"""The catalogue as a whole: what it holds, how names are looked up, what stands behind each figure."""

import re
from dataclasses import fields
from math import isfinite

import pytest

from tokenmill import data
from tokenmill.catalog import System, catalog_entry, catalog_table, load_catalog
from tokenmill.catalog_page import page
from tokenmill.catalog_records import EVIDENCE, MATURITY, PRECISIONS, TOPOLOGIES
from tokenmill.errors import CatalogError

CATALOG = load_catalog()
ID = re.compile(r"[a-z0-9]+([.-][a-z0-9]+)*")


def test_size():
    assert len(CATALOG.chips) >= 95
    assert len(CATALOG.systems) >= 48


def test_ids_are_kebab_case():
    for table in (CATALOG.chips, CATALOG.systems, CATALOG.networks, CATALOG.stores, CATALOG.links):
        for id, record in table.items():
            assert ID.fullmatch(id)
            assert record.id == id


def test_every_figure_is_positive_finite_with_a_source_and_known_evidence():
    records = [*CATALOG.chips.values(), *CATALOG.systems.values(), *CATALOG.networks.values(), *CATALOG.stores.values()]
    for record in records:
        assert record.source
        for name, figure in record.figures.items():
            assert isfinite(figure.value), (record.id, name)
            assert figure.value > 0, (record.id, name)
            assert figure.evidence in EVIDENCE
            assert figure.source
            assert figure.unit


def test_citations_are_known_keys():
    sources = (data.path("catalog") / "sources.toml").read_text()
    keys = set(re.findall(r'^"?([^"\s]+)"? = \{', sources, re.M))
    for folder in ("chips", "systems", "networks", "stores"):
        for file in (data.path("catalog") / folder).glob("*.toml"):
            for line in re.findall(r"^sources = \[(.*)\]", file.read_text(), re.M):
                assert set(re.findall(r'"([^"]+)"', line)) <= keys, (file, line)


def test_citations_are_one_work_each():
    # several are joined by "; ", so none may hold one
    for line in (data.path("catalog") / "sources.toml").read_text().splitlines():
        assert ";" not in line


def test_hosts():
    assert CATALOG.system("cpu-epyc-9654").cores == 2 * 96
    assert CATALOG.system("p5-48xlarge").cores == 192 / 2
    assert CATALOG.system("rtx-4090").cores is None
    assert CATALOG.system("gb200-nvl72").rack_power == 120e3  # one rack
    assert CATALOG.system("tpu-v5e-pod").rack_power == CATALOG.system("tpu-v5e-pod").power / 32  # of one of 32 hosts


def test_an_unchecked_figure_is_a_guess_and_a_claimed_product_is_a_claim():
    assert CATALOG.chip("rtx-4090").figures["peak.bf16"].evidence == "guess"
    assert CATALOG.chip("rtx-4090").figures["bandwidth"].evidence == "datasheet"
    assert CATALOG.chip("h20").figures["bandwidth"].evidence == "guess"
    assert CATALOG.chip("maia-200").figures["peak.fp8"].evidence == "claim"
    assert CATALOG.chip("h100-sxm").figures["measured_peak.bf16"].evidence == "measured"


def test_chips_are_consistent():
    for chip in CATALOG.chips.values():
        assert chip.maturity in MATURITY
        assert set(chip.peak) <= set(PRECISIONS)
        for precision, best in chip.measured_peak.items():
            assert best < chip.peak[precision], (chip.id, precision)
        if chip.memory:
            assert chip.bandwidth > 0
            assert chip.capacity > 0
        if chip.measured_bandwidth:
            assert chip.measured_bandwidth < chip.bandwidth
        assert chip.idle_power < chip.tdp or not chip.tdp
        assert chip.scale_up_pair <= chip.scale_up


def test_systems_are_consistent():
    for system in CATALOG.find_systems("simulation"):
        chip = CATALOG.chip(system.chip)
        assert system.chips == system.chips_per_node * system.nodes
        assert system.topology in TOPOLOGIES
        assert 1 <= system.scale_up_domain <= system.chips
        assert system.power >= system.chips * chip.tdp * 0.6, system.id  # some makers state less than the sum of limits
        assert MATURITY.index(system.maturity) >= MATURITY.index(chip.maturity)
        if system.torus_dims:
            size = 1
            for side in system.torus_dims:
                size *= side
            assert size == system.chips, system.id
        if system.topology != "none" and system.scale_up_domain > 1:
            assert system.scale_up > 0


def test_every_relative_is_measured_in_the_end():
    for chip in CATALOG.chips.values():
        if chip.like:
            assert any(relative.measured_peak for relative in CATALOG.lineage(chip.id)), chip.id


@pytest.mark.parametrize("precision", [*PRECISIONS, "bandwidth"])
def test_no_chip_reaches_all_of_its_peak(precision):
    for chip in CATALOG.chips.values():
        share = CATALOG.measured_share(chip.id, precision)
        assert 0.3 < share.value < 1
        own = precision in chip.measured_peak or (precision == "bandwidth" and chip.measured_bandwidth)
        if not own and precision != "fp16":
            assert share.evidence == "guess"


def test_measured_shares_are_those_published():
    # best matrix products over dense peaks, ml-engineering accelerator chapter: A100 87%, Gaudi 2 97%, MI300X 51%
    for chip, share in (("a100-sxm-80gb", 0.8692), ("gaudi-2", 0.9692), ("mi300x", 0.5114), ("h100-sxm", 0.803)):
        figure = CATALOG.measured_share(chip, "bf16")
        assert figure.value == pytest.approx(share, rel=2e-3)
        assert figure.evidence == "measured"


def test_a_relative_lends_its_share_as_a_guess():
    lent = CATALOG.measured_share("h800-sxm", "bf16")
    assert lent.value == CATALOG.measured_share("h100-sxm", "bf16").value
    assert lent.evidence == "guess"


def test_unknown_names_are_refused_with_the_nearest():
    with pytest.raises(CatalogError, match=r"hgx-h10.*did you mean 'hgx-h100'"):
        CATALOG.system("hgx-h10")
    with pytest.raises(CatalogError, match="did you mean 'hgx-h200'"):
        CATALOG.system("HGX-H200")
    with pytest.raises(CatalogError, match="did you mean 'h100-sxm'"):
        CATALOG.chip("h100-sxn")
    with pytest.raises(CatalogError, match="did you mean 'rail-400g'"):
        CATALOG.network("rail-40g")
    with pytest.raises(CatalogError, match="did you mean 'parallel-fs'"):
        CATALOG.store("parallell-fs")
    with pytest.raises(CatalogError, match="allowed"):
        CATALOG.precision("fp9")


def test_a_chip_stands_for_its_plainest_host():
    card = CATALOG.system("rtx-4090")
    assert (card.chips, card.topology, card.rent_by_chip, card.built) == (8, "none", True, True)
    assert card.host_link == 31.5e9
    assert CATALOG.system("apple-m4").chips == 1
    assert CATALOG.system("snapdragon-8-elite").chips == 1
    bridged = CATALOG.system("h100-pcie")
    assert (bridged.chips, bridged.topology) == (8, "none")
    assert CATALOG.system("gh200-96gb").chips == 1
    assert CATALOG.system("h100-sxm").scale_up == 450e9


def test_find_systems_follows_the_order_of_maturity():
    counts = [len(CATALOG.find_systems(word)) for word in MATURITY]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]
    names = {system.id for system in CATALOG.find_systems()}
    assert {"hgx-h100", "gb200-nvl72", "rtx-4090", "cpu-epyc-9654"} <= names
    assert not names & {"vr-nvl72", "groq-3-lpx", "jalapeno", "sohu", "h100-sxm"}
    assert "vr-nvl72" in {system.id for system in CATALOG.find_systems("customer-test")}
    with pytest.raises(CatalogError, match="found 'soon'; allowed: production"):
        CATALOG.find_systems("soon")


def test_names_that_problem_files_use_are_there():
    for name in ("rail-200g", "rail-400g", "rail-800g", "fat-tree-3to1", "ethernet-100g"):
        assert CATALOG.network(name).bandwidth > 0
    rail = CATALOG.network("rail-400g")
    assert (rail.bandwidth, rail.leaf, rail.oversubscription, rail.rails) == (50e9, None, 1, 8)
    tree = CATALOG.network("fat-tree-3to1")
    assert (tree.bandwidth, tree.leaf, tree.oversubscription) == (50e9, 32, 3)
    assert CATALOG.store("parallel-fs").read > 0
    for name in ("cpu-epyc-9654", "hgx-h100", "hgx-h200", "mi300x-8", "snapdragon-8-elite", "apple-a18-pro"):
        assert isinstance(CATALOG.system(name), System)
    words = "fp32 tf32 bf16 fp16 fp8 fp8-row fp8-block fp8-mlp mxfp8 int8 int4 nvfp4 mxfp4 q2_k q3_k_m q3_k_xl q4_0 q4_k_m q4_k_xl"
    for word in (words + " q5_k_m q6_k q6_k_xl q8_0 q8_k_xl iq2_xxs iq3_xxs").split():
        assert CATALOG.precision(word).bits > 0


def test_bits_of_block_formats():
    assert CATALOG.precision("mxfp4").bits == 4 + 8 / 32
    assert CATALOG.precision("nvfp4").bits == 4 + 8 / 16
    assert CATALOG.precision("q8_0").bits == 34 * 8 / 32
    assert CATALOG.precision("q6_k").bits == 210 * 8 / 256
    assert 1 - CATALOG.precision("int4").bits / 16 == pytest.approx(0.74, abs=2e-3)


def test_mean_bits_of_files_whose_size_is_published():
    # GiB of GGUF files and parameters of the models (Llama 2 7B: 6.738e9; Llama 3 70B: 70.55e9)
    for word, gib, parameters in (("q4_0", 3.562, 6.738e9), ("q4_k_m", 39.59, 70.55e9), ("q8_0", 6.67, 6.738e9)):
        assert CATALOG.precision(word).bits == pytest.approx(gib * 2**33 / parameters, rel=1e-2)


def test_failure_rate_of_the_llama_3_run():
    assert CATALOG.failure_rate("h100-sxm").value == pytest.approx(419 / (54 * 86400 * 16384), rel=1e-3)
    assert CATALOG.failure_rate("tpu-v5p").evidence == "guess"


def test_units_of_grids():
    assert CATALOG.grids["fra"].carbon * 3.6e9 == pytest.approx(44.2)
    texas = CATALOG.grids["texas-industrial"]
    assert texas.price * 3.6e6 == pytest.approx(0.0539)


def test_tables_and_entries_read_well():
    for kind in (
        "chips",
        "systems",
        "links",
        "networks",
        "prices",
        "stores",
        "services",
        "grids",
        "power",
        "cpus",
        "refused",
    ):
        rows = catalog_table(kind)
        assert rows
        assert all(row.keys() == rows[0].keys() for row in rows)
    with pytest.raises(CatalogError, match="did you mean 'chips'"):
        catalog_table("chip")
    assert next(row for row in catalog_table("networks") if row["id"] == "rail-400g")["source"].startswith("stas00/")
    assert not any("(" in row["source"] or "," in row["source"] for row in catalog_table("chips"))
    entry = catalog_entry("h100-sxm")
    assert entry["figures"]["bandwidth"]["reads"] == "3.35 TB/s"
    assert entry["figures"]["peak.bf16"]["reads"] == "989 TFLOP/s"
    assert entry["figures"]["capacity"]["reads"] == "79.65 GiB"
    assert catalog_entry("rubin-cpx")["status"] == "withdrawn"
    assert catalog_entry("hgx-h100")["chips"] == 8
    with pytest.raises(CatalogError, match="did you mean"):
        catalog_entry("hgx-h10")


def test_the_page_is_up_to_date():
    written = (data.path("catalog").parent / "docs" / "catalog.md").read_text(encoding="utf-8")
    assert written == page(CATALOG), "run: python -m tokenmill.catalog_page docs/catalog.md"


def test_version_follows_the_data(tmp_path):
    (tmp_path / "networks").mkdir()
    file = tmp_path / "networks" / "mine.toml"
    file.write_text('[my-net]\nkind = "rail"\ngbit_per_s = 100\n')
    assert load_catalog(tmp_path).version != CATALOG.version
    assert re.fullmatch(r"[0-9a-f]{12}", CATALOG.version)


def test_records_are_frozen():
    for name in (field.name for field in fields(System)):
        with pytest.raises(AttributeError):
            setattr(CATALOG.system("hgx-h100"), name, None)
