"""The MINHASHLSH index kind: near-duplicate search with MinHash signatures of shingles."""
