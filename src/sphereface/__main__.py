"""`python -m sphereface` is `sphereface`."""

from sphereface.cli import main

main()
