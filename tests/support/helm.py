"""Parameters of Flower's two charts, as documented for Flower 1.33, of the parts that values use.

The charts, and whatever schema they have, are not public. A value has the type of the documented
default; `Free` = it is passed on as it is, to Kubernetes or to the program.
"""


class Free:
    """Anything: what is below is no parameter of the chart."""


_GLOBAL = {
    "annotations": Free,
    "labels": Free,
    "podLabels": Free,
    "nodeSelector": Free,
    "tolerations": Free,
    "env": Free,
    "securityContext": {"runAsUser": int, "runAsGroup": int, "fsGroup": int},
    "podSecurityContext": Free,
    "image": {"pullPolicy": str},
}
_IMAGE = {"registry": str, "repository": str, "tag": str, "digest": str, "pullPolicy": str}
_PART = {
    "name": str,
    "enabled": bool,
    "resources": Free,
    "volumes": Free,
    "volumeMounts": Free,
    "isolationMode": str,
    "automountServiceAccountToken": bool,
    "labels": Free,
    "extraArgs": Free,
    "nodeSelector": Free,
    "tolerations": Free,
    "env": Free,
    "annotations": Free,
    "podAnnotations": Free,
    "podLabels": Free,
    "imagePullSecrets": Free,
    "image": _IMAGE,
}
_POLICY = {"enabled": bool, "allowExternal": bool, "allowExternalEgress": bool}
_ROUTE = {"enabled": bool, "hostname": str, "path": str, "pathType": str}

SUPERNODE = {
    "nameOverride": str,
    "fullnameOverride": str,
    "global": {
        **_GLOBAL,
        "nodeAuth": {
            "enabled": bool,
            "authSupernodePrivateKey": str,
            "authSupernodePublicKey": str,
        },
    },
    "tls": {"enabled": bool},
    "supernode": {
        **_PART,
        "node": {"config": Free},
        "superlink": {"address": str, "port": int, "certificate": {"existingSecret": str}},
        "containerPorts": {"clientAppIo": int, "health": int},
        "replicas": int,
        "networkPolicy": _POLICY,
    },
}
SUPERLINK = {
    "nameOverride": str,
    "fullnameOverride": str,
    "global": {
        **_GLOBAL,
        "domain": str,
        "ingressClassName": str,
        "nodeAuth": {"enabled": bool, "authListPublicKeys": Free},
        "license": {"enabled": bool, "key": str, "secretKey": str, "existingSecret": str},
    },
    "tls": {
        "enabled": bool,
        "issuer": {"enabled": bool, "name": str, "spec": Free},
        "certificate": {"enabled": bool, "secretName": str, "additionalHosts": Free},
        "existingSecret": str,
    },
    "superlink": {
        **_PART,
        "service": {
            "type": str,
            "servicePortControl": int,
            "servicePortServerAppIo": int,
            "servicePortFleet": int,
        },
        "containerPorts": {"control": int, "serverAppIo": int, "fleet": int, "health": int},
        "replicaCount": int,
        "ingress": {
            "enabled": bool,
            "annotations": Free,
            "ingressClassName": str,
            "tls": {"enabled": bool, "secretName": str},
            "control": _ROUTE,
            "fleet": _ROUTE,
            "serverAppIo": _ROUTE,
            "simulationIo": _ROUTE,
        },
        "networkPolicy": _POLICY,
    },
}


def strangers(values, parameters, path=""):
    """The dotted names of values that are no documented parameter, or have another type."""
    found = []
    for name, value in values.items():
        here, wanted = f"{path}{name}", parameters.get(name)
        if wanted is None:
            found.append(here)
        elif isinstance(wanted, dict):
            inner = isinstance(value, dict)
            found += strangers(value, wanted, f"{here}.") if inner else [here]
        elif wanted is not Free and type(value) is not wanted:
            found.append(here)
    return found
