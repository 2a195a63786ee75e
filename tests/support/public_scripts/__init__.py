"""Scripts as people publish them: torch alone, with the backend's name in one place. Tests change that one word."""
