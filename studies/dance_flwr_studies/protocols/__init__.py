"""The protocols of the paper's study and of ours: one module or package each."""
