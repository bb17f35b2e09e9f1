"""Run Flower's SecAgg+ workflow on the app's own messages."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid

from dance_flwr.errors import QuorumError
from dance_flwr.federation import secagg_masks
from dance_flwr.federation.flower import (
    SECAGG_CONFIGS,
    FitIns,
    FitRes,
    LegacyContext,
    LegacyStrategy,
    Parameters,
    SecAggKey,
    SecAggPlusWorkflow,
    SecAggStage,
    WorkflowState,
    ndarray_to_bytes,
    parameters_to_ndarrays,
)
from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire import signatures as wire
from dance_flwr.federation.wire.messages import with_content
from dance_flwr.privacy.bits import unpack_bits
from dance_flwr.privacy.vectors import WIDEST, Integers, SumFormat, Vector

STAGES = ("setup", "share keys", "collect masked vectors", "sign the survivors", "unmask")


@dataclass(frozen=True)
class _Proxy:
    """The part of a legacy client proxy that the workflow reads."""

    node_id: int


class Capture(LegacyStrategy):  # type: ignore[misc]
    """A legacy strategy that samples given nodes and keeps the sum of the workflow."""

    def __init__(self, nodes: Sequence[int]) -> None:
        super().__init__()
        self.nodes = nodes
        self.mean: Vector | None = None
        self.clients = 0
        self.layouts: list[ConfigRecord] = []

    def configure_fit(self, *_: Any) -> list[tuple[Any, FitIns]]:
        """Return the nodes; `SumWorkflow` replaces the instructions."""
        return [(_Proxy(node), FitIns(Parameters([], ""), {})) for node in self.nodes]

    def aggregate_fit(
        self, _: int, results: list[tuple[Any, FitRes]], __: Any
    ) -> tuple[None, dict[str, Any]]:
        """Keep the mean over the clients whose vectors are in the sum."""
        self.mean = np.asarray(
            parameters_to_ndarrays(results[0][1].parameters)[0], dtype=np.float64
        )
        self.clients = len(results)
        return None, {}

    def total(self, form: SumFormat) -> Integers:
        """Return the sum of the clients' integers; the workflow divided it by their number."""
        assert self.mean is not None
        scaled = self.mean * (self.clients / (2 * form.offset))
        return form.wrap(np.rint(scaled).astype(np.int64))


class SumWorkflow(SecAggPlusWorkflow):
    """Flower's SecAgg+ workflow with two fixes, signatures, our messages and sums modulo 2^b.

    Flower counts a client that dropped out before the masks existed among those whose masks must be
    removed, although nobody holds shares of it; this class drops such a client. Flower continues
    with the old model when too few clients are left; this class raises. The app's messages replace
    Flower's legacy instructions. Where clients sign their public keys, there is a stage more, in
    which they sign who is in the sum; the server hands their signatures on. Flower's quantisation
    leaves integers alone: it adds an offset, and the factor that it sums beside them is 1 per
    client.

    Parameters
    ----------
    contents : node -> the app's message
    threshold : clients that must stay
    form : the integers of the sum
    timeout : of each stage, in seconds
    asked : the `request_digest` of these messages
    """

    def __init__(
        self,
        contents: Mapping[int, RecordDict],
        threshold: int,
        form: SumFormat,
        timeout: float | None,
        asked: str = "",
    ) -> None:
        most, clip, target, modulus = form.quantisation
        super().__init__(
            num_shares=1.0,
            reconstruction_threshold=threshold,
            max_weight=most,
            clipping_range=clip,
            quantization_range=1,
            modulus_range=modulus,
            timeout=timeout,
        )
        # Flower's constructor wants fewer levels than the modulus, so that no sum wraps; these do.
        self.quantization_range = target
        self._contents, self._form, self._asked = contents, form, asked

    def __call__(self, grid: Grid, context: Context) -> None:
        """Run the stages.

        Raises
        ------
        QuorumError : fewer clients are left than shares are needed; names the stage and the reason
        """
        assert isinstance(context, LegacyContext)
        state, signing = WorkflowState(), _SigningGrid(grid)
        steps = (
            self.setup_stage,
            self.share_keys_stage,
            self.collect_masked_vectors_stage,
            self.survivors_stage,
            self.unmask_stage,
        )
        with secagg_masks.derivation(context.run_id, secagg_masks.MASKS, self._asked):
            for name, step in zip(STAGES, steps, strict=True):
                try:
                    enough = step(signing, context, state)
                except ValueError as error:  # shares that do not fit together
                    raise QuorumError(f"secure aggregation, stage {name!r}: {error}") from None
                if not enough:
                    raise QuorumError(self._shortfall(name, state))

    def setup_stage(self, grid: Grid, context: LegacyContext, state: Any) -> bool:
        """Collect public keys; replace the legacy instructions by the app's messages."""
        enough = super().setup_stage(grid, context, state)
        state.nid_to_fitins = {node: _copy(self._contents[node]) for node in state.active_node_ids}
        return enough and self._drop_absent(state)

    def share_keys_stage(self, grid: Grid, context: LegacyContext, state: Any) -> bool:
        """Collect encrypted shares."""
        return super().share_keys_stage(grid, context, state) and self._drop_absent(state)

    def collect_masked_vectors_stage(self, grid: Grid, context: LegacyContext, state: Any) -> bool:
        """Collect masked vectors, through a Grid that records their layouts."""
        recording: Any = _LayoutGrid(grid, context.strategy, self._form.bits)
        return super().collect_masked_vectors_stage(recording, context, state)

    def survivors_stage(self, grid: Any, context: LegacyContext, state: Any) -> bool:
        """Let the clients that signed their keys sign who is in the sum.

        Who is in it does not change any more: one that is silent here is only not asked again.
        """
        alive = sorted(state.active_node_ids)
        record: dict[str, Any] = {
            SecAggKey.STAGE: keys.SURVIVORS,
            SecAggKey.ACTIVE_NODE_ID_LIST: alive,
            SecAggKey.DEAD_NODE_ID_LIST: sorted(state.sampled_node_ids - state.active_node_ids),
        }
        content = RecordDict({SECAGG_CONFIGS: ConfigRecord(record)})
        asked = [Message(_copy(content), node, keys.TRAIN) for node in alive if node in grid.signed]
        replies = grid.send_and_receive(asked, timeout=self.timeout) if asked else []
        state.failures += [Exception(reply.error) for reply in replies if reply.has_error()]
        return True

    def _drop_absent(self, state: Any) -> bool:
        state.sampled_node_ids = set(state.active_node_ids)
        state.nid_to_neighbours = {
            node: near & state.active_node_ids
            for node, near in state.nid_to_neighbours.items()
            if node in state.active_node_ids
        }
        return bool(state.active_node_ids) and self._check_threshold(state)

    def _shortfall(self, stage: str, state: Any) -> str:
        errors = [error.args[0] if error.args else error for error in state.failures]
        reasons = sorted({str(getattr(error, "reason", error)) for error in errors})
        why = f"; {'; '.join(reasons)}" if reasons else ""
        return (
            f"secure aggregation, stage {stage!r}: expected at least {state.threshold} of "
            f"{len(self._contents)} "
            f"clients, found {len(state.active_node_ids)}{why}; the model of the last round is kept"
        )


class _SigningGrid:
    """Keep the signatures of clients, and hand them on where clients check them."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self.signed: dict[int, wire.Claim] = {}

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        sent = list(map(self._with_signatures, messages))
        replies = list(self._grid.send_and_receive(sent, timeout=timeout))
        found = {reply.metadata.src_node_id: wire.read_own(reply) for reply in replies}
        # Two stages are signed; the second replaces the first.
        self.signed = {node: claim for node, claim in found.items() if claim} or self.signed
        return replies

    def _with_signatures(self, message: Message) -> Message:
        stage = message.content.config_records[SECAGG_CONFIGS][SecAggKey.STAGE]
        checked = stage in (SecAggStage.SHARE_KEYS, SecAggStage.UNMASK)
        return wire.with_all(message, self.signed) if checked and self.signed else message


@dataclass
class _LayoutGrid:
    """Record the layouts of the replies that pass, and unpack their integers."""

    grid: Any
    strategy: Any
    bits: int

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        replies = list(self.grid.send_and_receive(messages, timeout=timeout))
        self.strategy.layouts = [
            r.content.config_records[keys.SECURE_LAYOUT] for r in replies if not r.has_error()
        ]
        return [self._unpacked(reply) if self.bits < WIDEST else reply for reply in replies]

    def _unpacked(self, reply: Message) -> Message:
        if reply.has_error():
            return reply
        records = dict(reply.content)
        answer = dict(reply.content.config_records[SECAGG_CONFIGS])
        parts: Any = answer[SecAggKey.MASKED_PARAMETERS]
        answer[SecAggKey.MASKED_PARAMETERS] = [
            ndarray_to_bytes(unpack_bits(part, self.bits)) for part in parts
        ]
        records[SECAGG_CONFIGS] = ConfigRecord(answer)
        return with_content(reply, RecordDict(records))


def _copy(content: RecordDict) -> RecordDict:
    return RecordDict(dict(content))
