"""DANCE, the method of Sections 4.2 to 4.4 of the paper, independent of Flower.

- `config`: the keys `dance.*`; `model`: the parameters omega = (theta, phi)
- `passes`: passes of a model over the original graph
- `nodes`: Section 4.2 and Alg. 2, label-aware node condensation
- `text`: Section 4.3 and Alg. 3, hierarchical text condensation; `selection`: its result, the
  evidence of nodes; `weighing`: the same weights with gradients, for training
- `topology`: Section 4.4 and Alg. 4, self-expressive topology reconstruction
- `losses`: eq:fusion_train_loss and the losses beside it
- `algorithm`: the client side of Alg. 1 before training; `plan`: what a refresh decides for the
  rounds until the next one; `state`: what a client stores between rounds
- `training`: local epochs on the condensed graph
- `inference`: predictions from evidence
"""
