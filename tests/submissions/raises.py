"""Wrong: raises, with text that a terminal, a markup or a log parser would act on."""


def custom_kernel(data):
    raise ValueError("\x1b[31mred [/tmp/x] [bold]\ncheck: pass\x00 \udc80")
