"""Exported models give the same tokens in transformers; imported models give the same logits as in transformers."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM, MarianConfig, MarianMTModel, MarianTokenizer

from formats.small import SOURCES, TARGETS, make_run, merged, outputs_of, recipe
from saccade.api import Run
from saccade.config import build
from saccade.data.batches import Corpus
from saccade.data.tokenizers import END, PAD, START, SentencePieceKind
from saccade.errors import RunError
from saccade.formats import marian
from saccade.formats.marian_import import import_marian
from saccade.parts.positions import sinusoid
from saccade.runs.files import verify
from saccade.tasks.losses import teacher_forced_hidden

pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")

LINES = [line for line in SOURCES[:4] if line]
POST: dict[str, Any] = {"block": {"connection": "post"}}
MODELS: dict[str, dict[str, Any]] = {
    "shared": {"model": POST},
    "separate tables": {"model": POST | {"shared_embeddings": False}},
    "separate vocabularies": {"model": POST | {"shared_embeddings": False}, "data": {"joint": False}},
    "linear head": {"model": POST | {"head": "linear"}},
    "bias, swish, unscaled, depths": {
        "model": merged(
            POST,
            {
                "head": {"kind": "tied", "bias": True},
                "block": {"feed_forward": {"activation": "swish"}},
                "encoder": {"depth": 1, "embedding": {"scaled": False}},
                "decoder": {"depth": 3, "embedding": {"scaled": False}},
            },
        )
    },
    "gelu, piece list": {
        "model": merged(POST, {"block": {"feed_forward": {"activation": "gelu"}}}),
        "data": {"tokenizer": {"kind": "piece_list", "size": 60}},
    },
    "pre-norm": {},
    "pre-norm, swish, depths": {
        "model": {
            "block": {"feed_forward": {"activation": "swish"}},
            "encoder": {"depth": 1},
            "decoder": {"depth": 3},
        }
    },
}


def exported(run: Run, folder: Path) -> tuple[Any, Any]:
    marian.write(run, folder)
    return AutoModelForSeq2SeqLM.from_pretrained(folder).eval(), MarianTokenizer.from_pretrained(folder)


# ── export ──


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_exported_model_generates_the_same_tokens_in_transformers(name: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", **MODELS[name])
    assert marian.why_not(run.recipe) is None
    model, tokenizer = exported(run, tmp_path / "folder")
    for line, outputs in zip(LINES, outputs_of(run.engine, run.recipe.decode, LINES), strict=True):
        inputs = tokenizer([line], return_tensors="pt")
        assert inputs["input_ids"][0].tolist() == [*run.codecs.source.encode([line])[0], END]
        generated = model.generate(**inputs, max_length=len(outputs[0].ids) + 1, num_beams=1)[0].tolist()
        assert generated[1:] == list(outputs[0].ids)
        assert tokenizer.decode(generated, skip_special_tokens=True) == outputs[0].text.strip()


def test_exported_pre_norm_model_has_exactly_the_weights_of_pegasus(tmp_path: Path) -> None:
    marian.write(make_run(tmp_path / "run"), tmp_path / "folder")
    model, loading = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "folder", output_loading_info=True)
    assert type(model).__name__ == "PegasusForConditionalGeneration"
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]


def test_exported_folder_is_complete_and_loads_in_transformers(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", POST)
    exported(run, tmp_path / "folder")
    names = {path.name for path in (tmp_path / "folder").iterdir()}
    assert names == {
        "config.json",
        "generation_config.json",
        "manifest.json",
        "model.safetensors",
        "README.md",
        "source.spm",
        "target.spm",
        "tokenizer_config.json",
        "vocab.json",
    }
    assert {*verify(tmp_path / "folder")["files"]} == names - {"manifest.json"}
    assert isinstance(AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "folder"), MarianMTModel)
    texts = [(tmp_path / "folder" / name).read_text("utf-8") for name in names if name.endswith((".md", ".json"))]
    assert str(tmp_path) not in "".join(texts)


def test_model_card_has_front_matter_and_the_scores_of_the_checkpoint(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", POST)
    record = {"step": 1, "validation": {"bleu": 31.5, "chrf": 52.25, "loss": 2.0}, "samples": []}
    run.folder.metrics.write_text(json.dumps(record) + "\n", "utf-8")
    marian.write(run, tmp_path / "folder")
    _, front, text = (tmp_path / "folder" / "README.md").read_text("utf-8").split("---\n")
    facts = yaml.safe_load(front)
    assert (facts["library_name"], facts["pipeline_tag"]) == ("transformers", "translation")
    metrics = facts["model-index"][0]["results"][0]["metrics"]
    assert [(each["type"], each["value"]) for each in metrics] == [("bleu", 31.5), ("chrf", 52.25)]
    assert "tok:13a" in metrics[0]["args"]
    assert "| BLEU | 31.50 |" in text


OBSTACLES: dict[str, dict[str, Any]] = {
    "model.encoder.exceptions: Marian in transformers has the same block in all layers": {
        "model": POST | {"encoder": {"exceptions": [{"at": [1], "norm": {"eps": 1e-4}}]}}
    },
    "model.decoder.block.connection: transformers has one kind for encoder and decoder": {
        "model": POST | {"decoder": {"block": {"connection": "pre"}}}
    },
    "model.shared_embeddings: Pegasus, to which pre-norm models are exported": {"model": {"shared_embeddings": False}},
    'model.encoder: Marian in transformers does not support "recurrent"': {"model": {"encoder": {"kind": "recurrent"}}},
    'model.encoder.position: Marian in transformers does not support "learned"': {
        "model": POST | {"encoder": {"position": "learned"}}
    },
    'model.encoder.block.self.score: Marian in transformers does not support "dot"': {
        "model": merged(POST, {"block": {"self": {"score": "dot"}}})
    },
    "model.encoder.block.norm.eps: Marian in transformers has 1e-05": {
        "model": merged(POST, {"block": {"norm": {"eps": 1e-3}}})
    },
    "model.decoder.block.feed_forward.activation: Marian has one": {
        "model": POST | {"decoder": {"block": {"feed_forward": {"activation": "gelu"}}}}
    },
    "model.decoder.embedding.scaled: Marian has one": {"model": POST | {"decoder": {"embedding": {"scaled": False}}}},
    'data.tokenizer: MarianTokenizer needs sentencepiece, not "bytes"': {
        "model": POST,
        "data": {"tokenizer": {"kind": "bytes"}},
    },
}


@pytest.mark.parametrize("reason", OBSTACLES)
def test_unsupported_config_key_is_named(reason: str) -> None:
    options = dict(OBSTACLES[reason])
    assert (marian.why_not(recipe(options.pop("model", None), **options)) or "").startswith(reason)


# ── import ──

CONFIGS: dict[str, dict[str, Any]] = {
    "like OPUS-MT": {"activation_function": "swish", "scale_embedding": True, "static_position_embeddings": True},
    "relu, depths": {"activation_function": "relu", "encoder_layers": 1, "decoder_layers": 3},
    "separate tables": {"share_encoder_decoder_embeddings": False, "scale_embedding": True},
    "no tied weights": {"tie_word_embeddings": False, "activation_function": "gelu"},
    "other start symbol": {"decoder_start_token_id": 7},
    "starts from the end symbol": {"decoder_start_token_id": 0},
}


def hf_folder(folder: Path, options: dict[str, Any]) -> tuple[Any, Any]:
    """A random model in the format of transformers: </s> = 0, <unk> = 1, <pad> last, two sentencepiece models, one
    vocabulary."""
    folder.mkdir(parents=True)
    protos = [SentencePieceKind(size=50).learn(texts) for texts in (SOURCES[:4], TARGETS)]
    pieces = sorted({name for each in protos for name in each.vocabulary()[4:]})
    names = ["</s>", "<unk>", *pieces, "<pad>"]
    for name, each in zip(("source.spm", "target.spm"), protos, strict=True):
        (folder / name).write_bytes(each.dump())
    (folder / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}), "utf-8")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "MarianTokenizer"}', "utf-8")
    pad = len(names) - 1
    sizes = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 20}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 4}
    ids = {"pad_token_id": pad, "decoder_start_token_id": pad, "eos_token_id": 0, "forced_eos_token_id": 0}
    torch.manual_seed(0)
    model = MarianMTModel(MarianConfig(vocab_size=len(names), **(sizes | heads | ids | options))).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.3 * torch.randn(weight.shape)
        model.final_logits_bias += torch.randn(model.final_logits_bias.shape)
    model.tie_weights()
    model.save_pretrained(folder)
    # loaded again: the sinusoids were perturbed as well, but are not stored
    return AutoModelForSeq2SeqLM.from_pretrained(folder).eval(), MarianTokenizer.from_pretrained(folder)


def imported(folder: Path, path: Path) -> Run:
    import_marian(folder, path)
    return Run(path)


def hf_ids_of(run: Run, model: Any, folder: Path) -> list[int]:
    """The token id in transformers for each id in Saccade."""
    vocabulary = json.loads((folder / "vocab.json").read_text("utf-8"))
    first = [model.config.pad_token_id, 1, model.config.decoder_start_token_id, 0]
    return [*first, *(vocabulary[name] for name in run.codecs.target.vocabulary()[4:])]


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_of_an_imported_run_equal_those_of_transformers(name: str, tmp_path: Path) -> None:
    model, tokenizer = hf_folder(tmp_path / "folder", CONFIGS[name])
    run = imported(tmp_path / "folder", tmp_path / "run")
    hf_ids = hf_ids_of(run, model, tmp_path / "folder")
    sources, targets = run.codecs.source.encode(LINES), run.codecs.target.encode(TARGETS[: len(LINES)])
    for row, line in enumerate(LINES):
        inputs = tokenizer([line], return_tensors="pt")
        assert inputs["input_ids"][0].tolist() == [hf_ids[i] for i in [*sources[row], END]]
        with torch.inference_mode():
            begin = torch.tensor([[hf_ids[i] for i in [START, *targets[row]]]])
            expected = model(**inputs, decoder_input_ids=begin).logits.log_softmax(-1)[0]
            batch = Corpus([sources[row]], [targets[row]]).batch([0])
            log_probs = run.model.head.log_probs(teacher_forced_hidden(run.model, batch)[0])
        others = [i for i in range(len(hf_ids)) if i != START]
        torch.testing.assert_close(log_probs[:, others], expected[:, [hf_ids[i] for i in others]], atol=1e-4, rtol=1e-4)
        assert float(expected.std()) > 0.1


def test_imported_run_can_be_exported_with_the_same_outputs(tmp_path: Path) -> None:
    model, tokenizer = hf_folder(tmp_path / "folder", CONFIGS["like OPUS-MT"])
    run = imported(tmp_path / "folder", tmp_path / "run")
    results = outputs_of(run.engine, run.recipe.decode, LINES)
    hf_ids = hf_ids_of(run, model, tmp_path / "folder")
    for line, outputs in zip(LINES, results, strict=True):
        inputs, banned = tokenizer([line], return_tensors="pt"), [[model.config.pad_token_id]]
        limit = len(outputs[0].ids) + 1
        generated = model.generate(**inputs, max_length=limit, num_beams=1, bad_words_ids=banned)[0].tolist()
        assert generated[1:] == [hf_ids[i] for i in outputs[0].ids]
    again, _ = exported(run, tmp_path / "again")
    twice = imported(tmp_path / "again", tmp_path / "twice")
    assert [o[0].ids for o in outputs_of(twice.engine, run.recipe.decode, LINES)] == [o[0].ids for o in results]
    assert again.config.vocab_size == run.codecs.source.size == twice.codecs.source.size
    ctranslate2 = pytest.importorskip("saccade.formats.ctranslate2")
    ctranslate2.write(run, tmp_path / "ct2")
    fast = outputs_of(ctranslate2.open(tmp_path / "ct2"), run.recipe.decode, LINES)
    assert [o[0].ids for o in fast] == [o[0].ids for o in results]


def test_special_tokens_of_an_imported_run_are_never_generated(tmp_path: Path) -> None:
    hf_folder(tmp_path / "folder", CONFIGS["like OPUS-MT"])
    run = imported(tmp_path / "folder", tmp_path / "run")
    for outputs in outputs_of(run.engine, run.recipe.decode, LINES):
        assert not {PAD, START} & {*outputs[0].ids}
    assert run.score([("ein Kind", "a child")])[0] > -1e4


def test_commands_accept_an_imported_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from saccade.cli import main

    hf_folder(tmp_path / "folder", {})
    path = str(tmp_path / "run")
    (tmp_path / "src").write_text("".join(f"{line}\n" for line in LINES), "utf-8")
    (tmp_path / "ref").write_text("".join(f"{line}\n" for line in TARGETS[: len(LINES)]), "utf-8")
    files = [str(tmp_path / "src"), str(tmp_path / "ref")]
    assert main(["import", "hf", str(tmp_path / "folder"), "-o", path]) == 0
    assert main(["translate", path, files[0]]) == 0
    assert main(["evaluate", path, "--src", files[0], "--ref", files[1]]) == 0
    assert main(["view", path, "ein Kind", "-o", str(tmp_path / "page.html")]) == 0
    assert main(["export", path, "--to", "hf", "-o", str(tmp_path / "out")]) == 0
    capsys.readouterr()
    assert main(["import", "hf", str(tmp_path / "folder"), "-o", path]) == 2
    assert "already exists" in capsys.readouterr().err


BROKEN: dict[str, tuple[str, Any, str]] = {
    "other model type": (
        "config.json",
        {"model_type": "bart"},
        "config.json: model_type: must be 'marian', got 'bart'; only models",
    ),
    "too many layers": ("config.json", {"encoder_layers": 10**9}, "config.json: encoder_layers: must be"),
    "too deep": ("config.json", {"encoder_layers": 5}, "model.safetensors: the weight for encoder.layers.2"),
    "other width": ("config.json", {"d_model": 32}, "is missing, or is not a table of width 32"),
    "id beyond the table": ("config.json", {"pad_token_id": 4000}, "has the token id 4000"),
    "pre-norm": ("config.json", {"normalize_before": True}, "config.json: normalize_before: must be False"),
    "piece beyond the table": ("vocab.json", {"x": 9999}, "vocab.json: expected pieces with ids below"),
    "duplicate id": ("vocab.json", {"x": 1}, "vocab.json: two pieces have the same id"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_inconsistent_folder_is_refused_and_no_run_is_written(name: str, tmp_path: Path) -> None:
    hf_folder(tmp_path / "folder", {})
    file, change, reason = BROKEN[name]
    path = tmp_path / "folder" / file
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | change), "utf-8")
    with pytest.raises(RunError, match=reason):
        import_marian(tmp_path / "folder", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def with_weight(folder: Path, name: str, weight: torch.Tensor) -> Path:
    path = folder / "model.safetensors"
    save_file(load_file(path) | {name: weight}, path)
    return folder


def test_weight_that_a_marian_model_does_not_have_is_refused(tmp_path: Path) -> None:
    hf_folder(tmp_path / "folder", {})
    folder = with_weight(tmp_path / "folder", "model.encoder.layernorm_embedding.weight", torch.ones(16))
    with pytest.raises(RunError, match=r"has the weight model\.encoder\.layernorm_embedding\.weight, which"):
        import_marian(folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_positions_that_are_not_sinusoids_are_refused(tmp_path: Path) -> None:
    hf_folder(tmp_path / "folder", {})
    name, table = "model.encoder.embed_positions.weight", sinusoid(torch.arange(512), 16)
    import_marian(with_weight(tmp_path / "folder", name, table), tmp_path / "run")
    with pytest.raises(RunError, match=r"embed_positions\.weight does not hold sinusoids"):
        import_marian(with_weight(tmp_path / "folder", name, table.roll(1, 0)), tmp_path / "other")


@pytest.mark.parametrize("damage", ["missing", "not JSON"])
def test_damaged_vocabulary_is_refused_with_the_remedy(damage: str, tmp_path: Path) -> None:
    hf_folder(tmp_path / "folder", {})
    path = tmp_path / "folder" / "vocab.json"
    path.unlink() if damage == "missing" else path.write_text("{", "utf-8")
    with pytest.raises(RunError, match=r"vocab\.json: is .*; download the model again, or save it again"):
        import_marian(tmp_path / "folder", tmp_path / "run")


def test_pickles_are_refused(tmp_path: Path) -> None:
    hf_folder(tmp_path / "folder", {})
    (tmp_path / "folder" / "model.safetensors").rename(tmp_path / "folder" / "pytorch_model.bin")
    with pytest.raises(RunError, match="is a pickle, which may run code; save the model as safetensors"):
        import_marian(tmp_path / "folder", tmp_path / "run")


def test_language_code_is_one_piece_as_in_transformers(tmp_path: Path) -> None:
    kind = build(recipe(data={"tokenizer": {"kind": "piece_list", "size": 60}}).data.tokenizer, "tokenizer")
    learned = kind.learn(TARGETS)
    known = type(learned)(learned.proto, [*learned.vocabulary()[4:], ">>de<<"])
    code, rest = known.encode([">>de<< a child"])[0], known.encode(["a child"])[0]
    assert code == [known.size - 1, *rest]
    assert known.encode([">>xx<<a child"])[0] == [1, *rest]
    assert known.encode([">> a child"])[0] == known.encode([">> a child"])[0] != []
