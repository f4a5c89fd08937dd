"""A process that learns one policy from its journal.

Each policy has a process of its own: a learner spends its time in Python and torch, and in threads of the
server it would hold the interpreter for milliseconds at a time while clients wait for acknowledgements; and one
that crashes or runs out of memory takes nobody along. Processes are forked from one that has torch loaded
already, so a policy costs milliseconds to start and shares most of torch's memory.

What it learns depends on the journal and the checkpoint alone, trajectory by trajectory: killed anywhere, it
makes the same models again.
"""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import select
import signal
import socket
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from rl4sys.algorithms.device import available_device, use_threads
from rl4sys.buffers.base import Provided
from rl4sys.errors import ExportError, RL4SysError, RunError
from rl4sys.experiment.config import ExperimentConfig
from rl4sys.experiment.files import replace_file, write_synced
from rl4sys.experiment.logbook import Logbook
from rl4sys.experiment.machine import available_memory
from rl4sys.experiment.memory import needs_of
from rl4sys.experiment.recorded import load_pools, warm_start
from rl4sys.experiment.run import Run
from rl4sys.experiment.watch import Subject, Watch
from rl4sys.learner import Learner, build_learner
from rl4sys.policy.base import Policy
from rl4sys.policy.draws import Draws
from rl4sys.registry import load_plugins
from rl4sys.server.acting import decide_alone, read_question
from rl4sys.server.config import ServerConfig
from rl4sys.server.frames import Frame, Pipe
from rl4sys.server.journal import FILE, Journal, Row, Sender
from rl4sys.server.settings import check_cost, check_size, check_spec, live_config, live_learner_config
from rl4sys.server.task import LIVE, VERSIONS, Task
from rl4sys.spec import Array, Spec, State
from rl4sys.trajectory import Trajectory

_ROWS_AT_ONCE = 64
_PUBLISH_SECONDS = 0.02
_STATUS_SECONDS = 1.0
_LOCK_SECONDS, _LOCK_RETRY_SECONDS = 60.0, 0.05
_HEARD_AT_ONCE = 64
"""Of the server, before the journal is looked at again: those who ask must not keep it from learning."""
_RECENT = 100
_MOST_OPEN_EPISODES = 10_000
_PARENT_DEATH_SIGNAL = 1


def work(connection: socket.socket, task: Task) -> None:
    """The whole life of the process."""
    _die_with_the_server()
    os.nice(task.server.niceness)
    # Signals to the group are the server's affair: it tells its workers when to stop, and they save first.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    pipe = Pipe(connection)
    try:
        load_plugins(task.server.plugins)
        _open_and_learn(pipe, task)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except Exception as problem:
        # The edge of the process: whatever went wrong is the server's to report.
        # A full disk may have room again in a moment; what does not compute will not compute the next time either.
        passing = isinstance(problem, RunError | OSError)
        pipe.send(Frame("failed", {**_described(problem), "passing": passing}))


def _described(problem: Exception) -> dict[str, str]:
    """For clients in words; what nobody foresaw also as it stands, for the server's log."""
    if isinstance(problem, RL4SysError):
        return {"message": str(problem)}
    message = f"the learner failed, and the server's log says where: {type(problem).__name__}: {problem!s:.300}"
    return {"message": message, "traceback": traceback.format_exc()}


def _open_and_learn(pipe: Pipe, task: Task) -> None:
    run, live = _open_policy(task)
    spec = Spec.from_json(live["spec"])
    with _held(run):
        use_threads(run.config.experiment.threads)
        learner = _build(spec, run)
        worker = Worker(run, learner, spec, pipe, task.server)
        worker.resume()
        found = {"max_staleness": _staleness(run, live), "not_portable": _why_not_portable(learner)}
        pipe.send(Frame("ready", {**live, "algorithm": run.config.algorithm.name, **found}))
        worker.learn()


def _open_policy(task: Task) -> tuple[Run, dict[str, Any]]:
    """The policy's run directory, made if it is not there."""
    if Run.exists(task.path):
        live: dict[str, Any] = json.loads((task.path / LIVE).read_bytes())
        _make_journal(task.path)
        return Run.open(task.path), live
    spec, settings = Spec.from_json(json.loads(task.spec)), json.loads(task.settings)
    settings = task.server.policies.get(task.policy_id, settings)
    config = live_config(task.policy_id, settings, task.server)
    check_spec(spec, task.server.limits)
    learner = live_learner_config(config, "cpu")
    check_cost(spec, learner, task.server.limits)
    needs_of(spec, learner).check(available_memory())
    # Built once before anything is written: what cannot be built, acted with or sent leaves no directory behind.
    provided = Provided(pools=load_pools(config.buffer, spec))
    trial = build_learner(spec, learner, config.experiment.seed, provided)
    warm_start(trial, spec, config)
    memory_size = _check_served(trial, spec, task)
    live = {"lineage": secrets.token_hex(8), "spec": spec.to_json(), "settings": settings}
    live["memory_size"] = memory_size
    return _create(task.path, config, live), live


def _check_served(trial: Learner, spec: Spec, task: Task) -> int:
    """How many numbers the policy remembers; raises if it can neither be sent to its client nor act here for it."""
    first = trial.portable()
    if first is not None:
        check_size(first)
        return first.memory_size
    if not task.remote:
        raise ExportError(_why_not_portable(trial))
    anything: dict[str, Array] = {name: np.ones((1, *box.shape), box.dtype) for name, box in spec.observation.items()}
    decide_alone(trial.policy(), 0, anything, Draws(0))
    return 0


def _why_not_portable(learner: Learner) -> str:
    """Empty if clients can run the policy."""
    try:
        learner.snapshot()
    except ExportError as problem:
        return str(problem)
    return ""


def _create(path: Path, config: ExperimentConfig, live: Mapping[str, Any]) -> Run:
    try:
        for folder in ("configs", VERSIONS):
            (path / folder).mkdir(parents=True, exist_ok=True)
        write_synced(path / LIVE, json.dumps(live, indent=1).encode())
        _make_journal(path)
    except OSError as problem:
        raise RunError(f"cannot make the policy's directory {path}: {problem.strerror}") from problem
    return Run.create_at(path, config, datetime.now())


def _make_journal(path: Path) -> None:
    """There must be one to read, even before the server has written to it."""
    if not (path / FILE).is_file():
        Journal(path / FILE).close()


def _build(spec: Spec, run: Run) -> Learner:
    config, device = run.config, available_device(run.config.experiment.device)
    pools = {} if run.checkpoints.names() else load_pools(config.buffer, spec)
    provided = Provided(scratch=run.path, pools=pools)
    return build_learner(spec, live_learner_config(config, device), config.experiment.seed, provided)


def _staleness(run: Run, live: Mapping[str, Any]) -> int | None:
    """What the buffer bears; one that bears anything may still be asked to be kept up with."""
    bears: int | None = getattr(run.config.buffer, "max_staleness", live["settings"].get("max_staleness"))
    return bears


class Worker:
    """Takes rows from the journal, learns, publishes models, writes the run's metrics and checkpoints."""

    def __init__(self, run: Run, learner: Learner, spec: Spec, pipe: Pipe, server: ServerConfig) -> None:
        self._run, self._learner, self._spec, self._pipe, self._server = run, learner, spec, pipe, server
        self._journal = Journal(run.path / FILE, read_only=True)
        self._logbook = Logbook(run)
        self._watch = _make_watch(run, server, spec, self._say)
        self._heard: dict[str, float] = {}
        self._episodes = _Episodes()
        self._staleness: deque[int] = deque(maxlen=_RECENT)
        self._taken: dict[Sender, int] = {}
        self._row = 0
        self._saved_rows: list[int] = []
        self._logged_at = 0
        self._published = self._reported_row = -1
        self._acting: tuple[int, Policy] | None = None
        self._stopping = False

    def resume(self) -> None:
        """Go on from the newest checkpoint; where there is none, begin as the config says."""
        if not self._run.checkpoints.names():
            self._logbook.add(warm_start(self._learner, self._spec, self._run.config))
            return
        found = self._run.checkpoints.load()
        for damage in found.passed_over:
            self._say(f"{damage}; going back to {found.name}")
        self._restore(found.state)

    def learn(self) -> None:
        """Until told to stop, or the server is gone."""
        with self._logbook.opened(self._logged_at), self._watch.opened(alone=False), self._telling_failures():
            self._write_status("running")
            if not self._saved_rows:
                self._save()
            self._learn()
            self._publish()
            if self._saved_rows[-1] != self._row:
                self._save()
            self._write_status("stopped")
        self._pipe.send(Frame("stopped", {}))

    def _learn(self) -> None:
        publishing, saving = _Interval(_PUBLISH_SECONDS), _Interval(self._server.checkpoint_seconds)
        reporting = _Interval(_STATUS_SECONDS)
        self._publish()
        while not self._stopping:
            rows = self._journal.after(self._row, _ROWS_AT_ONCE)
            for row in rows:
                self._take(row)
                if publishing.passed():
                    self._publish()
                if self._hear(wait_seconds=0.0):
                    break
            if self._saved_rows[-1] != self._row and saving.passed():
                self._save()
            if reporting.passed():
                self._report()
            if not rows:
                self._wait_for_more()

    def _report(self) -> None:
        if self._reported_row != self._row:
            self._write_status("running")
        self._watch.look(self._learner.steps, self._silences())

    def _wait_for_more(self) -> None:
        self._publish()
        self._pipe.send(Frame("idle", {"row": self._row}))
        # Not for ever: a checkpoint or a status may be due before the next trajectory comes.
        self._hear(wait_seconds=_STATUS_SECONDS)

    def _take(self, row: Row) -> None:
        trajectory = row.trajectory()
        self._staleness.append(self._learner.version - trajectory.version)
        self._episodes.see(trajectory)
        for metrics in self._learner.learn([trajectory]):
            self._logbook.add(metrics)
        self._row = row.row
        self._remember(row.sender, row.sequence)
        self._log_if_due()

    def _say(self, message: str) -> None:
        """For the server's log."""
        self._pipe.send(Frame("note", {"message": message}))

    @contextmanager
    def _telling_failures(self) -> Iterator[None]:
        """A server that goes is no failure of learning."""
        try:
            yield
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise
        except Exception as problem:
            self._watch.fail(self._learner.steps, problem)
            raise

    def _silences(self) -> dict[str, float]:
        """Seconds since each client that may still be there sent something."""
        now, known = time.monotonic(), {sender.client for sender in self._taken}
        self._heard = {client: at for client, at in self._heard.items() if client in known}
        return {client: now - at for client, at in self._heard.items()}

    def _remember(self, sender: Sender, sequence: int) -> None:
        """The senders heard last, as many as can be connected: it is told with every version."""
        self._taken.pop(sender, None)
        self._taken[sender] = sequence
        self._heard[sender.client] = time.monotonic()
        if len(self._taken) > self._server.limits.max_clients:
            del self._taken[next(iter(self._taken))]

    def _log_if_due(self) -> None:
        steps, frequency = self._learner.steps, self._server.log_frequency
        if steps // frequency == self._logged_at // frequency:
            return
        self._logged_at = steps
        row = {
            "learner/version": float(self._learner.version),
            "learner/refused_steps": float(self._learner.refused),
            "learner/staleness": float(np.mean(self._staleness)),
        }
        self._watch.see(steps, self._logbook.write_means(steps, row | self._episodes.means()))

    def _publish(self) -> None:
        """Tell the server how far learning is, with the model if there is a new one."""
        content = b""
        if self._learner.version != self._published:
            model = self._learner.portable()
            if model is not None:
                content = model.to_bytes()
                self._keep_version(self._learner.version, content)
            self._published = self._learner.version
        fields = {
            "version": self._learner.version,
            "wants": self._learner.wants(),
            "row": self._row,
            "steps_used": self._learner.steps,
            "steps_refused": self._learner.refused,
            "staleness": float(np.mean(self._staleness)) if self._staleness else 0.0,
            "episode_return": self._episodes.means().get("episode/return"),
            "taken": [[sender.client, sender.instance, sequence] for sender, sequence in self._taken.items()],
            "alerts": self._watch.active(),
        }
        self._pipe.send(Frame("progress", fields, content))

    def _keep_version(self, version: int, content: bytes) -> None:
        folder = self._run.path / VERSIONS
        folder.mkdir(exist_ok=True)
        replace_file(folder / f"{version:012d}.safetensors", content)
        for old in sorted(folder.glob("*.safetensors"))[: -self._server.keep_versions]:
            old.unlink()

    def _hear(self, wait_seconds: float) -> bool:
        """Whether the server has said to stop; waits for its next word if there is time, and decides what it asks."""
        for _ in range(_HEARD_AT_ONCE):
            if not select.select([self._pipe], [], [], wait_seconds)[0]:
                break
            wait_seconds, frame = 0.0, self._pipe.receive()
            if frame.kind == "stop":
                self._stopping = True
            elif frame.kind == "act":
                self._pipe.send(self._decide(frame))
        return self._stopping

    def _decide(self, question: Frame) -> Frame:
        version, number = self._learner.version, question.fields["number"]
        if self._acting is None or self._acting[0] != version:
            self._acting = version, self._learner.policy()
        try:
            reply = decide_alone(self._acting[1], version, *read_question(question.content))
        except Exception as problem:
            # The user's network: what it cannot decide is the client's to hear, and learning goes on.
            return Frame("acted", {"number": number, "problem": f"the policy cannot decide: {problem!r:.300}"})
        return Frame("acted", {"number": number}, reply.SerializeToString())

    def _save(self) -> None:
        self._saved_rows = [*self._saved_rows, self._row][-self._server.keep_checkpoints :]
        self._run.checkpoints.save(self._learner.steps + self._learner.refused, self._state(), self._learner.portable())
        self._pipe.send(Frame("saved", {"row": self._saved_rows[0]}))

    def _state(self) -> State:
        return {
            "learner": self._learner.state(),
            "logbook": self._logbook.state(),
            "episodes": self._episodes.state(),
            "staleness": list(self._staleness),
            "taken": [[sender.client, sender.instance, sequence] for sender, sequence in self._taken.items()],
            "row": self._row,
            "saved_rows": list(self._saved_rows),
            "logged_at": self._logged_at,
            "alerts": self._watch.state(),
        }

    def _restore(self, state: State) -> None:
        self._learner.restore(state["learner"])
        self._logbook.restore(state["logbook"])
        self._episodes.restore(state["episodes"])
        self._staleness.extend(state["staleness"])
        self._taken = {Sender(client, instance): sequence for client, instance, sequence in state["taken"]}
        self._row, self._saved_rows = state["row"], list(state["saved_rows"])
        self._logged_at = state["logged_at"]
        self._watch.restore(state.get("alerts", {}))

    def _write_status(self, status: str) -> None:
        self._reported_row = self._row
        self._run.write_status(
            {
                "status": status,
                "steps": self._learner.steps,
                "refused_steps": self._learner.refused,
                "version": self._learner.version,
                "episode_return": self._episodes.means().get("episode/return"),
            }
        )


def _make_watch(run: Run, server: ServerConfig, spec: Spec, note: Callable[[str], None]) -> Watch:
    """By the rules of the server, whatever they were when the policy was made."""
    needs = needs_of(spec, live_learner_config(run.config, "cpu"))
    return Watch(server.alerts, Subject(run.path, run.facts(), needs.still, needs.advice), note)


class _Episodes:
    """Returns and lengths of episodes, put together from trajectories that arrive apart."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[float, int]] = {}
        self._recent: deque[tuple[float, int]] = deque(maxlen=_RECENT)

    def see(self, trajectory: Trajectory) -> None:
        total, length = self._open.pop(trajectory.episode, (0.0, 0))
        so_far = total + float(trajectory.columns["reward"].sum(dtype=np.float64)), length + len(trajectory)
        if trajectory.ended:
            self._recent.append(so_far)
            return
        self._open[trajectory.episode] = so_far
        if len(self._open) > _MOST_OPEN_EPISODES:
            del self._open[next(iter(self._open))]

    def means(self) -> dict[str, float]:
        if not self._recent:
            return {}
        totals, lengths = zip(*self._recent, strict=True)
        return {"episode/return": float(np.mean(totals)), "episode/length": float(np.mean(lengths))}

    def state(self) -> State:
        return {
            "open": [[episode, *so_far] for episode, so_far in self._open.items()],
            "recent": [list(episode) for episode in self._recent],
        }

    def restore(self, state: State) -> None:
        self._open = {episode: (total, length) for episode, total, length in state["open"]}
        self._recent.extend((total, length) for total, length in state["recent"])


@contextmanager
def _held(run: Run) -> Iterator[None]:
    """Hold the run; one whose server was killed a moment ago may take a moment to be free."""
    deadline = time.monotonic() + _LOCK_SECONDS
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(run.locked())
                break
            except RunError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_LOCK_RETRY_SECONDS)
        yield


class _Interval:
    """Whether so much time has passed since it last said so."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._since = seconds, time.monotonic()

    def passed(self) -> bool:
        now = time.monotonic()
        if now - self._since < self._seconds:
            return False
        self._since = now
        return True


def _die_with_the_server() -> None:
    """A worker without its server must not go on writing to the run of the one that comes next."""
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
