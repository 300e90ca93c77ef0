"""With the same weights, our Transformer gives the logits and gradients of transformers' MarianMTModel. This is what
makes export to it and import from it possible."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contracts.checks.common import padding_mask, perturbed
from saccade.config import python_layer, resolve
from saccade.inputs import Tokens
from saccade.models.assemble import Model, ModelConfig, assemble

B, T, S, H, INNER, V = 3, 7, 5, 2, 13, 17
ENCODER_LAYERS, DECODER_LAYERS = 3, 2
PAD, START = 16, 11  # Marian pads with its last id, and starts from an id of the user's choice
TOLERANCE = 1e-5


SOURCE_KEEP, TARGET_KEEP = padding_mask((S, 3, 1)), padding_mask((T, 4, 1))


def our_model(dim: int, activation: str) -> Model:
    block = {
        "self": {"heads": H},
        "cross": {"heads": H},
        "connection": "post",
        "feed_forward": {"inner": INNER, "activation": activation},
    }
    sides = {
        side: {"depth": depth, "block": block}
        for side, depth in (("encoder", ENCODER_LAYERS), ("decoder", DECODER_LAYERS))
    }
    config = resolve(ModelConfig, [python_layer({"dim": dim, **sides})]).config
    torch.manual_seed(0)
    return perturbed(assemble(config, Tokens(V), V), by=0.1).eval()


def copy(ours: nn.Module, theirs: nn.Module) -> None:
    theirs.load_state_dict(ours.state_dict())


def copy_attention(ours: nn.Module, theirs: Any) -> None:
    for role in ("query", "key", "value"):
        copy(ours.get_submodule(role), theirs.get_submodule(f"{role[0]}_proj"))
    copy(ours.out, theirs.out_proj)


def marian(ours: Model, dim: int, activation: str, attention: str) -> Any:
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=V,
        d_model=dim,
        encoder_layers=ENCODER_LAYERS,
        decoder_layers=DECODER_LAYERS,
        encoder_attention_heads=H,
        decoder_attention_heads=H,
        encoder_ffn_dim=INNER,
        decoder_ffn_dim=INNER,
        max_position_embeddings=64,
        activation_function=activation,
        scale_embedding=True,
        dropout=0.0,
        pad_token_id=PAD,
        eos_token_id=0,
        forced_eos_token_id=0,
        decoder_start_token_id=START,
        attn_implementation=attention,
    )
    theirs = MarianMTModel(config).eval()
    copy(ours.encoder.embedding.table, theirs.model.shared)
    theirs.tie_weights()
    for our_side, their_side in ((ours.encoder, theirs.model.encoder), (ours.decoder, theirs.model.decoder)):
        for our_layer, their_layer in zip(our_side.layers, their_side.layers, strict=True):
            copy_attention(our_layer.get_submodule("self"), their_layer.self_attn)
            copy(our_layer.residual_self.norm, their_layer.self_attn_layer_norm)
            if our_side is ours.decoder:
                copy_attention(our_layer.cross, their_layer.encoder_attn)
                copy(our_layer.residual_cross.norm, their_layer.encoder_attn_layer_norm)
            copy(our_layer.feed_forward.up, their_layer.fc1)
            copy(our_layer.feed_forward.down, their_layer.fc2)
            copy(our_layer.residual_feed_forward.norm, their_layer.final_layer_norm)
    return theirs


def ids() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    source, target = torch.randint(PAD, (B, S)), torch.randint(PAD, (B, T))
    inputs = torch.cat([torch.full((B, 1), START), target[:, :-1]], 1)
    return source.masked_fill(~SOURCE_KEEP, PAD), inputs.masked_fill(~TARGET_KEEP, PAD), target


def our_logits(model: Model, source: Tensor, inputs: Tensor) -> Tensor:
    memory = model.encoder.encode(source, SOURCE_KEEP)
    hidden, _ = model.decoder.step(inputs, model.decoder.start(memory, B), TARGET_KEEP)
    return hidden @ model.encoder.embedding.table.weight.T


def their_logits(model: Any, source: Tensor, inputs: Tensor) -> Tensor:
    return model(
        input_ids=source,
        attention_mask=SOURCE_KEEP.long(),
        decoder_input_ids=inputs,
        decoder_attention_mask=TARGET_KEEP.long(),
    ).logits


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("dim", [22, 26])
def test_logits_equal_those_of_marian(dim: int, activation: str, attention: str) -> None:
    ours = our_model(dim, activation)
    theirs = marian(ours, dim, activation, attention)
    source, inputs, _ = ids()
    with torch.no_grad():
        expected = their_logits(theirs, source, inputs)[TARGET_KEEP]
        actual = our_logits(ours, source, inputs)[TARGET_KEEP]
    scale = max(1.0, float(expected.abs().max()))
    assert float(expected.std()) > 0.1, "the logits are nearly constant, so the comparison would test little"
    torch.testing.assert_close(actual / scale, expected / scale, atol=TOLERANCE, rtol=0)


def test_gradients_equal_those_of_marian() -> None:
    ours = our_model(22, "relu")
    theirs = marian(ours, 22, "relu", "eager")
    source, inputs, target = ids()
    for logits in (our_logits(ours, source, inputs), their_logits(theirs, source, inputs)):
        F.cross_entropy(logits[TARGET_KEEP], target[TARGET_KEEP]).backward()
    pairs = {
        "the embedding table": (ours.encoder.embedding.table.weight.grad, theirs.model.shared.weight.grad),
        "the query of the first encoder layer": (
            ours.encoder.get_submodule("layers.0.self.query").weight.grad,
            theirs.model.encoder.layers[0].self_attn.q_proj.weight.grad,
        ),
        "the cross-attention value of the last decoder layer": (
            ours.decoder.get_submodule("layers.1.cross.value").weight.grad,
            theirs.model.decoder.layers[1].encoder_attn.v_proj.weight.grad,
        ),
    }
    for name, (actual, expected) in pairs.items():
        scale = max(1.0, float(expected.abs().max()))
        error = float((actual - expected).abs().max()) / scale
        assert error <= TOLERANCE, f"the gradient of {name} is off by {error:.2g}"


def test_position_encodings_equal_those_of_marian() -> None:
    from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

    from saccade.parts.positions import sinusoid

    theirs = MarianSinusoidalPositionalEmbedding(1024, 22).create_weight()
    torch.testing.assert_close(sinusoid(torch.arange(1024), 22), theirs, atol=1e-6, rtol=0)
