"""The programs of the page about launchers, each run by two processes that train together."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from lancelet import dataset, training

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "training_launchers.md"
LAUNCHERS = {
    "Accelerate": "accelerate",
    "Lightning": "lightning",
    "Hugging Face Trainer": "transformers",
}
ROWS = 400


def program_of(heading):
    section = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    (text,) = [each for each in section if each.startswith(heading + "\n")]
    (block,) = re.findall(r"^```python no-run\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return block


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    exec(compile(block, str(PAGE), "exec"), {})
    return tmp_path


def launch(folder, program):
    """Run a program in two processes; return the results of each, or the output on failure."""
    (folder / "program.py").write_text(
        "if __name__ == '__main__':\n    exec(compile(open('body.py').read(), 'body.py', 'exec'))\n"
        "    import json, os\n"
        "    open(f\"ids-{os.environ['RANK']}.json\", 'w').write(json.dumps(ids))\n"
    )
    (folder / "body.py").write_text(program)
    started = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
            "--standalone",
            "program.py",
        ],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    if started.returncode:
        return started.stderr
    return [json.loads((folder / f"ids-{rank}.json").read_text()) for rank in range(2)]


def shares(epoch):
    """Return the ids of each rank in an epoch."""
    plan = training.plan(dataset("points.lance"), columns=["id"], shuffle="rows", seed=3)
    loaders = [plan.loader(25, rank=rank, world_size=2, epoch=epoch) for rank in range(2)]
    return [[i for batch in loader for i in batch["id"].to_pylist()] for loader in loaders]


@pytest.mark.parametrize("heading", LAUNCHERS)
def test_ranks_read_each_row_once_per_epoch(folder, heading):
    pytest.importorskip(LAUNCHERS[heading])
    found = launch(folder, program_of(heading))
    assert isinstance(found, list), found
    first, second = shares(0), shares(1)
    assert sorted(first[0] + first[1]) == sorted(second[0] + second[1]) == list(range(ROWS))
    assert found == [a + b for a, b in zip(first, second, strict=True)]


@pytest.mark.parametrize(
    ("settings", "batches", "workers"),
    [("", None, 2), ("dispatch_batches=False", 1, 2)],
    ids=["dispatched", "sharded"],
)
def test_accelerate_must_not_divide_the_batches_again(folder, settings, batches, workers):
    pytest.importorskip("accelerate")
    program = program_of("Accelerate").replace(
        "accelerator = Accelerator(",
        "from accelerate.utils import DataLoaderConfiguration\n"
        f"accelerator = Accelerator(dataloader_config=DataLoaderConfiguration({settings}), ",
    )
    loader = "batch_size=None, num_workers=2)"
    assert loader in program
    program = program.replace(loader, f"batch_size={batches}, num_workers={workers})")
    program = program.replace("ids = []", "ids = []\nloader = accelerator.prepare(loader)")
    assert "do not pass its DataLoader to `prepare`" in launch(folder, program)


def test_accelerate_divides_the_batches_of_a_dataset_with_one_rank(folder):
    pytest.importorskip("accelerate")
    program = program_of("Accelerate").replace("seed=3", "seed=3, rank=0, world_size=1")
    found = launch(
        folder, program.replace("ids = []", "ids = []\nloader = accelerator.prepare(loader)")
    )
    assert isinstance(found, list), found
    assert [len(each) for each in found] == [ROWS, ROWS]
    assert sorted(found[0] + found[1]) == sorted([*range(ROWS)] * 2)


def test_a_transformers_run_resumes_with_the_next_rows(folder):
    pytest.importorskip("transformers")
    program = program_of("Hugging Face Trainer")
    stopped = launch(
        folder, program.replace("num_train_epochs=2,", "num_train_epochs=2, max_steps=10,")
    )
    assert isinstance(stopped, list), stopped
    resumed = launch(folder, program.replace("train()", "train(resume_from_checkpoint=True)"))
    assert isinstance(resumed, list), resumed
    for rank, (first, second) in enumerate(zip(shares(0), shares(1), strict=True)):
        assert stopped[rank] + resumed[rank] == first + second


def test_every_launcher_is_installed_where_pytorch_is():
    assert [name for name in LAUNCHERS.values() if find_spec(name) is None] == []
