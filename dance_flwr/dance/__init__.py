"""DANCE as the paper has it, one module per section; nothing here knows of Flower.

`nodes` Sec. 3.2 and Alg. 2, `evidence` Sec. 3.3 and Alg. 3, `topology` Sec. 3.4 and Alg. 4, `model`
the parameters omega, `local` the client side of Alg. 1, `packs` the evidence packs. `ragged` and
`hops` are their tools.
"""
