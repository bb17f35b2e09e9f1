"""Facility location (`dance.core-rule` = coverage) by loops, every gain computed at every step."""


def value(similar, chosen):
    """F(S), the sum over columns of the largest entry in the chosen rows; 0 without a row."""
    return sum(max((similar[u][v] for u in chosen), default=0) for v in range(len(similar[0])))


def greedy(similar, tiers, waiting, count):
    """S_t = S_(t-1) + argmax F(S_(t-1) + u) over the lowest tier; ties to the lower row."""
    chosen, waiting = [], list(waiting)
    for _ in range(count):
        lowest = min(tiers[u] for u in waiting)
        best = max(
            (u for u in waiting if tiers[u] == lowest),
            key=lambda u: (value(similar, [*chosen, u]), -u),
        )
        chosen.append(best)
        waiting.remove(best)
    return chosen


def masses(similar):
    """How many columns have their largest entry in each row; ties to the earlier row."""
    counts = [0] * len(similar)
    for column in zip(*similar, strict=True):
        counts[column.index(max(column))] += 1
    return counts
