"""Attack: membership inference against the new network, beside what epsilon allows."""
