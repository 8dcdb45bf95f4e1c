"""Values with units: text such as "3.35 TB/s" to SI floats and back. The only door to pint.

Base units are s, B, FLOP, J, USD and kg; W is J/s. Tokens, requests, sequences and parameters are counts. A dimension is
itself unit text over the base units ("B/s", "USD/J"), so one grammar reads both. The number is read by a regular
expression; of the unit only single words ever reach pint, so no expression of the user's is evaluated.
"""

from __future__ import annotations

import re
from functools import cache
from math import isfinite, log10
from typing import TYPE_CHECKING

from tokenmill.errors import TokenmillError

if TYPE_CHECKING:
    import pint

BASE = ("s", "B", "FLOP", "J", "USD", "kg")
Exponents = tuple[int, ...]  # of the base units, in the order of BASE

MOST_UNIT_CHARACTERS = 40
MOST_CHARACTERS = 100
DAY = 86400.0

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_TERM = re.compile(r"([A-Za-zµ]+|1)(?:\^(\d))?", re.ASCII)

_DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_SMALL = {"m": 1e-3, "u": 1e-6, "µ": 1e-6, "n": 1e-9}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
_PREFIXES = {**_DECIMAL, **_SMALL, **_BINARY}


def _exponents(**powers: int) -> Exponents:
    return tuple(powers.get(unit, 0) for unit in BASE)


_COUNT, _TIME, _BYTES, _ENERGY = _exponents(), _exponents(s=1), _exponents(B=1), _exponents(J=1)
_POWER, _RATE, _MONEY = _exponents(J=1, s=-1), _exponents(B=1, s=-1), _exponents(USD=1)

_ANY, _UP, _INFORMATION, _NONE = {**_DECIMAL, **_SMALL}, _DECIMAL, {**_DECIMAL, **_BINARY}, {"": 1.0}

# word -> (factor to SI, exponents, prefixes it takes)
_WORDS: dict[str, tuple[float, Exponents, dict[str, float]]] = {
    "1": (1.0, _COUNT, _NONE),
    "s": (1.0, _TIME, _ANY),
    **dict.fromkeys(("sec", "second", "seconds"), (1.0, _TIME, _NONE)),
    **dict.fromkeys(("min", "minute", "minutes"), (60.0, _TIME, _NONE)),
    **dict.fromkeys(("h", "hr", "hour", "hours"), (3600.0, _TIME, _NONE)),
    **dict.fromkeys(("d", "day", "days"), (DAY, _TIME, _NONE)),
    **dict.fromkeys(("week", "weeks"), (7 * DAY, _TIME, _NONE)),
    **dict.fromkeys(("month", "months"), (365 * DAY / 12, _TIME, _NONE)),
    **dict.fromkeys(("yr", "year", "years"), (365 * DAY, _TIME, _NONE)),
    "Hz": (1.0, _exponents(s=-1), _UP),
    **dict.fromkeys(("B", "byte", "bytes"), (1.0, _BYTES, _INFORMATION)),
    **dict.fromkeys(("bit", "bits"), (0.125, _BYTES, _INFORMATION)),
    "bps": (0.125, _RATE, _UP),
    **dict.fromkeys(("FLOP", "FLOPs"), (1.0, _exponents(FLOP=1), _UP)),
    "J": (1.0, _ENERGY, _ANY),
    "W": (1.0, _POWER, _ANY),
    "Wh": (3600.0, _ENERGY, _ANY),
    "g": (1e-3, _exponents(kg=1), _ANY),
    **dict.fromkeys(("t", "tonne", "tonnes"), (1e3, _exponents(kg=1), _NONE)),
    "USD": (1.0, _MONEY, _UP),
    **{
        name + plural: (1.0, _COUNT, _UP)
        for name in ("token", "request", "sequence", "sample", "parameter", "task", "document", "page", "chip", "core")
        for plural in ("", "s")
    },
}

# dimension -> (what it is, an example of its text)
_EXAMPLES = {
    "1": ("a count", "70 G"),
    "s": ("a time", "40 ms"),
    "1/s": ("a rate", "400 /s"),
    "B": ("bytes", "80 GB"),
    "B/s": ("a bandwidth", "3.35 TB/s"),
    "FLOP": ("operations", "1 PFLOP"),
    "FLOP/s": ("a rate of operations", "155 TFLOP/s"),
    "J": ("an energy", "19 Wh"),
    "J/s": ("a power", "2 MW"),
    "USD": ("an amount of money", "$30M"),
    "USD/s": ("money a time", "$2.10/h"),
    "USD/J": ("a price of energy", "$0.07/kWh"),
    "USD/B/s": ("a price of storage", "$0.02/GB/month"),
    "kg": ("a mass", "12 kg"),
    "kg/J": ("carbon of energy", "350 g/kWh"),
}


class QuantityError(TokenmillError, ValueError):
    """A text that is not a value of the wanted dimension: what was `found`, what is `allowed`."""

    def __init__(self, found: str, allowed: str) -> None:
        self.found, self.allowed = found, allowed
        super().__init__(f"found {found}; allowed: {allowed}")


def parse_quantity(text: str, dimension: str) -> float:
    """Return the SI value of `text` ("80 GB", "$2.10/h", "70 G"), which must have the dimension (text over BASE, W allowed).

    Raises
    ------
    QuantityError
        For what is no finite number with a unit of that dimension.
    """
    allowed = describe(dimension)
    shown = repr(text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + "…")
    body = text.strip()
    money = body.startswith("$")
    body = body.removeprefix("$").lstrip()
    match = _NUMBER.match(body) if len(body) <= MOST_CHARACTERS else None
    if match is None:
        raise QuantityError(f"{shown} (no number first)", allowed)
    value = float(match[0])
    try:
        factor, exponents = _unit(body[match.end() :].strip(), money=money)
    except ValueError as error:
        raise QuantityError(f"{shown} ({error})", allowed) from None
    if exponents != parse_dimension(dimension):
        raise QuantityError(f"{shown} ({_wrong(exponents)})", allowed)
    if not isfinite(value * factor):
        raise QuantityError(f"{shown} (not a finite number)", allowed)
    return value * factor


def describe(dimension: str) -> str:
    """Return in words, with an example, what text of the dimension looks like."""
    wanted = parse_dimension(dimension)
    for known, (words, text) in _EXAMPLES.items():
        if parse_dimension(known) == wanted:
            return f'{words} such as "{text}"'
    return f"a value with a unit of {dimension}"


def example(dimension: str) -> str:
    """Return text of the dimension, as an example."""
    wanted = parse_dimension(dimension)
    return next((text for known, (_, text) in _EXAMPLES.items() if parse_dimension(known) == wanted), f"1 {dimension}")


def _wrong(exponents: Exponents) -> str:
    if exponents == _COUNT:
        return "no unit"
    for known, (words, _) in _EXAMPLES.items():
        if parse_dimension(known) == exponents:
            return f"this is {words}"
    return "the unit is of another kind"


@cache
def parse_dimension(dimension: str) -> Exponents:
    """Return the exponents of the base units in a dimension.

    Raises
    ------
    ValueError
        For text that is no product of units.
    """
    factor, exponents = _product(dimension.replace(" ", ""))
    if factor != 1.0:
        raise ValueError(f"dimension {dimension!r}: only base units and W")
    return exponents


def _unit(unit: str, *, money: bool) -> tuple[float, Exponents]:
    """Return factor and exponents of a unit; a bare prefix first in it multiplies ("70 G", "$30M/year")."""
    if len(unit) > MOST_UNIT_CHARACTERS:
        raise ValueError(f"a unit of more than {MOST_UNIT_CHARACTERS} characters")
    scale = 1.0
    first, slash, rest = unit.partition("/")
    if first in _DECIMAL:
        scale, unit = _DECIMAL[first], "1" + slash + rest
    factor, exponents = _product(unit)
    if money:
        exponents = tuple(a + b for a, b in zip(exponents, _MONEY, strict=True))
    return scale * factor, exponents


def _product(unit: str) -> tuple[float, Exponents]:
    factor, total, sign, place = 1.0, list(_COUNT), 1, 0
    while True:
        term = _TERM.match(unit, place)
        if term is None:
            raise ValueError(f"the unit {unit!r} does not read at {unit[place:]!r}")
        power = sign * int(term[2] or 1)
        value, exponents = _word(term[1])
        factor *= value**power
        total = [a + power * b for a, b in zip(total, exponents, strict=True)]
        place = term.end()
        if place == len(unit):
            return factor, tuple(total)
        if unit[place] not in "/*":
            raise ValueError(f"the unit {unit!r} does not read at {unit[place:]!r}")
        sign, place = (-1 if unit[place] == "/" else 1), place + 1


@cache
def _word(word: str) -> tuple[float, Exponents]:
    """Return factor and exponents of one unit word, from the table or else from pint."""
    for cut in (0, 1, 2):
        prefix, stem = word[:cut], word[cut:]
        entry = _WORDS.get(stem)
        if entry and prefix in entry[2]:
            return entry[0] * _PREFIXES[prefix], entry[1]
    return by_pint(word)


# Base units first; pint adds long prefixes, plurals and the rarer units to the table above.
_DEFINITIONS = """
second = [time] = s = sec
byte = [information] = B = octet
FLOP = [operation] = FLOP = FLOPs
joule = [energy] = J
dollar = [currency] = USD
kilogram = [mass] = kg
kilo- = 1e3 = k-
mega- = 1e6 = M-
giga- = 1e9 = G-
tera- = 1e12 = T-
peta- = 1e15 = P-
exa- = 1e18 = E-
milli- = 1e-3 = m-
micro- = 1e-6 = u- = µ-
nano- = 1e-9 = n-
kibi- = 1024 = Ki-
mebi- = 1048576 = Mi-
gibi- = 1073741824 = Gi-
tebi- = 1099511627776 = Ti-
pebi- = 1125899906842624 = Pi-
minute = 60 * second = min
hour = 3600 * second = h = hr
day = 24 * hour = d
week = 7 * day
fortnight = 14 * day
year = 365 * day = yr
month = year / 12
quarter = year / 4
decade = 10 * year
hertz = 1 / second = Hz
bit = byte / 8 = bit
nibble = byte / 2
bps = bit / second
watt = joule / second = W
watthour = watt * hour = Wh
horsepower = 745.6998715822702 * watt = hp
calorie = 4.184 * joule = cal
BTU = 1055.05585262 * joule = BTU
cent = dollar / 100
gram = kilogram / 1000 = g
tonne = 1000 * kilogram = t
pound = 0.45359237 * kilogram = lb
token = [] = _ = request = sequence = sample = parameter = task = document = page = chip = core
dozen = 12 * token
"""


@cache
def registry() -> pint.UnitRegistry[float]:
    """Return our own pint registry: its base units are BASE, so data, operations and money are dimensions."""
    import pint

    units: pint.UnitRegistry[float] = pint.UnitRegistry(None)
    units.load_definitions(_DEFINITIONS.strip().splitlines())
    return units


_PINT_DIMENSIONS = ("[time]", "[information]", "[operation]", "[energy]", "[currency]", "[mass]")


def by_pint(word: str) -> tuple[float, Exponents]:
    """Return factor and exponents of a unit word (or product of words) as pint reads it in our registry.

    Raises
    ------
    ValueError
        For a word that the registry does not hold.
    """
    import pint

    try:
        found = registry().Quantity(1.0, registry().Unit(word)).to_base_units()
    except (pint.PintError, AttributeError, TypeError, KeyError) as error:
        raise ValueError(f"the unit {word!r} is not known") from error
    powers = found.dimensionality
    return float(found.magnitude), tuple(int(float(str(powers.get(name, 0)))) for name in _PINT_DIMENSIONS)


_STEPS = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_TIMES = (
    (730 * DAY, 365 * DAY, "years"),
    (2 * DAY, DAY, "days"),
    (7200.0, 3600.0, "h"),
    (120.0, 60.0, "min"),
    (1.0, 1.0, "s"),
    (1e-3, 1e-3, "ms"),
    (1e-6, 1e-6, "us"),
    (0.0, 1e-9, "ns"),
)


def format_quantity(value: float, dimension: str) -> str:
    """Return an SI value as people write it, to three digits: "80.0 GB", "$2.10/h", "30 days"; it can be read again.

    Money from ten cents to a dollar is written in cents.
    """
    if not isfinite(value):
        return "unlimited" if value > 0 else "-unlimited" if value < 0 else "not a number"
    wanted = parse_dimension(dimension)
    sign, size = ("-" if value < 0 else ""), abs(value)
    if wanted == _TIME:
        return sign + _format_time(size)
    if wanted[BASE.index("USD")] == 1:
        return sign + _format_money(size, wanted)
    if wanted == parse_dimension("kg/J"):
        return f"{sign}{_digits(size * 3.6e9)} g/kWh"
    unit = _unit_name(wanted, dimension)
    step, prefix = next(((s, p) for s, p in _STEPS if size >= s * 0.9995), (1.0, ""))
    if unit == "kg":
        step, prefix = 1.0, ""
    digits = _digits(size / step)
    if wanted == _COUNT and not prefix:
        digits = digits.removesuffix(".0")
    return f"{sign}{digits} {prefix}{unit}".rstrip()


def _unit_name(wanted: Exponents, dimension: str) -> str:
    if wanted == _COUNT:
        return ""
    return "W" if wanted == _POWER else dimension.removeprefix("1")


def _format_time(size: float) -> str:
    _, unit, name = next(entry for entry in _TIMES if size >= entry[0] * 0.9995)
    if size == 0:
        return "0 s"
    text = _digits(size / unit).removesuffix(".0")
    return f"{text} {name[:-1] if text == '1' and name.endswith('s') and len(name) > 2 else name}"


def _format_money(size: float, wanted: Exponents) -> str:
    per = tuple(power - base for power, base in zip(wanted, _MONEY, strict=True))
    factor, suffix = {
        _COUNT: (1.0, ""),
        tuple(-p for p in _TIME): (3600.0, "/h"),
        tuple(-p for p in _ENERGY): (3.6e6, "/kWh"),
        tuple(-a - b for a, b in zip(_BYTES, _TIME, strict=True)): (1e9 * 365 * DAY / 12, "/GB/month"),
    }.get(per, (1.0, ""))
    size *= factor
    if suffix == "" and per != _COUNT:
        names = [(unit, power) for unit, power in zip(BASE, per, strict=True) if power]
        suffix = "".join(f"/{unit}^{-power}" if power < 0 else f"*{unit}^{power}" for unit, power in names)
    step, prefix = next(((s, p) for s, p in _STEPS[2:] if size >= s * 0.9995 and s > 1e3), (1.0, ""))
    size /= step
    text = f"{size:.2f}" if prefix == "" and 0.1 <= size < 1e6 else _digits(size)
    return f"${text}{prefix}{suffix}"


def _digits(size: float) -> str:
    """Return three significant digits, at least one of them behind the point where the value is under 100."""
    if size == 0:
        return "0"
    if size < 1e-6 or size >= 1e15:
        return f"{size:.3g}"
    places = max(0, 2 - int(log10(size) // 1))
    text = f"{size:.{places}f}"
    if "." in text:
        text = text.rstrip("0")
        text += "0" if text.endswith(".") else ""
    return text
