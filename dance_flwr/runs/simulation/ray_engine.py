"""Run the two apps under Flower's simulation runtime, in which Ray runs several clients at once.

It is the runtime that `flwr run` starts, called in this process: no SuperLink, no bundle, no port
but Ray's own (decision 2).
"""

import logging
import os
import secrets
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import chdir, contextmanager, suppress
from copy import copy
from pathlib import Path
from typing import Any

import psutil
from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp

from dance_flwr.config.options import Value
from dance_flwr.config.paths import PROJECT
from dance_flwr.config.tree import RunConfig, flatten
from dance_flwr.disk import private_folder
from dance_flwr.errors import UserError
from dance_flwr.federation import flower
from dance_flwr.runs.processes import lives, stopping_in_order
from dance_flwr.runs.result import read_result
from dance_flwr.runs.simulation.in_process import OnRound, apps, keep_errors_only
from dance_flwr.runs.simulation.ray_keeper import kept

_SERVERS = ("raylet", "gcs_server")
_WATCH_SECONDS = 1.0
_END_SECONDS = 10.0
_PAUSE_SECONDS = 0.05


def run_under_ray(config: RunConfig, folder: Path, on_round: OnRound) -> dict[str, Any]:
    """Run the unmodified apps, a client per core or share of a GPU at once; return the result.

    Raises
    ------
    UserError : the run failed, or a process of Ray ended
    """
    stopped, threads = threading.Event(), list[threading.Thread]()
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        import server_app

        threads.append(threading.current_thread())
        waiting = _stoppable(grid, stopped)
        try:
            server_app.run(waiting, config, str(context.run_id), folder, on_round)
        except KeyboardInterrupt:
            return  # the main thread has the signal, and reports it
        except UserError:
            # Lost replies may come before the look that finds their cause.
            if not ended():
                raise
        finally:
            stopped.set()

    # Ray has handlers of its own from its start on; they end a process with other codes.
    keep_errors_only()
    # Flower's tracebacks repeat what our server reports.
    logging.getLogger("flwr").addFilter(lambda of: of.module not in ("vce_api", "raybackend"))
    # Flower waits for its threads before it passes a signal on, and they wait for workers.
    with apps(), _ray(stopped) as ended, stopping_in_order(stopped.set):
        flower.replace("BasicActorPool", _pool_type(stopped))
        # Flower read its variable when it was imported; runs send no telemetry.
        flower.replace("FLWR_TELEMETRY_ENABLED", "0")
        try:
            flower.run_simulation(
                config.clients,
                flower.EventType.FLWR_SIMULATION_RUN_LEAVE,
                client_app=InstalledClientApp(flatten(config)),
                server_app=server,
                backend_config={"client_resources": resources(config, _gpus())},
            )
        finally:
            stopped.set()
            for thread in threads:
                thread.join(_END_SECONDS)
        if name := ended():
            raise UserError(
                f"expected Ray's {name} to run until the end, found it gone, perhaps killed "
                "for its memory"
            )
    return read_result(folder)


class InstalledClientApp:
    """The installed ClientApp, which Ray sends to its workers by name, with the keys of the run."""

    def __init__(self, run_config: Mapping[str, Value]) -> None:
        self._run_config = dict(run_config)

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer a message."""
        with apps():
            import client_app
        # A copy, which shares the state: Flower gives back no context with other keys.
        keyed = copy(context)
        keyed.run_config = dict(self._run_config)
        return client_app.app(message, keyed)


def _stoppable(grid: Grid, stopped: threading.Event) -> Grid:
    pull = grid.pull_messages

    def pull_messages(message_ids: Iterable[str]) -> Iterable[Message]:
        if stopped.is_set():
            raise KeyboardInterrupt
        return pull(message_ids)

    grid.pull_messages = pull_messages  # type: ignore[method-assign]
    return grid


@contextmanager
def _ray(stopped: threading.Event) -> Iterator[Callable[[], str]]:
    """Start Ray for this run: on loopback, with a token, files private.

    Yields a function that names a server of Ray that has ended before the run, or "". It stops the
    run: without it, Ray starts no worker and waits, or exits this process without a word.
    """
    seen: list[str] = []

    def ended() -> str:
        if not stopped.is_set():  # afterwards Flower ends them
            seen.extend(name for name, server in servers if not lives(server))
        return seen[0] if seen else ""

    def watch() -> None:
        while not stopped.wait(_WATCH_SECONDS):
            if ended():
                stopped.set()

    # Settings of Ray are read when it is imported.
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    # Why (decision 2): Ray listens everywhere by default, and runs tasks for whoever reaches it.
    # The first variable, named for the systems with another default, makes it listen on loopback.
    os.environ |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token"}
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    # Why (decision 2): Ray's default below /tmp/ray is writable by every user.
    with kept(str(private_folder())):
        import ray

        # Workers import from the folder in which Ray was started first: not the user's.
        with warnings.catch_warnings(), chdir(PROJECT):
            warnings.filterwarnings("ignore", "Tip: In future versions of Ray", FutureWarning)
            ray.init(
                "local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR
            )
        servers = [(of.name(), of) for of in psutil.Process().children() if of.name() in _SERVERS]
        threading.Thread(target=watch, daemon=True).start()
        try:
            yield ended
        finally:
            ray.shutdown()


def resources(config: RunConfig, gpus: int) -> dict[str, float]:
    """Return what a client takes of Ray's resources: a core, and a share of these GPUs.

    Flower divides the GPUs by the share in single precision and rounds down: 0.2 would give four
    clients per GPU, not five, so the share is slightly smaller than its fraction.
    """
    if config.device != "auto" or not gpus:  # Ray hides every GPU from the clients
        return {"num_cpus": 1, "num_gpus": 0.0}
    together = -(-config.clients // gpus)
    return {"num_cpus": 1, "num_gpus": 1.0 if together == 1 else (10_000 // together - 1) / 10_000}


def _gpus() -> int:
    import ray

    found = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return int(found.get("GPU", 0))


def _pool_type(stopped: threading.Event) -> type:
    """Return Flower's pool of workers, in which a new one takes the place of one that has died.

    Flower hands the next message to a dead worker, and so loses most messages of a round.
    """
    import ray
    from ray.exceptions import RayActorError

    class LivingActors(flower.BasicActorPool):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self._starting: dict[Any, Any] = {}  # what is there when it has started -> actor
            self._lock = threading.Lock()

        def submit(self, actor_fn: Any, job: Any) -> Any:
            """Submit a job to an idle actor, or to the first that is idle again."""
            while not stopped.is_set():
                with self._lock:
                    started, _ = (
                        ray.wait([*self._starting], timeout=0) if self._starting else ([], [])
                    )
                    self.pool.extend(map(self._starting.pop, started))
                with suppress(IndexError):  # more threads than actors
                    return super().submit(actor_fn, job)
                time.sleep(_PAUSE_SECONDS)
            raise RuntimeError("the run has ended")

        def fetch_result_and_return_actor_to_pool(self, future: Any) -> Any:
            """Return the result; start another actor for one that has died, where there is room."""
            try:
                return super().fetch_result_and_return_actor_to_pool(future)
            except RayActorError:
                self._future_to_actor[future] = None
                if not stopped.is_set():
                    actor = self.create_actor_fn()
                    with self._lock:
                        self._starting[actor.__ray_ready__.remote()] = actor
                raise RuntimeError("its process ended, perhaps killed for its memory") from None

        def add_actor_back_to_pool(self, future: Any) -> None:
            """Return an actor to the pool, unless it has died."""
            if (actor := self._future_to_actor.pop(future)) is not None:
                self.pool.append(actor)

        def terminate_all_actors(self) -> None:
            """Kill the actors at work, too: a thread that waits for one would outlive Ray."""
            stopped.set()
            deadline = time.monotonic() + _END_SECONDS
            for actor in filter(None, [*self._future_to_actor.values()]):
                ray.kill(actor)
            while self._future_to_actor and time.monotonic() < deadline:
                time.sleep(_PAUSE_SECONDS)
            super().terminate_all_actors()

    return LivingActors
