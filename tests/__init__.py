"""Tests of lancelet, and the kit of strategies, models, faults and servers that they share."""
