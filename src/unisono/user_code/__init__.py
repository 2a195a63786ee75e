"""The user's own code: files, functions, imports and tracebacks."""
