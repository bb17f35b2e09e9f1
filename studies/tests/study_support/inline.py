"""A grid in this process, one task after the other."""

from concurrent.futures import Future
from typing import ClassVar


class Inline:
    """An executor that runs tasks at once, in this process; `stop_before` raises like Ctrl-C."""

    done: ClassVar[list] = []
    stop_before: ClassVar[int | None] = None

    def __init__(self, *_, **__):
        pass

    def submit(self, function, task):
        if self.stop_before is not None and len(self.done) == self.stop_before:
            raise KeyboardInterrupt
        future = Future()
        future.set_result(function(task))
        self.done.append(("measure" if task.cell.measure else "run", task.name))
        return future

    def shutdown(self, **_):
        pass
