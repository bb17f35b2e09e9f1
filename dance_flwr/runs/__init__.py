"""The folder of a run: what the server writes there, how it is read, how a run resumes."""
