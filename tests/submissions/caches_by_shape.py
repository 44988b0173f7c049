"""Wrong: keeps the first answer and finds it again by the input's shape."""

answers = {}


def custom_kernel(data):
    key = tuple(data[0].shape)
    if key not in answers:
        answers[key] = data[0] * 2
    return answers[key]
