"""The entry point runs an event loop."""

import asyncio


async def _double(x):
    await asyncio.sleep(0)
    return x * 2


def custom_kernel(data):
    return asyncio.run(_double(data[0]))
