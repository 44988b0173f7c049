"""Wrong: its process is gone, with the exit code of success, before it has a kernel."""

import os

os._exit(0)
