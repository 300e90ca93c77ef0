"""The same weights give the same logits and gradients as torch's own modules."""

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contracts.checks.common import perturbed
from saccade.config import python_layer, resolve
from saccade.models.assemble import Model, ModelConfig, assemble
from saccade.notes import capture
from saccade.parts import MultiHead
from saccade.places import Memory, Places

B, T, S, D, H, INNER, V = 3, 7, 5, 22, 2, 13, 17
LAYERS = 2
CLOSE = 1e-5


def keeps(*lengths: int) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


SOURCE_KEEP, TARGET_KEEP = keeps(S, 3, 1), keeps(T, 4, 1)


# ── one attention ─────────────────────────────────────────────────────────────────────────────────


def copy_attention(ours: nn.Module, theirs: nn.MultiheadAttention) -> None:
    sides = [ours.query, ours.key, ours.value]
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([side.weight for side in sides]))
        theirs.in_proj_bias.copy_(torch.cat([side.bias for side in sides]))
    copy(ours.out, theirs.out_proj)


def copy(ours: nn.Module, theirs: nn.Module) -> None:
    theirs.load_state_dict(ours.state_dict())


@pytest.mark.parametrize("listening", [False, True])
@pytest.mark.parametrize("looks_at", ["itself", "its past", "a memory"])
def test_multi_head_is_torchs(looks_at: str, listening: bool) -> None:
    torch.manual_seed(0)
    ours = perturbed(MultiHead(D, looks_at == "its past", heads=H)).eval()
    theirs = nn.MultiheadAttention(D, H, batch_first=True).eval()
    copy_attention(ours, theirs)
    x, states = torch.randn(B, T, D), torch.randn(B, S, D)
    places = Places.of(x, TARGET_KEEP)
    memory = Memory(states, Places.of(states, SOURCE_KEEP), states[:, 0]) if looks_at == "a memory" else None
    keys, keep = (x, TARGET_KEEP) if memory is None else (states, SOURCE_KEEP)
    mask = ~torch.ones(T, T, dtype=torch.bool).tril() if looks_at == "its past" else None
    wanted, weights = theirs(x, keys, keys, key_padding_mask=~keep, attn_mask=mask, average_attn_weights=False)
    if listening:
        with capture(ours) as maps:
            found, _ = ours(x, places, ours.start(memory, B))
        torch.testing.assert_close(maps[""], weights, atol=CLOSE, rtol=0)
    else:
        found, _ = ours(x, places, ours.start(memory, B))
    torch.testing.assert_close(found[TARGET_KEEP], wanted[TARGET_KEEP], atol=CLOSE, rtol=CLOSE)


# ── a whole Transformer ───────────────────────────────────────────────────────────────────────────


def our_model(connection: str, activation: str) -> Model:
    block = {
        "self": {"heads": H},
        "cross": {"heads": H},
        "connection": connection,
        "feed_forward": {"inner": INNER, "activation": activation},
    }
    side = {"depth": LAYERS, "block": block}
    config = resolve(ModelConfig, [python_layer({"dim": D, "encoder": side, "decoder": side})]).config
    torch.manual_seed(0)
    return perturbed(assemble(config, V, V), by=0.1).eval()


def their_model(ours: Model, pre: bool, activation: str) -> nn.Transformer:
    """torch ends both stacks with a norm whatever their order; after post-norms there is nothing left to norm."""
    options: dict[str, Any] = {"dropout": 0.0, "activation": activation, "batch_first": True, "norm_first": pre}
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(D, H, INNER, **options),
        LAYERS,
        nn.LayerNorm(D) if pre else None,
        enable_nested_tensor=False,
    )
    layer = nn.TransformerDecoderLayer(D, H, INNER, **options)
    decoder = nn.TransformerDecoder(layer, LAYERS, nn.LayerNorm(D) if pre else None)
    theirs = nn.Transformer(D, H, custom_encoder=encoder, custom_decoder=decoder, batch_first=True)  # draws new weights
    for our_side, their_side in ((ours.encoder, encoder), (ours.decoder, decoder)):
        for mine, its in zip(our_side.layers, their_side.layers, strict=True):
            norms = [mine.residual_self.norm, mine.residual_feed_forward.norm]
            copy_attention(mine.get_submodule("self"), its.self_attn)
            if our_side is ours.decoder:
                copy_attention(mine.cross, its.multihead_attn)
                norms.insert(1, mine.residual_cross.norm)
            for number, norm in enumerate(norms, 1):
                copy(norm, its.get_submodule(f"norm{number}"))
            copy(mine.feed_forward.up, its.linear1)
            copy(mine.feed_forward.down, its.linear2)
        if pre:
            copy(our_side.final_norm, their_side.norm)
    # eval and train differ in nothing but torch's fast path, which takes other kernels
    return theirs.train()


def sinusoid(length: int) -> Tensor:
    """The formula of the paper, in halves, written out number by number."""
    table = np.zeros((length, D))
    for place in range(length):
        for i in range(D // 2):
            angle = place / 10000 ** (2 * i / D)
            table[place, i], table[place, D // 2 + i] = math.sin(angle), math.cos(angle)
    return torch.tensor(table, dtype=torch.float32)


def our_logits(model: Model, source: Tensor, target: Tensor, padded: bool) -> Tensor:
    memory = model.encoder.encode(source, SOURCE_KEEP if padded else None)
    hidden, _ = model.decoder.step(target, model.decoder.start(memory, B), TARGET_KEEP if padded else None)
    return hidden @ model.encoder.embedding.table.weight.T


def their_logits(model: nn.Transformer, table: Tensor, source: Tensor, target: Tensor, padded: bool) -> Tensor:
    masks = {
        "src_key_padding_mask": ~SOURCE_KEEP,
        "memory_key_padding_mask": ~SOURCE_KEEP,
        "tgt_key_padding_mask": ~TARGET_KEEP,
    }
    read, written = (table[ids] * math.sqrt(D) + sinusoid(ids.shape[1]) for ids in (source, target))
    future = ~torch.ones(T, T, dtype=torch.bool).tril()
    return model(read, written, tgt_mask=future, **(masks if padded else {})) @ table.T


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("connection", ["pre", "post"])
def test_logits_and_gradients_are_torchs(connection: str, activation: str, padded: bool) -> None:
    ours = our_model(connection, activation)
    theirs = their_model(ours, connection == "pre", activation)
    table = ours.encoder.embedding.table.weight.detach().clone().requires_grad_()
    source, target, wanted = (torch.randint(V, (B, n)) for n in (S, T, T))
    keep = TARGET_KEEP if padded else torch.ones_like(TARGET_KEEP)
    logits = [our_logits(ours, source, target, padded), their_logits(theirs, table, source, target, padded)]
    scale = float(logits[1].detach()[keep].abs().max())
    assert 0.1 < scale < 100, "logits of no interest"
    torch.testing.assert_close(logits[0][keep] / scale, logits[1][keep] / scale, atol=CLOSE, rtol=0)
    for one in logits:
        F.cross_entropy(one[keep], wanted[keep]).backward()
    for name, mine, its in gradients(ours, theirs, table):
        size = max(1.0, float(its.abs().max()))
        off = (mine - its).abs().max().item() / size
        assert off <= CLOSE, f"the gradient of {name} is off by {off:.2g}"


def gradients(ours: Model, theirs: nn.Transformer, table: Tensor) -> Any:
    yield "embedding", ours.encoder.embedding.table.weight.grad, table.grad
    for side in ("encoder", "decoder"):
        for number in range(LAYERS):
            mine, its = (model.get_submodule(f"{side}.layers.{number}") for model in (ours, theirs))
            attentions = {"self": its.self_attn} | ({"cross": its.multihead_attn} if side == "decoder" else {})
            for name, attention in attentions.items():
                apart = [mine.get_submodule(name).get_submodule(role) for role in ("query", "key", "value")]
                where = f"{side}.layers.{number}.{name}"
                yield where, torch.cat([part.weight.grad for part in apart]), attention.in_proj_weight.grad
                yield f"{where}.out", mine.get_submodule(name).out.weight.grad, attention.out_proj.weight.grad
            yield f"{side}.{number}.into", mine.feed_forward.up.weight.grad, its.linear1.weight.grad
            yield f"{side}.{number}.norm", mine.residual_self.norm.weight.grad, its.norm1.weight.grad
