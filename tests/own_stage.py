"""The stage of `outside_stage` as a plugin: a module that registers it when it is imported."""

from __future__ import annotations

from outside_stage import SHOP
from tokenmill_models.stage import register_stage

register_stage(SHOP)
