"""Settings of the suite that hold in every process of it."""


def quick_checks():
    """Condensed graphs are tried by networks of 20 steps, not 200: most of what condensing a tiny
    graph takes.
    """
    from dance_flwr.baselines.condensation import client

    client._STEPS = 20
