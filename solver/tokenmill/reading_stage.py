"""What a stage's workload may hold, by dotted key: its inputs, its choices, the members of its classes, its roles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tokenmill.problem import Workload
from tokenmill.reading_keys import Key, keys_of
from tokenmill_models.stage import Axis, Input, StageModel

PRECISION = "precision."
PUBLISHED = "published"

# Choices that every stage has and the programme makes
GENERIC = {
    "layout.system": Key("system", "name", "the system or chip", of="system"),
    "layout.chips": Key("chips", "number", "chips of one run or replica", whole=True, minimum=1),
    "layout.replicas": Key("replicas", "number", "replicas of a role", whole=True, minimum=1),
}


@dataclass(frozen=True)
class StageKeys:
    """Keys of a stage's workload.

    `common`: inputs that are keys of every workload; `inputs` and `choices` by dotted key; `members` of a list of
    tables by the list's dotted key; `classes`: the list that states request classes; `roles`: tables of one role.
    """

    common: Mapping[str, Input]
    inputs: Mapping[str, Input]
    choices: Mapping[str, Key]
    members: Mapping[str, Mapping[str, Input]]
    classes: str | None
    roles: tuple[str, ...]

    def level(self) -> str:
        """Return the table that the list of classes stands in, with its point."""
        return self.classes[: self.classes.rfind(".") + 1] if self.classes else ""

    def shared(self) -> dict[str, str]:
        """Return the keys beside the list of classes that stand for a member of each: dotted key to member."""
        members = self.members.get(self.classes or "", {})
        return {self.level() + member: member for member in members if member != "share"}

    def leaves(self) -> set[str]:
        """Return every dotted key that holds a value."""
        return {*self.inputs, *self.choices, *self.shared(), *([self.classes] if self.classes else [])}


def stage_keys(stage: StageModel) -> StageKeys:
    """Return the keys of a stage."""
    members: dict[str, dict[str, Input]] = {}
    common: dict[str, Input] = {}
    inputs: dict[str, Input] = {}
    own = keys_of(Workload)
    for item in stage.inputs:
        owner, bracket, member = item.name.partition("[].")
        if bracket:
            members.setdefault(owner, {})[member] = item
        else:
            (common if item.name in own else inputs)[item.name] = item
    choices = {axis.key: choice_key(axis) for axis in stage.axes}
    if stage.demand and stage.demand.devices:
        choices[stage.demand.devices] = Key(stage.demand.devices, "name", "devices to choose among", of="system")
    roles = [role for route in stage.routes for role in route.roles]
    roles += [role for coupling in stage.couplings for role in (coupling.source, coupling.target)]
    roles += stage.parts
    classes = stage.demand.classes if stage.demand else None
    return StageKeys(common, inputs, GENERIC | choices, members, classes, tuple(dict.fromkeys(roles)))


def choice_key(axis: Axis) -> Key:
    """Return the Key of one held value of a choice; a held number need not be on the grid. A symbol that is positive refuses zero."""
    known = (*axis.values, *(axis.default or ()))
    label = axis.key.rsplit(".", 1)[-1]
    if known and all(isinstance(value, bool) for value in known):
        return Key(label, "flag", axis.doc)
    if axis.codes is None and any(isinstance(value, str) for value in known) and axis.key.startswith(PRECISION):
        return Key(label, "name", axis.doc, of="precision")
    if axis.codes is not None or any(isinstance(value, str) for value in known):
        words = dict.fromkeys((*(axis.codes or ()), *known))
        return Key(label, "word", axis.doc, among=tuple(str(value) for value in words if isinstance(value, str)))
    whole = all(float(value).is_integer() for value in known)
    least = min(known, default=1)
    above = 0.0 if least > 0 and axis.symbol is not None and axis.symbol.is_positive else None
    return Key(
        label, "number", axis.doc, whole=whole, minimum=1 if least >= 1 else 0, above=above, maximum=axis.maximum
    )
