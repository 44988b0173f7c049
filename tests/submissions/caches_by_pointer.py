"""Wrong: keeps the first answer and finds it again by the input's pointer."""

answers = {}


def custom_kernel(data):
    key = data[0].data_ptr()
    if key not in answers:
        answers[key] = data[0] * 2
    return answers[key]
