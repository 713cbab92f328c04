"""Code that is copied into every registered model; nothing here imports the project."""
