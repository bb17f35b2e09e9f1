"""Tables of a graph file as lists, for tests of readers."""


def values(columns, names=None):
    """Column name -> list of strings, of all columns or of those that are named."""
    names = columns.names if names is None else names
    lists = {name: [] for name in names}
    for batch in columns.batches(names):
        assert list(batch) == list(names)
        for name in names:
            lists[name] += batch[name].to_pylist()
    return lists


def of_roles(file):
    """Role -> list of strings, of every role that the format declares."""
    nodes = {r: c for r, c in file.roles.items() if r in ("id", "text", "label", "split", "site")}
    edges = {r: c for r, c in file.roles.items() if r not in nodes}
    tables = ((file.nodes, nodes), (file.edges, edges))
    return {
        role: values(table, [column])[column]
        for table, roles in tables
        for role, column in roles.items()
    }
