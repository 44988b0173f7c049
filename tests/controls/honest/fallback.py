"""A fast path that is not there, and a plain one that is."""


def custom_kernel(data):
    try:
        import a_library_that_nobody_has

        return a_library_that_nobody_has.double(data[0])
    except ImportError:
        return data[0] * 2
