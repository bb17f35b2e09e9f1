"""DANCE as in the paper, one module per section; independent of Flower.

`nodes` is Sec. 3.2 and Alg. 2, `evidence` Sec. 3.3 and Alg. 3, `topology` Sec. 3.4 and Alg. 4,
`model` the parameters omega, `losses` eq:fusion_train_loss, `algorithm` the client side of Alg. 1
and `inference` the prediction from evidence, which `explanation` takes apart. `packs` are evidence
packs, which `rendering` shows and `verification` checks; `faithfulness` and `interventions` measure
them.
"""
