"""Wrong: needs a package that is not there."""

import no_such_package


def custom_kernel(data):
    return no_such_package.double(data[0])
