"""Train a small character-level transformer on text made here, with hw4cli.torch.attention or torch's own.

    python docs/train.py                      300 steps, on the GPU where there is one
    python docs/train.py --attention torch    the same with torch.nn.functional.scaled_dot_product_attention
    python docs/train.py --size large         a model of twelve layers, 1,024 wide

Two runs of one seed with hw4's attention print the same digest of the parameters: the same bits. For that torch's other
operators must be asked to be deterministic, too: the gradient of an embedding is not by default. With --any-order they
are not asked, and are as fast as they can be.
"""

import argparse
import hashlib
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

try:
    import torch
except ModuleNotFoundError:
    print("train.py needs PyTorch (docs/torch.md)", file=sys.stderr)
    sys.exit(3)
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import hw4cli.torch

ATTENTION: dict[str, Callable[..., Any]] = {"hw4": hw4cli.torch.attention, "torch": scaled_dot_product_attention}
SHOWN = 50  # steps, over which the loss is averaged


def text(characters: int, seed: int = 0) -> str:
    """Short stories: who is named in the first sentence appears in the second, so that looking back pays."""
    draw = random.Random(seed)
    names, things = ("Ann", "Bob", "Eve", "Max", "Zoe"), ("red ball", "old map", "blue kite", "tin cup")
    found: list[str] = []
    while sum(map(len, found)) < characters:
        (giver, taker), thing = draw.sample(names, 2), draw.choice(things)
        number = draw.randint(2, 99)
        found.append(f"{giver} has {number} and gives {taker} the {thing}. Now {taker} has the {thing} of {giver}. ")
    return "".join(found)[:characters]


@dataclass(frozen=True)
class Size:
    """Of the model and of a batch."""

    layers: int = 4
    heads: int = 4
    width: int = 256
    context: int = 256
    batch: int = 32

    @property
    def tokens(self) -> int:
        """Of a step."""
        return self.batch * self.context


TINY = Size(layers=1, heads=2, width=32, context=32, batch=8)
SIZES = {
    "tiny": TINY,
    "small": Size(),
    "medium": Size(layers=6, heads=8, width=512, context=1024, batch=16),
    "large": Size(layers=12, heads=8, width=1024, context=2048, batch=8),
}


class Block(nn.Module):
    """Causal attention, then a network for each position; both are added to what came in."""

    def __init__(self, size: Size, attention: Callable[..., Any]) -> None:
        super().__init__()
        width, self.heads, self.attention = size.width, size.heads, attention
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """x: (batch, N, width). Q, K and V are parts of one array, which the kernels read where it is."""
        parts = self.qkv(self.before(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k, v = parts  # (batch, heads, N, d) each
        x = x + self.out(self.attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.network(self.between(x))


class Model(nn.Module):
    """The characters before it give the probabilities of each next one."""

    def __init__(self, alphabet: int, size: Size, attention: Callable[..., Any]) -> None:
        super().__init__()
        self.characters, self.places = nn.Embedding(alphabet, size.width), nn.Embedding(size.context, size.width)
        self.blocks = nn.Sequential(*(Block(size, attention) for _ in range(size.layers)))
        self.last = nn.Sequential(nn.LayerNorm(size.width), nn.Linear(size.width, alphabet))

    def forward(self, given: Tensor) -> Tensor:
        """given: (batch, N) numbers of characters."""
        place = torch.arange(given.shape[1], device=given.device)
        return self.last(self.blocks(self.characters(given) + self.places(place)))


class Training:
    """A model and its steps: `losses` makes one after the other, each loss a tensor that is not waited for. bfloat16 by
    autocast on a GPU. `same_bits`: torch's operators, too, give the same in each run."""

    def __init__(
        self,
        attention: str = "hw4",
        device: str = "cpu",
        size: Size = Size(),
        seed: int = 0,
        compiled: bool = False,
        same_bits: bool = True,
    ) -> None:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without which torch refuses the next promise
        torch.use_deterministic_algorithms(same_bits)
        torch.manual_seed(seed)
        stories = text(100_000, seed)
        alphabet = sorted(set(stories))
        self.numbers = torch.tensor([alphabet.index(one) for one in stories])
        self.device, self.size, self.draws = device, size, torch.Generator().manual_seed(seed)
        self.model = Model(len(alphabet), size, ATTENTION[attention]).to(device)
        self.run = torch.compile(self.model) if compiled else self.model

    def losses(self) -> Iterator[Tensor]:
        """A step for each loss that is taken."""
        size, numbers = self.size, self.numbers
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3 if size.width >= 128 else 3e-3)
        while True:
            starts = torch.randint(len(numbers) - size.context, (size.batch, 1), generator=self.draws)
            chunk = numbers[starts + torch.arange(size.context + 1)].to(self.device)
            with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
                guesses = self.run(chunk[:, :-1])
            loss = cross_entropy(guesses.float().flatten(0, 1), chunk[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss.detach()

    def digest(self) -> str:
        """Of all parameters."""
        found = hashlib.sha256()
        for parameter in self.model.parameters():
            found.update(parameter.detach().cpu().numpy().tobytes())
        return found.hexdigest()


def train(
    training: Training, steps: int = 300, show: Callable[[int, float], None] = lambda step, loss: None
) -> tuple[list[float], str]:
    """The loss of each step, and a digest of the parameters after the last one. `show` is called every SHOWN steps,
    with their mean loss, which is waited for."""
    losses: list[Tensor] = []
    for step, loss in enumerate(islice(training.losses(), steps), 1):
        losses.append(loss)
        if step % SHOWN == 0 or step == steps:
            recent = losses[-SHOWN:]
            show(step, float(sum(recent)) / len(recent))
    return [float(loss) for loss in losses], training.digest()


def main() -> None:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description="Train a small character-level transformer on text made here.")
    parser.add_argument("--attention", choices=ATTENTION, default="hw4")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", choices=SIZES, default="small", help="of the model; tiny: for the CPU")
    parser.add_argument("--compile", action="store_true", help="by torch.compile")
    parser.add_argument("--any-order", action="store_true", help="let torch's operators give other bits each time")
    given = parser.parse_args()
    if given.steps < 1:
        parser.error(f"{given.steps} steps: give 1 or more")
    if given.device == "cuda" and not torch.cuda.is_available():
        parser.error("there is no GPU that PyTorch can use here: give --device cpu --size tiny")
    size, shown = SIZES[given.size], [(0, 0.0)]

    def show(step: int, loss: float) -> None:
        (before, then), now = shown[-1], time.perf_counter()
        shown.append((step, now))
        rate = f"  {(step - before) * size.tokens / (now - then):,.0f} tokens/s" if before else ""
        print(f"step {step:4}  loss {loss:.4f}{rate}", flush=True)

    how = given.seed, given.compile, not given.any_order
    _, digest = train(Training(given.attention, given.device, size, *how), given.steps, show)
    print(f"parameters {digest[:16]}")


if __name__ == "__main__":
    main()
