"""What a client's round would launch on a GPU and wait for, counted on a CPU.

    python benchmarks/launches.py [FOLDER ...] [--methods dance fedavg-full] [--rounds 6] [--lines]

FOLDER holds clients as `dance-flwr prepare` and `made_up.py` write them; without one a small
federation is made up. Counts are means per client over the rounds after the first that train with
what an earlier round has selected; `refresh` has those that select evidence again. How an operation
is counted: `tests/support/card.py`.
"""
