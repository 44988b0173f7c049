"""The only device-specific calls: cpu.py and cuda.py for the judge, *_lane.py for the worker."""
