"""Goal: the protocol of commits holds in a model of it, and the code does what the model allows.

Method: Spin looks at every state of `commits.pml`, and of `external.pml` for commits through a
database; with a part of the protocol left out it finds a violation. Executions of the real code, in
every order of their requests, are given to the model as the only ones it may follow, and each must
be possible there to its end.
"""

import shutil
import subprocess

import pytest

from lancelet.errors import CommitConflictError
from lancelet.format.paths import parse_manifest_name
from lancelet.table.snapshot import Snapshot
from tests.kit.simulation import casts
from tests.kit.simulation.interleavings import Explorer

PUT, TAKEN, RECORD, DELETE, TOLD, HOLD, TAG, RELEASE = range(1, 9)
ACKNOWLEDGED, REFUSED = 1, 2
COMPILE = ("cc", "-O1", "-DSAFETY", "-DVECTORSZ=4096", "-DCOLLAPSE", "-w", "-o", "pan", "pan.c")


def check_model(tmp_path, request, *defines, model="commits.pml"):
    """Look at every state, and return what the search says."""
    missing = [name for name in ("spin", "cc") if shutil.which(name) is None]
    assert not missing, (
        f"{missing} must be on the path: `make test-model` or `apt install spin gcc`"
    )
    shutil.copy(request.path.parent / model, tmp_path)
    for command in (["spin", "-a", *defines, model], COMPILE):
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    # Where only some executions may be followed, others end where they are not.
    ends = ["-E"] if "-DTRACES" in defines else []
    done = subprocess.run(
        ["./pan", *ends, "-m1000000"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert "max search depth too small" not in done.stdout
    return done.stdout


def test_the_protocol_holds_in_every_state(tmp_path, request) -> None:
    said = check_model(tmp_path, request)
    assert "errors: 0" in said
    states = int(next(line for line in said.splitlines() if "states, stored" in line).split()[0])
    assert states > 1_000_000


@pytest.mark.parametrize("left_out", ["LOOKING", "HOLDS", "RECORDS"])
def test_without_a_part_of_it_the_model_finds_a_violation(tmp_path, request, left_out) -> None:
    assert "assertion violated" in check_model(tmp_path, request, f"-DWITHOUT_{left_out}")


def test_commits_through_a_database_hold_in_every_state(tmp_path, request) -> None:
    said = check_model(tmp_path, request, model="external.pml")
    assert "errors: 0" in said
    states = int(next(line for line in said.splitlines() if "states, stored" in line).split()[0])
    assert states > 1_000_000


@pytest.mark.parametrize("left_out", ["STAGING", "CONDITION", "COPY"])
def test_without_a_part_of_the_database_it_finds_a_violation(tmp_path, request, left_out) -> None:
    said = check_model(tmp_path, request, f"-DWITHOUT_{left_out}", model="external.pml")
    assert "assertion violated" in said


def test_executions_of_the_code_are_executions_of_the_model(tmp_path, request) -> None:
    traces = executions()
    assert len(traces) > 20
    (tmp_path / "traces.h").write_text(header(sorted(traces)))
    said = check_model(tmp_path, request, "-DTRACES", "-DN=9")
    assert "errors: 0" in said, said
    accepted = {int(line.split()[1]) for line in said.splitlines() if line.startswith("accepted")}
    refused = [each for number, each in enumerate(sorted(traces)) if number not in accepted]
    assert refused == []
    # What never happened is not possible there either: a number is not published twice.
    (tmp_path / "traces.h").write_text(header([[1103, 1501, 2103]]))
    assert "\naccepted" not in check_model(tmp_path, request, "-DTRACES", "-DN=9")


def test_executions_of_tags_and_cleanups_are_executions_of_the_model(tmp_path, request) -> None:
    traces = executions_of_tags()
    assert len(traces) >= 8
    assert accepted(tmp_path, request, traces, "-DOF_TAGS", "-DN=9") == traces
    # A cleanup that has seen the hold does not delete the version, nor is there a tag of one.
    wrong = [(1601, 2200, 2401, 1701, 1801), (2200, 2401, 1601, 1701, 1801)]
    assert accepted(tmp_path, request, wrong, "-DOF_TAGS", "-DN=9") == []


RECORDED, _, COPY, UPDATE, UNSTAGE = range(1, 6)


def test_executions_of_an_external_store_are_executions_of_the_model(tmp_path, request) -> None:
    traces = executions_of_external_stores()
    assert len(traces) > 20
    options = ("-DCOMMITS=1", "-DLOSSES=0")
    assert accepted(tmp_path, request, traces, *options, model="external.pml") == traces
    # A version is recorded once, and a manifest is not unstaged before its copy is recorded.
    wrong = [(1102, 2102), (1102, 1302, 1502, 1402)]
    assert accepted(tmp_path, request, wrong, *options, model="external.pml") == []


def executions_of_external_stores():
    """The visible steps of two writers of an external store, and of a writer and a reader."""
    found = set()

    def keep(cast, events) -> None:
        found.add(tuple(filter(None, map(step_of_external_store, events))))

    stage = casts.Stage.built()
    for who, numbers in (("ab", "12"), ("ar", "13")):
        scene = casts.an_external_store(stage, who)

        def keep_numbered(cast, events, numbers=numbers) -> None:
            keep(cast, [each._replace(actor=numbers[int(each.actor[-1])]) for each in events])

        Explorer(stage.stored, scene, on_execution=keep_numbered).run()
    return sorted(found)


def step_of_external_store(event):
    """A request as the model says it, where versions count from the third of the real table."""
    who, (folder, _, name) = 1000 * int(event.actor), event.path.rpartition("/")
    if folder.startswith("database"):
        if event.operation == "put":
            return who + 100 * UPDATE + int(name) - 2
        if event.operation == "put_if_absent":
            kind = TAKEN if event.outcome == "AlreadyExistsError" else RECORDED
            return who + 100 * kind + int(name) - 2
        return None
    found = parse_manifest_name(name) if folder.endswith("_versions") else None
    if found is None:
        return None
    kind = {"copy": COPY, "delete": UNSTAGE}.get(event.operation)
    return None if kind is None else who + 100 * kind + found.version - 2


def accepted(tmp_path, request, traces, *defines, model="commits.pml"):
    """Return the traces that the model allows."""
    (tmp_path / "traces.h").write_text(header(traces))
    said = check_model(tmp_path, request, "-DTRACES", *defines, model=model)
    assert "errors: 0" in said, said
    numbers = {int(line.split()[1]) for line in said.splitlines() if line.startswith("accepted")}
    return [trace for number, trace in enumerate(traces) if number in numbers]


def executions_of_tags():
    """The visible steps of a new tag and a cleanup, with each request failing once."""
    found = set()

    def keep(cast, events) -> None:
        steps = []
        for event in events:
            step = step_of(event) or step_of_tag(event)
            is_again = step is not None and step % 1000 == 100 * RECORD and step in steps
            if step is not None and not is_again:  # a record without a version that stays
                steps.append(step)
        found.add(tuple(steps))

    stage = casts.Stage.built()
    for scene in (casts.a_tag_and_a_cleanup, casts.a_moved_tag_and_a_cleanup):
        Explorer(stage.stored, scene(stage), on_execution=keep).run()
    return sorted(found)


def step_of_tag(event):
    """A request of a tag as the model says it."""
    who = 1000 * (1 + int(event.actor.removeprefix("actor ")))
    is_hold = "/.hold-" in event.path
    if event.operation == "put" and is_hold:
        return who + 100 * HOLD + 1
    if event.operation == "delete" and is_hold:
        return who + 100 * RELEASE + 1
    if event.operation in {"put", "put_if_absent"} and "_refs/tags/" in event.path:
        return who + 100 * TAG + 1
    return None


def executions():
    """The visible steps of each execution of the real code, whatever the order of requests."""
    found = set()

    def keep(cast, events) -> None:
        if not isinstance(cast.outcomes["b"], Snapshot):
            return
        steps = list(filter(None, map(step_of, events)))
        last = max(place for place, event in enumerate(events) if event.actor == "actor 0")
        outcome = cast.outcomes["a"]
        assert isinstance(outcome, (Snapshot, CommitConflictError))
        said = ACKNOWLEDGED if isinstance(outcome, Snapshot) else REFUSED
        before = len(list(filter(None, map(step_of, events[: last + 1]))))
        steps.insert(before, 1000 + 100 * TOLD + said)
        found.add(tuple(steps))

    stage = casts.Stage.built()
    Explorer(stage.stored, casts.a_commit_and_cleanups(stage), on_execution=keep).run()
    return found


def step_of(event):
    """A request as the model says it, where versions count from the second of the real table."""
    who = 1000 * (1 + int(event.actor.removeprefix("actor ")))
    if event.operation == "put" and "/.removed-" in event.path:
        return who + 100 * RECORD
    folder, _, name = event.path.rpartition("/")
    found = parse_manifest_name(name) if folder.endswith("_versions") else None
    if found is None or found.version < 2:
        return None
    if event.operation == "put_if_absent":
        kind = TAKEN if event.outcome == "AlreadyExistsError" else PUT
    elif event.operation == "delete":
        kind = DELETE
    else:
        return None
    return who + 100 * kind + found.version - 1


def header(traces):
    """Traces one behind the other, in what Spin can include."""
    flat = [step for trace in traces for step in trace]
    lines = [f"hidden short steps[{len(flat)}];", "short trace_at, trace_end, trace_number;"]
    lines += ["inline select_trace() {", "  d_step {"]
    lines += [f"    steps[{place}] = {step};" for place, step in enumerate(flat)]
    lines += ["    skip", "  };", "  if"]
    start = 0
    for number, trace in enumerate(traces):
        end = start + len(trace)
        lines.append(f"  :: trace_number = {number}; trace_at = {start}; trace_end = {end}")
        start = end
    return "\n".join([*lines, "  fi", "}", ""])
