"""FedTAD by loops, from the steps of its card."""

import numpy as np


def return_probabilities(adjacency, steps=5):
    """[T_vv, .., (T^5)_vv] by dense powers of D^-1 A."""
    degree = adjacency.sum(axis=1, keepdims=True)
    walk = np.divide(adjacency, degree, out=np.zeros_like(adjacency), where=degree > 0)
    power, made = np.eye(len(adjacency)), []
    for _ in range(steps):
        power = power @ walk
        made.append(np.diag(power))
    return np.stack(made, axis=1)


def reliability(features, adjacency, labels, classes):
    """Phi_c; labels are -1 outside training."""
    phi = np.zeros(classes)
    for v, label in enumerate(labels):
        if label < 0:
            continue
        total, near = 1.0, np.flatnonzero(adjacency[v])
        for u in near:
            a, b = features[v], features[u]
            total += a @ b / (np.linalg.norm(a) * np.linalg.norm(b))
        phi[label] += total / (len(near) + 1)
    return phi


def normalised(phi):
    """Across clients, [m, C]; 0 where nobody has the class."""
    made = np.zeros_like(phi)
    for c in range(phi.shape[1]):
        if phi[:, c].sum() > 0:
            made[:, c] = phi[:, c] / phi[:, c].sum()
    return made


def divergence(ours, theirs, shares, labels):
    """L_D: mean L1 over the nodes of a class and the outputs."""
    total = 0.0
    for k, logits in enumerate(theirs):
        for c in range(shares.shape[1]):
            of_class = np.flatnonzero(labels == c)
            if len(of_class):
                total += shares[k, c] * np.abs(ours[of_class] - logits[of_class]).mean()
    return total


def generator_loss(ours, theirs, shares, labels, features, noise, label_weight, diversity_weight):
    """L_G."""
    total, n = -divergence(ours, theirs, shares, labels), len(labels)
    for k, logits in enumerate(theirs):
        for c in range(shares.shape[1]):
            of_class = np.flatnonzero(labels == c)
            if len(of_class):
                each = [np.log(np.exp(logits[i]).sum()) - logits[i, c] for i in of_class]
                total += label_weight * shares[k, c] * np.mean(each)
        apart = [
            ((noise[i] - noise[j]) ** 2).mean() * np.abs(features[i] - features[j]).mean()
            for i in range(n)
            for j in range(n)
        ]
        total += diversity_weight * np.exp(-np.mean(apart))
    return total


def neighbours(features, most):
    """The pseudo-graph as a dense 0/1 matrix without self loops."""
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    linked = np.zeros((len(features), len(features)))
    for i in range(len(features)):
        for j in np.argsort(-(unit @ unit[i]))[:most]:
            if i != j:
                linked[i, j] = linked[j, i] = 1
    return linked
