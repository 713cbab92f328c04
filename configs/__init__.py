"""HOW MUCH: the configuration files, their schema, and how they are read."""
