"""Secure aggregation: the server reads the sum of all replies and no single one.

The protocol is SecAgg+ as Flower implements it for its legacy messages (Bonawitz et al. 2017; Bell
et al. 2020), here on the app's own messages (decision 8). Its stages: clients send public keys
(setup) and encrypted shares of their secrets (share keys), send vectors that are masked pair by
pair (collect), sign who is in the sum (survivors), and reveal what removes the remaining masks
(unmask).

- `server` runs the stages and checks the answers of `client`.
- `client` masks replies, and refuses requests that no honest server sends.
- `sums` turns a reply into integers modulo 2^b; `masks` hides them, and the counts once more.
- `signatures` binds public keys and survivors to the nodes that they name.
"""
