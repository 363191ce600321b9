"""The test kit, shipped: suites, models and faults, for whoever adds a store or a kind."""
