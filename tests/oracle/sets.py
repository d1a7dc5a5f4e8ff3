"""Several sets of keys in one GROUP BY: ROLLUP, CUBE and GROUPING SETS, with GROUPING."""

import dataclasses
import random
from collections.abc import Sequence
from dataclasses import dataclass

from case import Aggregate, Case
from expressions import INT, template


@dataclass(frozen=True)
class Sets:
    """`form` is ROLLUP, CUBE or GROUPING SETS. The other keys of the case are in every set."""

    form: str
    # Numbers of the keys that a set may leave out, and of GROUPING SETS those of each set.
    keys: tuple[int, ...]
    members: tuple[tuple[int, ...], ...] = ()

    def text(self, keys: Sequence[str]) -> str:
        named = lambda numbers: f"({', '.join(keys[i] for i in numbers)})"  # noqa: E731
        return f"{self.form} " + (f"({', '.join(map(named, self.members))})" if self.members else named(self.keys))

    def groups(self, keys: Sequence[str]) -> list[str]:
        """What GROUP BY names."""
        return [key for i, key in enumerate(keys) if i not in self.keys] + [self.text(keys)]

    def enlarged(self, rng: random.Random, key: int) -> "Sets":
        """With one more key, which some set has."""
        if rng.random() < 0.4:
            return self
        members = [m + (key,) if i == 0 or rng.random() < 0.5 else m for i, m in enumerate(self.members)]
        return dataclasses.replace(self, keys=(*self.keys, key), members=tuple(members))


def draw(rng: random.Random, case: Case) -> None:
    """Gives a case sets of its keys, but for those that tell sessions apart."""
    free = range(len(case.partition), len(case.keys))
    if not free or rng.random() < 0.75:
        return
    form = rng.choice(["ROLLUP", "CUBE", "GROUPING SETS"])
    keys = tuple(free[-2:] if form == "CUBE" else free[rng.randrange(len(free)):])
    members = ()
    if form == "GROUPING SETS":
        drawn = [tuple(i for i in keys if rng.random() < 0.5) for _ in range(rng.randint(1, 3))]
        # Each key is in one of them, and none comes twice.
        members = tuple(dict.fromkeys([keys, *drawn] if rng.random() < 0.5 else [*((i,) for i in keys), *drawn]))
    case.sets = Sets(form, keys, members)
    named = rng.sample(keys, rng.randint(1, len(keys)))
    argument = template(", ".join(f"{{{n}}}" for n in range(len(named))), INT, *(case.keys[i] for i in named))
    case.aggregates.append(Aggregate("grouping", argument, None))
