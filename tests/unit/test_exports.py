"""The library's verbs are what they say, whatever was imported before."""

import subprocess
import sys

import tokenmill
import tokenmill.derive
import tokenmill.explain


def test_every_public_name_is_there():
    assert set(tokenmill.__all__) == set(tokenmill._HOMES)
    for name in tokenmill.__all__:
        assert callable(getattr(tokenmill, name))


def test_a_verb_is_not_hidden_by_its_module():
    assert tokenmill.derive("roofline.ridge").latex().startswith("ridge")


def test_importing_the_package_loads_nothing_heavy():
    heavy = "sympy, numpy, pulp, highspy, networkx, pint, rich"
    code = f"import sys, tokenmill; print(sorted(set('{heavy}'.split(', ')) & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
