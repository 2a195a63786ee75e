"""The user's own code: files, functions, imports and tracebacks; and the optional packages."""
