"""Models of bench/gpu that are written out: sizes and blocks as published, weights from seeds (`programs.model_of`)."""
import torch
from torch import nn

F = nn.functional


class Residual(nn.Module):
    """Two 3 x 3 convolutions, each behind a group norm, as in the UNets of diffusion models."""

    def __init__(self, channels, out):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(32, channels), nn.GroupNorm(32, out)
        self.conv1, self.conv2 = nn.Conv2d(channels, out, 3, padding=1), nn.Conv2d(out, out, 3, padding=1)
        self.skip = nn.Conv2d(channels, out, 1) if channels != out else nn.Identity()

    def forward(self, x):
        h = self.conv1(F.silu(self.norm1(x)))
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class UNet(nn.Module):
    """Halves the image once a level, by convolutions with a stride, and doubles it again by repeating its elements."""

    def __init__(self, channels=4, widths=(64, 128, 256)):
        super().__init__()
        self.first = nn.Conv2d(channels, widths[0], 3, padding=1)
        self.down = nn.ModuleList(Residual(before, width) for before, width in zip((widths[0], *widths), widths))
        self.shrink = nn.ModuleList(nn.Conv2d(width, width, 3, stride=2, padding=1) for width in widths[:-1])
        self.middle = Residual(widths[-1], widths[-1])
        self.grow = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for width in widths[:0:-1])
        self.up = nn.ModuleList(Residual(below + width, width) for below, width in zip(widths[:0:-1], widths[-2::-1]))
        self.norm, self.last = nn.GroupNorm(32, widths[0]), nn.Conv2d(widths[0], channels, 3, padding=1)

    def forward(self, x):
        x, skips = self.first(x), []
        for i, block in enumerate(self.down):
            x = block(x)
            if i < len(self.shrink):
                skips.append(x)
                x = self.shrink[i](x)
        x = self.middle(x)
        for grow, block in zip(self.grow, self.up):
            x = grow(F.interpolate(x, scale_factor=2.0, mode="nearest"))
            x = block(torch.cat([x, skips.pop()], 1))
        return self.last(F.silu(self.norm(x)))


class PreNorm(nn.Module):
    """A layer of GPT-2, or of Whisper's encoder, whose keys have no bias."""

    def __init__(self, width, heads, causal, approximate):
        super().__init__()
        self.heads, self.causal, self.approximate = heads, causal, approximate
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=causal or name != "k") for name in ("q", "k", "v", "out"))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, w = x.shape
        h = self.norm1(x)
        q, k, v = (f(h).view(b, t, self.heads, w // self.heads).transpose(1, 2) for f in (self.q, self.k, self.v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, w))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate=self.approximate))


class Gpt2(nn.Module):
    """GPT-2's smallest, to the logits."""

    def __init__(self, layers=12, width=768, heads=12, words=50257, places=1024):
        super().__init__()
        self.words, self.places, self.norm = nn.Embedding(words, width), nn.Embedding(places, width), nn.LayerNorm(width)
        self.layers = nn.ModuleList(PreNorm(width, heads, True, "tanh") for _ in range(layers))

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x), self.words.weight)


class WhisperEncoder(nn.Module):
    """Of Whisper base: two convolutions over the spectrum, then layers."""

    def __init__(self, layers=6, width=512, heads=8, bands=80, frames=1500):
        super().__init__()
        self.first, self.second = nn.Conv1d(bands, width, 3, padding=1), nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.places, self.norm = nn.Parameter(torch.empty(frames, width)), nn.LayerNorm(width)
        self.layers = nn.ModuleList(PreNorm(width, heads, False, "none") for _ in range(layers))

    def forward(self, x):
        x = F.gelu(self.second(F.gelu(self.first(x)))).transpose(1, 2) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)
