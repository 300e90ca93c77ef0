"""With the same weights, our attention and Transformer give the outputs and gradients of torch's own modules."""

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contracts.checks.common import padding_mask, perturbed
from saccade.config import python_layer, resolve
from saccade.inputs import Tokens
from saccade.models.assemble import Model, ModelConfig, assemble
from saccade.notes import capture
from saccade.parts import MultiHead
from saccade.places import Memory, Places

B, T, S, D, H, INNER, V = 3, 7, 5, 22, 2, 13, 17
LAYERS = 2
TOLERANCE = 1e-5


SOURCE_KEEP, TARGET_KEEP = padding_mask((S, 3, 1)), padding_mask((T, 4, 1))


# ── one attention ─────────────────────────────────────────────────────────────────────────────────


def copy_attention(ours: nn.Module, theirs: nn.MultiheadAttention) -> None:
    projections = [ours.query, ours.key, ours.value]
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([projection.weight for projection in projections]))
        theirs.in_proj_bias.copy_(torch.cat([projection.bias for projection in projections]))
    copy(ours.out, theirs.out_proj)


def copy(ours: nn.Module, theirs: nn.Module) -> None:
    theirs.load_state_dict(ours.state_dict())


@pytest.mark.parametrize("capturing", [False, True])
@pytest.mark.parametrize("kind", ["self", "causal self", "cross"])
def test_multi_head_equals_torchs_multihead_attention(kind: str, capturing: bool) -> None:
    torch.manual_seed(0)
    ours = perturbed(MultiHead(D, kind == "causal self", heads=H)).eval()
    theirs = nn.MultiheadAttention(D, H, batch_first=True).eval()
    copy_attention(ours, theirs)
    x, states = torch.randn(B, T, D), torch.randn(B, S, D)
    places = Places.of(x, TARGET_KEEP)
    memory = Memory(states, Places.of(states, SOURCE_KEEP), states[:, 0]) if kind == "cross" else None
    keys, keep = (x, TARGET_KEEP) if memory is None else (states, SOURCE_KEEP)
    mask = ~torch.ones(T, T, dtype=torch.bool).tril() if kind == "causal self" else None
    expected, weights = theirs(x, keys, keys, key_padding_mask=~keep, attn_mask=mask, average_attn_weights=False)
    if capturing:
        with capture(ours) as maps:
            actual, _ = ours(x, places, ours.start(memory, B))
        torch.testing.assert_close(maps[""], weights, atol=TOLERANCE, rtol=0)
    else:
        actual, _ = ours(x, places, ours.start(memory, B))
    torch.testing.assert_close(actual[TARGET_KEEP], expected[TARGET_KEEP], atol=TOLERANCE, rtol=TOLERANCE)


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
    return perturbed(assemble(config, Tokens(V), V), by=0.1).eval()


def their_model(ours: Model, pre: bool, activation: str) -> nn.Transformer:
    """torch's Transformer ends both stacks with a norm by default; here only pre-norm stacks have one."""
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
        for our_layer, their_layer in zip(our_side.layers, their_side.layers, strict=True):
            norms = [our_layer.residual_self.norm, our_layer.residual_feed_forward.norm]
            copy_attention(our_layer.get_submodule("self"), their_layer.self_attn)
            if our_side is ours.decoder:
                copy_attention(our_layer.cross, their_layer.multihead_attn)
                norms.insert(1, our_layer.residual_cross.norm)
            for number, norm in enumerate(norms, 1):
                copy(norm, their_layer.get_submodule(f"norm{number}"))
            copy(our_layer.feed_forward.up, their_layer.linear1)
            copy(our_layer.feed_forward.down, their_layer.linear2)
        if pre:
            copy(our_side.final_norm, their_side.norm)
    # without dropout, train mode differs from eval mode only by avoiding torch's inference fast path with other kernels
    return theirs.train()


def sinusoid(length: int) -> Tensor:
    """The formula of the paper, entry by entry, with all sines in the first half."""
    table = np.zeros((length, D))
    for position in range(length):
        for i in range(D // 2):
            angle = position / 10000 ** (2 * i / D)
            table[position, i], table[position, D // 2 + i] = math.sin(angle), math.cos(angle)
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
    source_x, target_x = (table[ids] * math.sqrt(D) + sinusoid(ids.shape[1]) for ids in (source, target))
    future = ~torch.ones(T, T, dtype=torch.bool).tril()
    return model(source_x, target_x, tgt_mask=future, **(masks if padded else {})) @ table.T


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("connection", ["pre", "post"])
def test_logits_and_gradients_equal_those_of_torchs_transformer(connection: str, activation: str, padded: bool) -> None:
    ours = our_model(connection, activation)
    theirs = their_model(ours, connection == "pre", activation)
    table = ours.encoder.embedding.table.weight.detach().clone().requires_grad_()
    source, target, labels = (torch.randint(V, (B, n)) for n in (S, T, T))
    keep = TARGET_KEEP if padded else torch.ones_like(TARGET_KEEP)
    logits = [our_logits(ours, source, target, padded), their_logits(theirs, table, source, target, padded)]
    scale = float(logits[1].detach()[keep].abs().max())
    assert 0.1 < scale < 100, "the logits are nearly constant or huge, so the comparison would test little"
    torch.testing.assert_close(logits[0][keep] / scale, logits[1][keep] / scale, atol=TOLERANCE, rtol=0)
    for batch_logits in logits:
        F.cross_entropy(batch_logits[keep], labels[keep]).backward()
    for name, actual, expected in gradients(ours, theirs, table):
        scale = max(1.0, float(expected.abs().max()))
        error = (actual - expected).abs().max().item() / scale
        assert error <= TOLERANCE, f"the gradient of {name} is off by {error:.2g}"


def gradients(ours: Model, theirs: nn.Transformer, table: Tensor) -> Any:
    """Name, our gradient and torch's gradient of corresponding weights."""
    yield "embedding", ours.encoder.embedding.table.weight.grad, table.grad
    for side in ("encoder", "decoder"):
        for number in range(LAYERS):
            our_layer, their_layer = (model.get_submodule(f"{side}.layers.{number}") for model in (ours, theirs))
            attentions = {"self": their_layer.self_attn} | (
                {"cross": their_layer.multihead_attn} if side == "decoder" else {}
            )
            for name, attention in attentions.items():
                projections = [our_layer.get_submodule(name).get_submodule(role) for role in ("query", "key", "value")]
                path = f"{side}.layers.{number}.{name}"
                yield path, torch.cat([part.weight.grad for part in projections]), attention.in_proj_weight.grad
                yield f"{path}.out", our_layer.get_submodule(name).out.weight.grad, attention.out_proj.weight.grad
            yield f"{side}.{number}.up", our_layer.feed_forward.up.weight.grad, their_layer.linear1.weight.grad
            yield f"{side}.{number}.norm", our_layer.residual_self.norm.weight.grad, their_layer.norm1.weight.grad
