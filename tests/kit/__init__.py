"""Test kit: data strategies, conformance suites, models, fault injection and local servers."""
