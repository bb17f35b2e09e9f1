"""After training: a model that can be handed on, and predictions with it."""
