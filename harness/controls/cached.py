"""Control: keeps the first answer for each shape (C1); wrong as soon as the inputs are new."""

kept = {}


def custom_kernel(data):
    key = tuple(data[0].shape)
    if key not in kept:
        kept[key] = data[0] * 2
    return kept[key]
