"""What can go wrong on our side.  A submission that fails is a `Failed` value, not one of these."""


class HarnessError(Exception):
    """The machine or the harness failed; the message says file, cause and remedy.  Exit code 3."""


class UsageError(HarnessError):
    """What the user asked for cannot be meant: bad file, bad option, bad YAML.  Exit code 2."""


class TaskError(UsageError):
    """task/, reference/ or shapes.yaml is wrong."""


class DeviceError(HarnessError):
    """The device is missing, busy, or not fit to measure on."""


class SandboxError(HarnessError):
    """A worker process could not be started or confined as asked."""


class StoreError(HarnessError):
    """The results database cannot be opened, read or written; nothing in it was changed."""
