"""`python -m lancelet` is the command `lancelet`."""

import sys

from lancelet.cli.main import main

sys.exit(main())
