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
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp

from dance_flwr.config.options import Value
from dance_flwr.config.tree import RunConfig, flatten
from dance_flwr.errors import UserError
from dance_flwr.federation import flower
from dance_flwr.runs.processes import private_folder, stopping_in_order
from dance_flwr.runs.reader import read_result
from dance_flwr.runs.simulation.engine import OnRound, apps
from dance_flwr.runs.simulation.ray_keeper import kept

_END_SECONDS = 10.0
_PAUSE_SECONDS = 0.05


def run_under_ray(
    config: RunConfig, folder: Path, on_round: OnRound, address: str = ""
) -> dict[str, Any]:
    """Run the unmodified apps, a client per core or share of a GPU at once; return the result.

    Parameters
    ----------
    address : of a Ray cluster whose nodes have dance-flwr and the folders of the run; "" = Ray is
        started on this machine, for this run alone

    Raises
    ------
    UserError : there is no cluster at `address`, or the run failed
    """
    stopped, threads = threading.Event(), list[threading.Thread]()
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        import server_app

        threads.append(threading.current_thread())
        waiting = _stoppable(grid, stopped)
        with suppress(KeyboardInterrupt):  # the main thread has the signal, and reports it
            server_app.run(waiting, config, str(context.run_id), folder, on_round)

    # Ray has handlers of its own from its start on; they end a process with other codes.
    with apps(), _ray(address), stopping_in_order(always=True):
        flower.replace("BasicActorPool", _pool_type())
        try:
            flower.run_simulation(
                config.clients,
                flower.EventType.FLWR_SIMULATION_RUN_LEAVE,
                client_app=InstalledClientApp(flatten(config)),
                server_app=server,
                backend_config={"client_resources": _resources(config)},
            )
        finally:
            stopped.set()
            for thread in threads:
                thread.join(_END_SECONDS)
    return read_result(folder)


class InstalledClientApp:
    """The ClientApp of the installation where it is called, with the keys of the run.

    Ray sends it by name, so that a node of a cluster runs its own code.
    """

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
    """Return the grid, in which waiting for replies ends when the run is stopped."""
    pull = grid.pull_messages

    def pull_messages(message_ids: Iterable[str]) -> Iterable[Message]:
        if stopped.is_set():
            raise KeyboardInterrupt
        return pull(message_ids)

    grid.pull_messages = pull_messages  # type: ignore[method-assign]
    return grid


@contextmanager
def _ray(address: str) -> Iterator[None]:
    """Connect to a cluster, or start Ray for this run: on loopback, with a token, files private."""
    # Settings of Ray are read when it is imported.
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    if address:
        with _connected(address):
            yield
        return
    # Why (decision 2): Ray's default below /tmp/ray is writable by every user.
    folder = str(private_folder())
    # Why (decision 2): Ray listens everywhere by default, and runs tasks for whoever reaches it;
    # its switch for loopback has the name of the systems where that is the default.
    os.environ |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token"}
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    with kept(folder), _connected("local", include_dashboard=False):
        yield


@contextmanager
def _connected(address: str, **options: Any) -> Iterator[None]:
    """Connect to the Ray at an address, or start one if it is "local"."""
    import ray

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Tip: In future versions of Ray", FutureWarning)
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except (ConnectionError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"expected a Ray cluster at {address}, found none: {reason}; start one with `ray start "
            "--head`, or leave --ray-address out"
        ) from None
    try:
        yield
    finally:
        ray.shutdown()


def _resources(config: RunConfig) -> dict[str, float]:
    """Return what a client takes of Ray's resources: a core, and a share of a GPU.

    Flower divides the GPUs by the share in single precision and rounds down: 0.2 would give four
    clients per GPU, not five, so the share is slightly smaller than its fraction.
    """
    import ray

    resources = ray.cluster_resources()  # type: ignore[no-untyped-call]
    gpus = int(resources.get("GPU", 0)) if config.device == "auto" else 0
    if not gpus:  # Ray hides every GPU from the clients
        return {"num_cpus": 1, "num_gpus": 0.0}
    together = -(-config.clients // gpus)
    return {"num_cpus": 1, "num_gpus": 1.0 if together == 1 else (10_000 // together - 1) / 10_000}


def _pool_type() -> type:
    """Return Flower's pool of actors, from which dead ones are removed.

    Flower hands the next message to an actor that has died, and so loses most messages of a round.
    """
    from ray.exceptions import RayActorError

    class LivingActors(flower.BasicActorPool):  # type: ignore[misc]
        def submit(self, actor_fn: Any, job: Any) -> Any:
            """Submit a job to an idle actor, or to the first that is idle again."""
            while True:
                try:
                    return super().submit(actor_fn, job)
                except IndexError:  # more threads than living actors
                    if not self.num_actors:
                        raise RuntimeError("every worker of Ray has died") from None
                time.sleep(_PAUSE_SECONDS)

        def fetch_result_and_return_actor_to_pool(self, future: Any) -> Any:
            """Return the result; an actor that has died is replaced where there is room for one."""
            try:
                return super().fetch_result_and_return_actor_to_pool(future)
            except RayActorError:
                room = flower.pool_size_from_resources(self.client_resources)
                self._future_to_actor[future] = (
                    self.create_actor_fn() if room >= self.num_actors else None
                )
                raise

        def add_actor_back_to_pool(self, future: Any) -> None:
            """Return an actor to the pool."""
            if (actor := self._future_to_actor.pop(future)) is None:
                self.num_actors -= 1
            else:
                self.pool.append(actor)

    return LivingActors
