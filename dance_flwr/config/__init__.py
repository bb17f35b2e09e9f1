"""The run configuration: how keys are declared, collected, read, checked and printed."""
