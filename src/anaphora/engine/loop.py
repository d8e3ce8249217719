"""The one thread that owns the EngineCore.

Others talk to it by commands, taken in between steps. A failure in a step ends the thread, and everyone who
waits is told. Knows nothing of asyncio.
"""

import logging
import queue
import threading
from collections.abc import Callable, Sequence

from anaphora.engine.core import EngineCore
from anaphora.engine.protocols import Clock
from anaphora.request import RequestOutput

logger = logging.getLogger(__name__)

Command = Callable[[EngineCore], None]

IDLE_WAIT_S = 0.005
"""How long to wait before planning again when there is work but none of it can run."""


class EngineLoop:
    """Steps the core while it has work and sleeps while it has none.

    `deliver` is called from the engine's thread once per step that produced outputs; `fail` once, if a step
    or a command raises.
    """

    def __init__(
        self,
        core: EngineCore,
        clock: Clock,
        *,
        deliver: Callable[[Sequence[RequestOutput]], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._core = core
        self._clock = clock
        self._deliver = deliver
        self._fail = fail
        self._commands: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="anaphora-engine", daemon=True)
        self._step_began: float | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Have the thread end after the step that is running; requests that still run are given up."""
        self._commands.put(None)

    def join(self) -> None:
        """Wait for the end of the thread."""
        if self._thread.is_alive():
            self._thread.join()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def step_age_s(self) -> float:
        """Return how long ago the step that is running began; 0 between steps."""
        began = self._step_began
        return 0.0 if began is None else self._clock.now() - began

    def call(self, command: Command) -> None:
        """Have the engine's thread run a command before its next step."""
        self._commands.put(command)

    def _run(self) -> None:
        could_run = True
        try:
            while self._take_commands(could_run=could_run):
                could_run = self._step()
        except BaseException as error:
            logger.exception("the engine has failed")
            self._fail(error)

    def _step(self) -> bool:
        """Run one step; False when there was nothing that could run."""
        self._step_began = self._clock.now()
        step = self._core.step()
        self._step_began = None
        if step.outputs:
            self._deliver(step.outputs)
        return step.has_run

    def _take_commands(self, *, could_run: bool) -> bool:
        """Run what has been asked, sleeping while there is nothing to do; False when the thread is to end."""
        if not self._core.has_work:
            if not self._obey(self._commands.get()):
                return False
        elif not could_run and not self._wait_a_little():
            return False
        while not self._commands.empty():
            if not self._obey(self._commands.get()):
                return False
        return True

    def _wait_a_little(self) -> bool:
        try:
            return self._obey(self._commands.get(timeout=IDLE_WAIT_S))
        except queue.Empty:
            return True

    def _obey(self, command: Command | None) -> bool:
        if command is None:
            return False
        command(self._core)
        return True
