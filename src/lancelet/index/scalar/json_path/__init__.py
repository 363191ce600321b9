"""An index of another kind over the values at one place of JSON documents."""
