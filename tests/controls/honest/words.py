"""Its names and comments speak of what attacks are made of: stream, cache, timer, exec, socket.

# stream the rows, time.sleep, os._exit, torch.cuda.Event.elapsed_time
"""

upstream_cache = {"perf_counter": 2, "checker": 2}


def custom_kernel(data):
    downstream = data[0]
    return downstream * upstream_cache["checker"]
