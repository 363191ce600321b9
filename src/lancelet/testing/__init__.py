"""The test kit: suites, models and faults, for our tests and for those who add a store or a kind."""
