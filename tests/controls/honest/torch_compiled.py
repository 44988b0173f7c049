"""torch.compile, which starts compilers and processes of its own.

Slow: yes
"""

import torch

custom_kernel = torch.compile(lambda data: data[0] * 2, dynamic=True)
