"""`hedgerow analyze`: figures against full weight tensors in float64, files, errors."""

import base64
import json
import random

import entmax
import numpy as np
import pytest
import safetensors.torch
import torch
import transformers
from program import refused, run, run_ok

import tokenizers

LAYERS, HEADS, WIDTH = 3, 4, 6
WORDS = ["hedge", "row", "bird", "song", "green", "field"]
PIECES = ["hedge", "row", "bird", "song", "##s", "##ing", "##er", "green", "field"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
MODELS = ["softmax", "relu", "entmax"]


def save_tokenizer(folder):
    vocab = {token: i for i, token in enumerate([*SPECIAL, *PIECES])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer


def swap(folder, layers, entry):
    """Makes a converted folder of a plain one: tensors by layer, one entry of config.json for all."""
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    for i, layer in enumerate(layers):
        for name, tensor in layer.items():
            tensors[f"encoder.layer.{i}.attention.hedgerow.{name}"] = tensor.contiguous()
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config["model_type"] = "hedgerow_bert"
    config["hedgerow"] = {"format": 1, "layers": [entry] * LAYERS}
    (folder / "config.json").write_text(json.dumps(config))
    return [{name: tensor.double() for name, tensor in layer.items()} for layer in layers]


def relu_layer():
    """Hedgehog's baseline map with biases that leave few features above 0: many weights are 0."""
    layer = {
        name: torch.eye(WIDTH) + 0.3 * torch.randn(HEADS, WIDTH, WIDTH) for name in ("wq", "wk")
    }
    return layer | {name: -2.0 - torch.rand(HEADS, WIDTH) for name in ("bq", "bk")}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Folders softmax/, relu/ and entmax/ of one random BERT, text.txt, the PyTorch model in float64."""
    root = tmp_path_factory.mktemp("analyze")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(SPECIAL) + len(PIECES), hidden_size=HEADS * WIDTH, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, intermediate_size=32, max_position_embeddings=48, initializer_range=0.4,
    )  # fmt: skip
    model = transformers.BertModel(config).eval()
    for name in MODELS:
        model.save_pretrained(root / name)
        save_tokenizer(root / name)
    rng = random.Random(1)
    lines = []
    for _ in range(40):
        lines.append(
            " ".join(
                rng.choice(WORDS) + rng.choice(["", "s", "ing", "ers"])
                for _ in range(rng.randint(1, 14))
            )
        )
    (root / "text.txt").write_text("\n".join(lines) + "\n")
    model.added = {
        "relu": swap(
            root / "relu",
            [relu_layer() for _ in range(LAYERS)],
            {"mixer": "hedgehog", "map": "relu", "bias": True},
        ),
        "entmax": swap(
            root / "entmax",
            [{"alpha_raw": torch.randn(HEADS)} for _ in range(LAYERS)],
            {"mixer": "entmax", "alpha": "learned"},
        ),
    }
    model.lines = lines
    return root, model.double()


def weights_of(model, kind, ids):
    """[layer][H,T,T] of one text."""
    seen = []

    def attend(module, query, key, value, attention_mask, **kwargs):
        scores = query @ key.mT / WIDTH**0.5
        if kind == "softmax":
            weights = scores.softmax(-1)
        elif kind == "entmax":
            alpha = 1 + model.added[kind][len(seen)]["alpha_raw"].sigmoid()
            weights = entmax.entmax_bisect(scores, alpha[None, :, None, None], n_iter=100)
        else:
            maps = model.added[kind][len(seen)]
            phi_q = (torch.einsum("bhtd,hde->bhte", query, maps["wq"]) + maps["bq"][:, None]).relu()
            phi_k = (torch.einsum("bhtd,hde->bhte", key, maps["wk"]) + maps["bk"][:, None]).relu()
            products = phi_q @ phi_k.mT
            total = products.sum(-1, keepdim=True)
            weights = products / torch.where(total == 0, 1, total)
        seen.append(weights[0].numpy())
        return (weights @ value).transpose(1, 2).contiguous(), None

    transformers.AttentionInterface.register("analyzed", attend)
    model.config._attn_implementation = "analyzed"
    with torch.no_grad():
        model(torch.tensor([ids]))
    return seen


def entropy(p):
    """In units of the logarithm of the row's length; rows along the last axis."""
    return -np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0).sum(-1) / np.log(p.shape[-1])


def expected(model, kind, folder, lines, reach, length=48):
    """The figures of METHODS section 2, from full weights."""
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    density, rows_entropy, rows_diversity, merging, groups = [], [], [], [], 0
    at_offset = {o: [] for o in range(-reach, reach + 1)}
    for line in lines:
        tokens = tokenizer.encode(line).tokens
        if len(tokens) > length:
            tokens = [*tokens[: length - 1], "[SEP]"]
        weights = np.stack(
            weights_of(model, kind, [tokenizer.token_to_id(t) for t in tokens])
        )  # [L,H,T,T]
        density.append((weights != 0).mean((2, 3)))
        each = entropy(weights)  # [L,H,T]
        rows_entropy.append(each)
        rows_diversity.append(entropy(weights.mean(1)) - each.mean(1))
        for o, values in at_offset.items():
            values.append(np.diagonal(weights, o, 2, 3))
        starts = [i for i, token in enumerate(tokens) if not token.startswith("##")] + [len(tokens)]
        for first, end in zip(starts, starts[1:]):
            if end - first > 1:
                block = weights[:, :, first:end, first:end]
                own = np.einsum("lhtt->lht", block)
                merging.append((block.sum(-1) - own).max(-1))
                groups += 1
    return {
        "density": np.mean(density, 0),
        "entropy": np.concatenate(rows_entropy, -1).mean(-1),
        "diversity": np.concatenate(rows_diversity, -1).mean(-1),
        "at_offset": np.stack(
            [np.concatenate(values, -1).mean(-1) for values in at_offset.values()]
        ),
        "subword_merging": np.mean(merging, 0),
        "groups": groups,
    }


def analyzed(root, kind, *more):
    return json.loads(run_ok("analyze", root / kind, "--data", root / "text.txt", "--json", *more))


@pytest.mark.parametrize("kind", MODELS)
def test_figures_are_the_definitions(root, kind):
    root, model = root
    ours = analyzed(root, kind, "--dtype", "float64", "--offsets", "3")
    theirs = expected(model, kind, root / kind, model.lines, 3)
    for name in ("density", "entropy", "diversity", "at_offset", "subword_merging"):
        assert np.abs(np.array(ours[name]) - theirs[name]).max() < 1e-9, name
    assert ours["data"]["subword_groups"] == theirs["groups"] > 20
    assert ours["offsets"] == [-3, -2, -1, 0, 1, 2, 3]
    density = np.array(ours["density"])
    assert (density == 1).all() if kind == "softmax" else density.min() < 0.8
    single = analyzed(root, kind, "--offsets", "3")
    for name in ("entropy", "diversity", "at_offset", "subword_merging"):
        assert np.abs(np.array(single[name]) - theirs[name]).max() < 2e-5, name


def test_alpha_is_shown(root):
    root, model = root
    ours = analyzed(root, "entmax")
    alpha = [(1 + layer["alpha_raw"].sigmoid()).tolist() for layer in model.added["entmax"]]
    assert np.abs(np.array(ours["head_values"]["alpha"]) - np.array(alpha)).max() < 1e-6
    assert analyzed(root, "softmax")["head_values"] == analyzed(root, "relu")["head_values"] == {}
    assert (
        "alpha" in run_ok("analyze", root / "entmax", "--data", root / "text.txt").splitlines()[0]
    )


@pytest.mark.parametrize("kind", MODELS)
def test_histogram_and_rankings_follow_from_the_tables(root, kind):
    root, model = root
    ours = analyzed(root, kind)
    counts = np.array(ours["density_histogram"]["counts"])
    assert counts.shape == (LAYERS, 20) and (counts.sum(1) == HEADS * 40).all()
    edges = np.array(ours["density_histogram"]["edges"])
    middle = (edges[:-1] + edges[1:]) / 2
    assert abs((counts @ middle / counts.sum(1)) - np.mean(ours["density"], 1)).max() <= 0.026
    at = np.array(ours["at_offset"])
    at[ours["offsets"].index(0)] = -1
    best = at.max(0)
    ranked = ours["positional_heads"]
    assert len(ranked) == LAYERS * HEADS
    assert [head["weight"] for head in ranked] == sorted(best.ravel().tolist(), reverse=True)
    for head in ranked:
        assert head["offset"] == ours["offsets"][at[:, head["layer"], head["head"]].argmax()]
    merging = ours["subword_merging_heads"]
    assert [head["weight"] for head in merging] == sorted(
        np.ravel(ours["subword_merging"]).tolist(), reverse=True
    )


def test_length_texts_and_columns(root, tmp_path):
    root, model = root
    ours = analyzed(
        root, "softmax", "--texts", "5", "--length", "8", "--offsets", "1", "--dtype", "float64"
    )
    theirs = expected(model, "softmax", root / "softmax", model.lines[:5], 1, length=8)
    assert ours["data"]["texts"] == 5 and ours["data"]["length"] == 8
    assert np.abs(np.array(ours["entropy"]) - theirs["entropy"]).max() < 1e-9
    table = tmp_path / "text.tsv"
    table.write_text("".join(f"{i}\t{line}\n" for i, line in enumerate(model.lines)))
    by_column = json.loads(
        run_ok("analyze", root / "softmax", "--data", table, "--column", "2", "--json")
    )
    assert by_column["entropy"] == analyzed(root, "softmax")["entropy"]


def test_one_text_alone_and_without_pieces(root, tmp_path):
    root, model = root
    text = tmp_path / "one.txt"
    text.write_text("hedge row bird\n")
    ours = json.loads(run_ok("analyze", root / "softmax", "--data", text, "--json"))
    assert ours["subword_merging"] is None and ours["subword_merging_heads"] == []
    assert ours["data"] == {
        "file": "one.txt",
        "texts": 1,
        "tokens": 5,
        "length": 48,
        "subword_groups": 0,
    }
    assert ours["at_offset"][0] == [[None] * HEADS] * LAYERS, "no token is 5 before another"
    out = run_ok("analyze", root / "softmax", "--data", text)
    assert "density" in out and "1 texts" in out.replace("1 text,", "1 texts,")


def test_threads_and_repetition_change_nothing(root):
    root, _ = root
    once = analyzed(root, "relu", "--threads", "1")
    assert once == analyzed(root, "relu", "--threads", "2")


def test_folder_and_maps(root, tmp_path):
    root, model = root
    out = tmp_path / "out"
    printed = run_ok(
        "analyze",
        root / "relu",
        "--data",
        root / "text.txt",
        "--out",
        out,
        "--examples",
        "3",
        "--quiet",
    )
    assert printed == ""
    assert sorted(path.name for path in out.iterdir()) == ["heads.json", "maps.json", "report.html"]
    heads = json.loads((out / "heads.json").read_text())
    assert heads["model"]["mixers"][0]["map"] == "relu" and heads["command"].startswith(
        "hedgerow analyze"
    )
    assert heads["density"] == analyzed(root, "relu")["density"]
    maps = json.loads((out / "maps.json").read_text())
    assert maps["zeros"] == "exact" and maps["sides"] == ["model"] and len(maps["sentences"]) == 3
    tokenizer = tokenizers.Tokenizer.from_file(str(root / "relu" / "tokenizer.json"))
    for sentence, line in zip(
        maps["sentences"], (model.lines[0], model.lines[13], model.lines[26])
    ):
        encoding = tokenizer.encode(line)
        assert sentence["text"] == line and sentence["tokens"] == encoding.tokens
        weights = np.stack(weights_of(model, "relu", encoding.ids))
        bytes_ = np.frombuffer(base64.b64decode(sentence["model"]), np.uint8).reshape(weights.shape)
        assert ((bytes_ == 0) == (weights == 0)).mean() > 0.999
        assert np.abs((bytes_ / 255.0) ** 2 - weights).max() < 0.005
    again = run("report", out)
    assert again.returncode == 0, again.stderr


def test_existing_output_is_refused_and_replaced_when_complete(root, tmp_path):
    root, _ = root
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("keep")
    command = [
        "analyze",
        root / "softmax",
        "--data",
        root / "text.txt",
        "--out",
        out,
        "--texts",
        "4",
        "--quiet",
    ]
    assert "--force" in refused(*command)
    assert (out / "mine.txt").read_text() == "keep"
    refused(*command, "--force", "--length", "49")
    assert sorted(path.name for path in out.iterdir()) == ["mine.txt"]
    run_ok(*command, "--force")
    assert sorted(path.name for path in out.iterdir()) == ["heads.json", "maps.json", "report.html"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    "more,words",
    [
        (["--texts", "0"], "--texts"),
        (["--length", "49"], "48 positions"),
        (["--length", "2"], "2 special tokens"),
        (["--length", "-1"], "--length"),
        (["--offsets", "0"], "--offsets"),
        (["--examples", "-1"], "--examples"),
        (["--force"], "--out"),
        (["--column", "2"], "column 2 asked for"),
        (["--data", "nowhere.txt"], "nowhere.txt"),
        (["--out", "no/such/folder"], "--out"),
    ],
)
def test_errors(root, tmp_path, more, words):
    root, _ = root
    command = ["analyze", root / "softmax", *more]
    if "--data" not in more:
        command += ["--data", root / "text.txt"]
    assert words in refused(*command, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_bad_files(root, tmp_path):
    root, _ = root
    text = tmp_path / "empty.txt"
    text.write_text("\n\n")
    assert "empty.txt" in refused(
        "analyze", root / "softmax", "--data", text, "--out", tmp_path / "out"
    )
    text.write_bytes(b"caf\xe9\n")
    assert "UTF-8" in refused(
        "analyze", root / "softmax", "--data", text, "--out", tmp_path / "out"
    )
    refused("analyze", tmp_path, "--data", root / "text.txt", "--out", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["empty.txt"]
