"""Secure aggregation: the server reads the sum of all replies and no single one.

The protocol is SecAgg+ as Flower implements it for its legacy messages (Bonawitz et al. 2017; Bell
et al. 2020), here on the app's own messages (decision 8). Its stages: clients send public keys
(setup) and encrypted shares of their secrets (share keys), send vectors that are masked pair by
pair (collect), sign who is in the sum (survivors), and reveal what removes the masks that are left
(unmask).

- `server` runs the stages, `client` answers them; `reply_checks` and `stage_checks` are what each
  refuses of the other.
- `vectors` turns a reply into integers modulo 2^b, `masks` makes what hides them, and
  `number_masks` hides the counts beside an update once more.
- `request` binds all clients of a sum to one request; `signatures` and `signing` bind public keys
  and survivors to the nodes that they name.
"""
