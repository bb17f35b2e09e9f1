"""What a shell completes: names of plug-ins, graphs and runs, and keys; nothing imports torch."""

from pathlib import Path


def graphs() -> list[str]:
    """Return the names of graphs: built in, on this machine, and those that can be fetched."""
    from dance_flwr.config.paths import data_root
    from dance_flwr.config.plugins import DATASETS
    from dance_flwr.config.sections import DataConfig
    from dance_flwr.data.graphs.catalogue import CATALOGUE, imported_graphs

    return list(dict.fromkeys([*DATASETS, *imported_graphs(data_root(DataConfig())), *CATALOGUE]))


def runs() -> list[str]:
    """Return `latest` and the folders in ./runs; a shell completes other folders itself."""
    return ["latest", *(str(path) for path in sorted(Path("runs").glob("*/")))]


def settings(incomplete: str) -> list[str]:
    """Return KEY= for every key, or KEY=VALUE for every value of a key that has a few."""
    from dance_flwr.config.options import choices_of
    from dance_flwr.config.tree import flat_fields

    (key, equals, _), fields = incomplete.partition("="), flat_fields()
    if not equals:
        return [f"{name}=" for name in fields]
    return [f"{key}={value}" for value in (choices_of(fields[key][0]) if key in fields else ())]
