"""Training data in an order that depends only on version, filter, split, seed and epoch.

    plan = training.plan(dataset, columns=["image", "label"], shuffle="rows", seed=7)
    loader = plan.loader(batch_size=256, rank=rank, world_size=world_size, to="torch")
    for batch in loader:
        ...
    state = loader.state_dict()      # a few numbers; any world size resumes from them

`docs/guide/training.md` describes shuffles, splits, mixtures, windows and packed sequences.
"""

from lancelet.training.convert import Ragged
from lancelet.training.loader import Loader
from lancelet.training.mixture import Mixture, mix
from lancelet.training.packing import PackedPlan, pack
from lancelet.training.plan import Plan, plan
from lancelet.training.windows import WindowPlan, windows

__all__ = [
    "Loader",
    "Mixture",
    "PackedPlan",
    "Plan",
    "Ragged",
    "WindowPlan",
    "mix",
    "pack",
    "plan",
    "windows",
]
