"""WHEN: Prefect flows and the command line. Importing this package keeps Prefect and MLflow from phoning anyone."""

from flows.environment import quiet

quiet()
