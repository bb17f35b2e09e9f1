"""Language models of a client: prompts, replies that are checked, a cache, caps and a ledger."""
