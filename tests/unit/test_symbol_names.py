"""Symbols are one namespace: every module and every stage can be loaded in one process, in either order."""

import subprocess
import sys

import pytest

LOAD = """
import sys
sys.path[:0] = {path!r}
from importlib import import_module
from pkgutil import iter_modules
import tokenmill_models
from sample_leaves import dense, expert, latent
names = sorted(module.name for module in iter_modules(tokenmill_models.__path__))
shapes = (dense(256, 4, 2, 64, 512, 4, 1000), expert(256, 4, 2, 64, 128, 8, 2, 128, 4, 1, 1000),
          latent(256, 4, 64, 96, 32, 16, 32, 512, 4, 1000))
def load():
    for name in names:
        import_module("tokenmill_models." + name)
def build():
    from tokenmill_models.stage import stages
    for stage in stages().values():
        for shape in shapes:
            stage.roles(shape)
for step in {order}:
    globals()[step]()
"""


@pytest.mark.parametrize("order", [("load", "build"), pytest.param(("build", "load"), marks=pytest.mark.slow)])
def test_every_module_and_stage_share_the_symbols(order):
    script = LOAD.format(path=[p for p in sys.path if p], order=order)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
