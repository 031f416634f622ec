"""`python -m tpcapture`: the same as the command `tpcapture`."""

import sys

from tpcapture._command import main

sys.exit(main())
