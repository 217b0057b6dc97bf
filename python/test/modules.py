"""Small modules that several files of tests compile."""
import torch


class Two(torch.nn.Module):
    def forward(self, x, y, scale: int = 2):
        return {"sum": x + y, "both": (x * scale, y - 1)}


class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = torch.nn.Linear(16, 32), torch.nn.Linear(32, 8)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x):
        self.count.add_(x)
        return self.count * 2


def function(f):
    class Module(torch.nn.Module):
        def forward(self, *args):
            return f(*args)
    return Module()
