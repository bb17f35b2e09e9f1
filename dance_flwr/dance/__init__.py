"""DANCE as in the paper, one module per section; independent of Flower.

`config` has the keys `dance.*`, `model` the parameters omega. `passes` runs a model over the
original graph. `nodes` is Sec. 3.2 and Alg. 2, `text` Sec. 3.3 and Alg. 3, whose result is a
`selection`, `weighing` the form of it that is trained, `topology` Sec. 3.4 and Alg. 4. `losses` is
eq:fusion_train_loss, `algorithm` the client side of Alg. 1, `state` what a client keeps between
rounds, and `inference` the prediction from evidence.
"""
