"""A GPT in PyTorch, written from the paper: the opponent of the benchmarks and the source of the
gradient fixtures. Names are those of gradcc's models, so that parameters can be exchanged.

GPT-2 stores the matrices of its blocks as [in, out] (conv1d=True); chargpt as [out, in].
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Matrix(nn.Module):
    """y = x W + b with W stored [in, out] (conv1d) or [out, in]."""

    def __init__(self, n_in, n_out, bias, conv1d):
        super().__init__()
        self.conv1d = conv1d
        self.weight = nn.Parameter(torch.empty((n_in, n_out) if conv1d else (n_out, n_in)))
        self.bias = nn.Parameter(torch.zeros(n_out)) if bias else None
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x):
        if not self.conv1d:
            return F.linear(x, self.weight, self.bias)
        flat = x.reshape(-1, x.shape[-1])
        y = flat @ self.weight if self.bias is None else torch.addmm(self.bias, flat, self.weight)
        return y.view(*x.shape[:-1], -1)


class Norm(nn.Module):
    def __init__(self, n, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))
        self.bias = nn.Parameter(torch.zeros(n)) if bias else None

    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, 1e-5)


class Attention(nn.Module):
    def __init__(self, c, heads, bias, conv1d):
        super().__init__()
        self.heads = heads
        self.c_attn = Matrix(c, 3 * c, bias, conv1d)
        self.c_proj = Matrix(c, c, bias, conv1d)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (z.view(b, t, self.heads, c // self.heads).transpose(1, 2)
                   for z in self.c_attn(x).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(b, t, c))


class Mlp(nn.Module):
    def __init__(self, c, bias, conv1d):
        super().__init__()
        self.c_fc = Matrix(c, 4 * c, bias, conv1d)
        self.c_proj = Matrix(4 * c, c, bias, conv1d)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, c, heads, bias, conv1d):
        super().__init__()
        self.ln_1 = Norm(c, bias)
        self.attn = Attention(c, heads, bias, conv1d)
        self.ln_2 = Norm(c, bias)
        self.mlp = Mlp(c, bias, conv1d)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self, vocab, c, heads, layers, t_max, bias=True, conv1d=False):
        super().__init__()
        self.wte = nn.Embedding(vocab, c)
        self.wpe = nn.Embedding(t_max, c)
        nn.init.normal_(self.wte.weight, std=0.02)
        nn.init.normal_(self.wpe.weight, std=0.02)
        self.h = nn.ModuleList(Block(c, heads, bias, conv1d) for _ in range(layers))
        self.ln_f = Norm(c, bias)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.h:
            x = block(x)
        logits = self.ln_f(x) @ self.wte.weight.t()
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1),
                               ignore_index=-100)
