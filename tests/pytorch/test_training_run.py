"""The run of the guide: killed twice and resized, its losses are those of a run left alone.

LANCELET_TRAINING_PLOT=docs/guide/training_run.svg draws the picture of the guide as well.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "training_run.md"


def blocks(kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def train(program, table, folder, ranks, dies_at=None):
    """Run the program on some ranks, and return how each ended."""
    folder.mkdir(exist_ok=True)
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    arguments = [
        str(program),
        str(table),
        str(folder),
        *([] if dies_at is None else [str(dies_at)]),
    ]
    running = [
        subprocess.Popen(
            [sys.executable, *arguments],
            env={**os.environ, **meeting, "WORLD_SIZE": str(ranks), "RANK": str(rank)},
        )
        for rank in range(ranks)
    ]
    return {each.wait() for each in running}


def test_a_run_that_is_killed_and_resized_learns_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block in blocks("python"):
        exec(compile(block, str(GUIDE), "exec"), {})
    (block,) = blocks("python {.no-run}")
    program = tmp_path / "train.py"
    program.write_text(block)
    table = tmp_path / "points.lance"
    alone, killed = tmp_path / "alone", tmp_path / "killed"
    assert train(program, table, alone, 1) == {0}
    # A rank may see that another one has gone before it is killed itself.
    assert -signal.SIGKILL in train(program, table, killed, 2, dies_at=37)
    assert -signal.SIGKILL in train(program, table, killed, 3, dies_at=75)
    assert train(program, table, killed, 1) == {0}
    wanted = np.array(json.loads((alone / "losses.json").read_text()))
    found = np.array(json.loads((killed / "losses.json").read_text()))
    assert len(wanted) == len(found) > 75
    assert wanted[-10:].mean() < wanted[:10].mean() * 0.8
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    if plot := os.environ.get("LANCELET_TRAINING_PLOT"):
        draw(Path(plot), wanted, found)


def draw(path, wanted, found):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.4))
    axes.plot(wanted, color="#9ecae1", linewidth=5, label="left alone, one rank")
    axes.plot(found, color="#08519c", linewidth=1.2, label="killed twice: two, three and one rank")
    for step in (30, 70):
        axes.axvline(step, color="#999999", linestyle=":", linewidth=1)
    axes.set_xlabel("step")
    axes.set_ylabel("loss")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
