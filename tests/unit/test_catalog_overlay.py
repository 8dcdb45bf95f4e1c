"""A user's own catalogue over the shipped one, and chips of a problem file."""

import pytest

from tokenmill.catalog import load_catalog
from tokenmill.errors import CatalogError

CATALOG = load_catalog()


def overlay(tmp_path, **files):
    for name, text in files.items():
        folder, _, stem = name.partition("_")
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / f"{stem}{'.csv' if folder == 'prices' else '.toml'}").write_text(text)
    return load_catalog(tmp_path)


CHIP = """
[my-card]
tflops = { fp16 = 155 }
memory = { kind = "gddr", gb = 48, gb_per_s = 768 }
host_link = { gb_per_s = 31.5 }
tdp_w = 300
like = "rtx-4090"
"""


def test_a_new_chip_and_a_system_of_it(tmp_path):
    catalog = overlay(
        tmp_path,
        chips_mine=CHIP,
        systems_mine='[box]\nchip = "my-card"\nchips_per_node = 4\nscale_out = { gbit_per_s = 100 }\n',
    )
    chip = catalog.chip("my-card")
    assert (chip.origin, chip.capacity, chip.peak["fp16"]) == ("user", 48e9, 155e12)
    assert catalog.measured_share("my-card", "fp16").value == CATALOG.measured_share("rtx-4090", "fp16").value
    box = catalog.system("box")
    assert (box.chips, box.topology, box.scale_out, box.origin) == (4, "none", 12.5e9, "user")
    assert "my-card" not in CATALOG.chips


def test_a_known_id_keeps_what_the_user_does_not_state(tmp_path):
    catalog = overlay(tmp_path, chips_mine="[h100-sxm]\ntdp_w = 500\n")
    chip, shipped = catalog.chip("h100-sxm"), CATALOG.chip("h100-sxm")
    assert (chip.tdp, chip.origin) == (500, "user")
    assert chip.bandwidth == shipped.bandwidth
    assert shipped.tdp == 700


def test_own_prices_replace_those_of_their_chip_and_market(tmp_path):
    text = "chip,provider,market,usd_per_hour,chips,as_of,checked\nh100-sxm,ours,on-demand,16,8,2026-11,yes\n"
    catalog = overlay(tmp_path, prices_mine=text)
    for name in ("hgx-h100", "h100-sxm"):
        choice = catalog.price(name, "on-demand")
        assert (choice.per_chip_hour, choice.providers) == (2.0, ("ours",))
    assert catalog.price("hgx-h100", "spot") == CATALOG.price("hgx-h100", "spot")
    assert catalog.price("hgx-h200", "on-demand") == CATALOG.price("hgx-h200", "on-demand")


def test_an_older_list_in_the_providers_own_form_is_laid_over(tmp_path):
    text = "InstanceType,AcceleratorName,AcceleratorCount,Price,SpotPrice,Region\np5.48xlarge,H100,8,98.32,,us-east-1\n"
    choice = overlay(tmp_path, prices_vms=text).price("p5-48xlarge", "on-demand", provider="prices")
    assert choice.per_chip_hour == pytest.approx(98.32 / 8)
    assert choice.stale


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[x]\ntflops = { fp9 = 1 }\n", r"chips.x.tflops: found 'fp9'; allowed: fp32"),
        ("[x]\ntdp = 3\n", "unknown key 'tdp'.*tdp_w"),
        ("[x]\ntdp_w = -3\n", r"chips.x.tdp_w: found -3; allowed: a finite number"),
        ("[x]\ntdp_w = nan\n", r"chips.x.tdp_w: found nan"),
        ("[x]\nmemory = { kind = 'hbm', gib = 1, gb = 1, gb_per_s = 1 }\n", "exactly one of usable_gib, gib, gb"),
        ("[x]\nmemory = { kind = 'tape', gib = 1, gb_per_s = 1 }\n", "chips.x.memory.kind: found 'tape'"),
        ("[x]\nmaturity = 'soon'\n", "allowed: production, customer-test, lab, simulation"),
        ("[x\n", "not TOML"),
        ("x = 3\n", "allowed: a table"),
        ("[x]\nchecked = 'maybe'\n", "chips.x.checked: found 'maybe'; allowed: true or false"),
        ("[x]\nranks = 1.5\n", "a whole number"),
        ("[x]\nsources = 3\n", "a list of texts"),
    ],
)
def test_faults_are_named_with_their_place(tmp_path, text, said):
    with pytest.raises(CatalogError, match=said):
        overlay(tmp_path, chips_mine=text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[s]\nchip = 'nothing'\n", "systems.s.chip: found 'nothing'"),
        (
            "[s]\nchip = 'l40s'\nchips_per_node = 8\nscale_up = { topology = 'switch', domain = 8 }\n",
            "gb_per_s above 0",
        ),
        ("[s]\nchip = 'h100-sxm'\nscale_up = { topology = 'star' }\n", "found 'star'; allowed: switch, mesh"),
    ],
)
def test_faults_of_systems(tmp_path, text, said):
    with pytest.raises(CatalogError, match=said):
        overlay(tmp_path, systems_mine=text)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(CatalogError, match="allowed: a directory"):
        load_catalog(tmp_path / "nothing")


def test_an_id_given_twice(tmp_path):
    with pytest.raises(CatalogError, match="given twice"):
        overlay(tmp_path, chips_a=CHIP, chips_b=CHIP)


def test_chips_of_a_problem_file():
    stated = {"memory": 48e9, "bandwidth": 768e9, "fp16": 155e12, "power": 300.0, "like": "rtx-4090"}
    catalog = CATALOG.with_chips({"my-card": stated, "h100-sxm": {"bandwidth": 3e12}})
    mine = catalog.system("my-card")
    assert (mine.chips, mine.host_link) == (8, CATALOG.chip("rtx-4090").host_link)
    assert catalog.chip("my-card").figures["bandwidth"].source == "problem file"
    assert catalog.measured_share("my-card", "bandwidth").value == CATALOG.measured_share("rtx-4090", "bandwidth").value
    changed = catalog.chip("h100-sxm")
    assert (changed.bandwidth, changed.capacity, changed.origin) == (3e12, CATALOG.chip("h100-sxm").capacity, "user")
    assert catalog.system("hgx-h100").chip == "h100-sxm"


def test_a_chip_of_a_problem_file_that_lacks_figures():
    with pytest.raises(CatalogError, match=r"lacks memory and bandwidth, power, a rate"):
        CATALOG.with_chips({"bare": {"host_link": 1e9}})


def test_a_stated_scale_up_rate_keeps_the_share_of_a_peer():
    chip = CATALOG.with_chips({"mi300x": {"scale_up": 896e9}}).chip("mi300x")
    assert chip.scale_up_pair == pytest.approx(128e9)
    fresh = {"memory": 1e9, "bandwidth": 1e9, "bf16": 1e12, "power": 10.0, "scale_up": 100e9}
    assert CATALOG.with_chips({"new": fresh}).system("new").topology == "switch"
