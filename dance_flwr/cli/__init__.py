"""The command line: one file per group of commands, each of which exports `app`."""
