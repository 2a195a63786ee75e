"""A small character-level GPT in plain PyTorch. `05_gpt_unisono.py` is the same on many ranks.

python examples/05_gpt.py --steps 200
"""

import argparse
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils import data

CONTEXT, WIDTH, HEADS, LAYERS, DROPOUT = 32, 64, 4, 2, 0.1
BATCH, LR, WARMUP, CLIP = 32, 3e-3, 10, 1.0
ANIMALS, DEEDS = ["cat", "dog", "owl", "fox", "bee"], ["sees", "hears", "follows", "likes"]


def make_text() -> str:
    """A made-up language of short sentences."""
    pairs = [(a, b, deed) for a in ANIMALS for b in ANIMALS for deed in DEEDS if a != b]
    return "".join(f"the {a} {deed} the {b}.\n" for a, b, deed in (pairs * 3))


class Characters(data.Dataset[tuple[Tensor, Tensor]]):
    """Every window of CONTEXT characters, and the same window one character later."""

    def __init__(self, text: str) -> None:
        self.letters = sorted(set(text))
        self.tokens = torch.tensor([self.letters.index(letter) for letter in text])

    def __len__(self) -> int:
        return len(self.tokens) - CONTEXT

    def __getitem__(self, start: int) -> tuple[Tensor, Tensor]:
        window = self.tokens[start : start + CONTEXT + 1]
        return window[:-1], window[1:]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.drop = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)  # (b, heads, t, w) each
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # (b, heads, t, w)
        x = x + self.drop(self.out(y.transpose(1, 2).reshape(b, t, WIDTH)))  # (b, t, width)
        return x + self.drop(self.mlp(self.norm_2(x)))


class GPT(nn.Module):
    def __init__(self, letters: int) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(letters, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, letters, bias=False)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)
        self.head.weight = self.token.weight  # tied

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens) + self.place.weight[: tokens.shape[1]]  # (b, t, width)
        return self.head(self.norm(self.blocks(x)))  # (b, t, letters)

    @torch.no_grad()
    def write(self, tokens: Tensor, count: int) -> Tensor:
        for _ in range(count):
            odds = self(tokens[:, -CONTEXT:])[:, -1].softmax(-1)  # (b, letters)
            tokens = torch.cat([tokens, torch.multinomial(odds, 1)], dim=1)
        return tokens


def make_optimizer(model: GPT) -> torch.optim.AdamW:
    """Matrices decay, vectors do not."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.95))


def rate(step: int, steps: int) -> float:
    """Linear warm-up, then a cosine down to a tenth."""
    if step < WARMUP:
        return (step + 1) / WARMUP
    return 0.55 + 0.45 * math.cos(math.pi * min(1.0, (step - WARMUP) / max(1, steps - WARMUP)))


@torch.no_grad()
def measure(model: GPT, text: Characters) -> float:
    """The loss on a fixed part of the text, without dropout."""
    x, y = data.default_collate([text[start] for start in range(0, len(text), 50)])
    loss = F.cross_entropy(model.eval()(x).flatten(0, 1), y.flatten())
    model.train()
    return loss.item()


def main(steps: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    text = Characters(make_text())
    model = GPT(len(text.letters))
    optimizer = make_optimizer(model)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, steps))

    done = 0
    while done < steps:
        for x, y in data.DataLoader(text, batch_size=BATCH, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            scheduler.step()
            if done % 10 == 0:
                print(f"step {done}: loss {measure(model, text):.4f}")
            done += 1
            if done == steps:
                break

    model.eval()
    written = model.write(text.tokens[None, :4], 60)[0]
    print("".join(text.letters[token] for token in written))
    print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    main(parser.parse_args().steps)
