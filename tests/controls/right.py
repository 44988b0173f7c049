"""The right control: if this fails, everything does, and no attack was held off."""


def custom_kernel(data):
    return data[0] * 2
