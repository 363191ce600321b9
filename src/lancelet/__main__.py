"""`python -m lancelet` is the command `lancelet`."""

import sys

from lancelet.cli.main import main

if __name__ == "__main__":  # not in processes that import the module again
    sys.exit(main())
