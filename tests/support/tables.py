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
