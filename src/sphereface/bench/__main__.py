"""`python -m sphereface.bench head --json` is `sphereface bench head --json`."""

import sys

from sphereface.cli import main

main(["bench", *sys.argv[1:]])
