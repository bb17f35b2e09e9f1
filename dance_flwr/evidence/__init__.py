"""Evidence packs: made, explained, verified, sealed, rendered, summarised and measured."""
