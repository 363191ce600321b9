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
    (block,) = re.findall(r"^```python {\.no-run}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return block


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    exec(compile(block, str(PAGE), "exec"), {})
    return tmp_path


def launch(folder, program, processes=2):
    """Run a program in some processes; return the results of each, or the output on failure."""
    (folder / "program.py").write_text(
        "if __name__ == '__main__':\n    exec(compile(open('body.py').read(), 'body.py', 'exec'))\n"
        "    import json, os\n"
        "    open(f\"ids-{os.environ['RANK']}.json\", 'w').write(json.dumps(ids))\n"
    )
    (folder / "body.py").write_text(program)
    started = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)),
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
    return [json.loads((folder / f"ids-{rank}.json").read_text()) for rank in range(processes)]


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


RESUMED = """
import sys
import lightning
import torch
from lancelet.torch.data import LanceDataset
from lightning.pytorch.callbacks import ModelCheckpoint
from torchdata.stateful_dataloader import StatefulDataLoader

seen = []


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch):
        seen.append(batch["id"].tolist())
        return self.layer(batch["x"][:, None]).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def train(workers, max_steps=-1, checkpoint=None):
    seen.clear()
    dataset = LanceDataset("points.lance", batch_size=5, shuffle="rows", seed=3)
    saving = ModelCheckpoint(f"saved-{workers}", save_top_k=-1, every_n_train_steps=40)
    lightning.Trainer(
        accelerator="cpu", devices=1, max_epochs=3, max_steps=max_steps, callbacks=[saving],
        logger=False, enable_progress_bar=False, enable_model_summary=False,
    ).fit(
        Model(),
        StatefulDataLoader(dataset, batch_size=None, num_workers=workers),
        ckpt_path=checkpoint,
    )
    return list(seen)


ids = []
for workers in (0, 2):
    whole = train(workers)
    for steps in (40, 80, 120):  # in epochs of 80 steps
        stopped = train(workers, steps)
        checkpoint = f"saved-{workers}/epoch={(steps - 1) // 80}-step={steps}.ckpt"
        resumed = train(workers, checkpoint=checkpoint)
        ids.append([workers, steps, len(whole), stopped + resumed == whole])
"""


@pytest.mark.filterwarnings("ignore")
def test_lightning_resumes_from_a_stateful_loader_within_and_between_epochs(folder):
    pytest.importorskip("lightning")
    found = launch(folder, RESUMED, processes=1)
    assert isinstance(found, list), found
    assert found[0] == [[w, steps, 240, True] for w in (0, 2) for steps in (40, 80, 120)]


def test_every_launcher_is_installed_where_pytorch_is():
    assert [name for name in LAUNCHERS.values() if find_spec(name) is None] == []
