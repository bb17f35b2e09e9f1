"""Tables of a graph file as lists, for tests of readers."""


def values(table, names=None):
    """Column name -> list of strings, of all columns or of those that are named.

    `table` is a table, or the tables of nodes or of edges in a file that has one of each.
    """
    (table,) = table if isinstance(table, tuple) else (table,)
    names = table.names if names is None else names
    lists = {name: [] for name in names}
    for batch in table.batches(names):
        assert list(batch) == list(names)
        for name in names:
            lists[name] += batch[name].to_pylist()
    return lists


def roles_of(file):
    """Role -> column that the format declares, of nodes and of edges."""
    (nodes,), (edges,) = file.nodes, file.edges
    return {**nodes.roles, **edges.roles}


def of_roles(file):
    """Role -> list of strings, of every role that the format declares."""
    return {
        role: values(table, [column])[column]
        for (table,) in (file.nodes, file.edges)
        for role, column in table.roles.items()
        if role != "neighbours"  # lists
    }
