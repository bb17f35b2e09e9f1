"""What-if: the effect of leaving out each chunk beside its weight, and that of controls."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from dance_flwr.evidence.metrics.leave_out import LeftOut
from dance_flwr.evidence.pack import Packs
from dance_flwr.pages.drawing import Bar, bars


def what_if(
    packs: Packs, left_out: LeftOut, row: int, number: Mapping[int, int]
) -> dict[str, Any] | None:
    """Return bars and table of the effects of a pack; None = they were not computed.

    Parameters
    ----------
    number : node -> number of its text on the page
    """
    if not left_out.done[row]:
        return None
    first = int(packs.chunk_ptr[row])
    drawn, rows, controls = [], [], 0
    effects: dict[bool, list[float]] = {True: [], False: []}
    for rank, case in enumerate(left_out.of(row), start=1):
        hop, effect = int(left_out.hop[case]), float(left_out.effect[case])
        turned = bool(left_out.turned[case])
        selected = bool(left_out.selected[case])
        effects[selected].append(effect)
        shown = f"effect {effect:+z.3f}{', another class' if turned else ''}"
        if selected:
            at = first + rank - 1
            weight = f"{packs.chunk_weights[at]:.3f}"
            text = number.get(int(packs.chunk_nodes[at]), 0)
            name, share = f"[{rank}] text {text}, hop {hop}", float(packs.chunk_weights[at])
            drawn.append(Bar(name, share, f"weight {weight}", "weight", article=text))
            drawn.append(Bar("", effect, shown, "effect", article=text))
            rows.append(
                [f"[{rank}]", str(text), str(hop), weight, f"{effect:+z.4f}", _word(turned)]
            )
            continue
        heading = "controls: chunks of the same hop, drawn at random, not selected"
        drawn.append(
            Bar(f"control, hop {hop}", effect, shown, "control", "" if controls else heading)
        )
        controls += 1
        rows.append(["control", "", str(hop), "not selected", f"{effect:+z.4f}", _word(turned)])
    means = {kind: float(np.mean(values)) for kind, values in effects.items() if values}
    said = f"Mean effect of a selected chunk {means.get(True, 0.0):+z.4f}"
    said += (
        f", of {controls} random chunks of the same hops {means[False]:+z.4f}."
        if controls
        else "; the hops have no other chunks to draw as a control."
    )
    title = "Effect of leaving out one chunk, as the model predicts again"
    return {
        "drawing": bars(f"{title}; the table below has the numbers", drawn),
        "caption": f"{title}: how much the probability of the predicted class falls",
        "head": ["chunk", "text", "hop", "weight", "effect", "another class then"],
        "rows": rows,
        "said": said,
    }


def _word(turned: bool) -> str:
    return "yes" if turned else "no"
