"""`hedgerow analyze --what spectra`: figures against numpy on the same scores in float64, resume, errors."""

import json
import signal
import subprocess
import time

import numpy as np
import pytest
import torch
import transformers
from program import program_path, refused, run_ok
from test_convert import tiny  # noqa: F401  (a fixture)

import tokenizers

LENGTH, HEADS, LAYERS, WIDTH = 12, 4, 2, 8


def arguments(tiny, *more):  # noqa: F811
    return ["analyze", tiny / "model", "--what", "spectra", "--data", tiny / "text.txt", "--n", LENGTH,
            "--positions", "3,5", "--threads", "1", "--dtype", "float64", *more]  # fmt: skip


def spectra(*command):
    return json.loads(run_ok(*command, "--json"))


@pytest.fixture(scope="module")
def windows(tiny):  # noqa: F811
    """All windows of the file, as token ids [N,n]."""
    tokenizer = tokenizers.Tokenizer.from_file(str(tiny / "model" / "tokenizer.json"))
    lines = (tiny / "text.txt").read_text().splitlines()
    ids = [i for line in lines for i in tokenizer.encode(line, add_special_tokens=False).ids]
    room = LENGTH - 2
    return torch.tensor([[2, *ids[i : i + room], 3] for i in range(0, len(ids) - room + 1, room)])


@pytest.fixture(scope="module")
def scores(tiny, windows):  # noqa: F811
    """[layer][head] rows of scores [rows,n], and of weights."""
    model = transformers.BertModel.from_pretrained(tiny / "model").double().eval()
    model.config._attn_implementation = "eager"
    heads = {}
    for i, layer in enumerate(model.encoder.layer):
        for part in ("query", "key"):
            getattr(layer.attention.self, part).register_forward_hook(
                lambda _m, _in, out, key=(i, part): heads.__setitem__(key, out.detach())
            )
    with torch.no_grad():
        model(windows)
    rows = []
    for i in range(LAYERS):
        q, k = (
            heads[i, part].view(len(windows), LENGTH, HEADS, WIDTH).transpose(1, 2)
            for part in ("query", "key")
        )
        s = q @ k.transpose(2, 3) / WIDTH**0.5  # [N,H,n,n]
        rows.append(s.transpose(0, 1).reshape(HEADS, -1, LENGTH).numpy())
    return rows


@pytest.fixture(scope="module")
def found(tiny):  # noqa: F811
    return spectra(*arguments(tiny, "--windows", "100000", "--by-query", "--matrices", "20"))


def covariance(rows):
    return np.cov(rows.reshape(-1, LENGTH).T, bias=True)


def falling(matrix):
    return np.linalg.eigvalsh(matrix)[::-1]


def leading(matrix, k):
    return np.linalg.eigh(matrix)[1][:, ::-1][:, :k]


def forms(rows):
    weights = np.exp(rows - rows.max(-1, keepdims=True))
    return {
        "scores": rows,
        "centred": rows - rows.mean(-1, keepdims=True),
        "weights": weights / weights.sum(-1, keepdims=True),
    }


def fewest(values, share):
    return int(np.argmax(np.cumsum(values) >= share * values.sum() * (1 - 1e-9))) + 1


@pytest.mark.parametrize("form", ["scores", "centred", "weights"])
def test_eigenvalues_and_dimensions(found, scores, form):
    got = found["forms"][form]
    for layer in range(LAYERS):
        rows = forms(scores[layer])[form]
        want = falling(covariance(rows))
        np.testing.assert_allclose(got["eigenvalues"][layer], want, rtol=1e-6, atol=1e-9 * want[0])
        for share in ("0.9", "0.95", "0.99"):
            assert got["k"][share][layer] == fewest(want, float(share))
            for head in range(HEADS):
                own = falling(covariance(rows[head]))
                assert got["k_by_head"][share][layer][head] == fewest(own, float(share))
    shared = falling(covariance(np.concatenate([forms(s)[form] for s in scores])))
    np.testing.assert_allclose(got["shared_eigenvalues"], shared, rtol=1e-6, atol=1e-9 * shared[0])


def test_overlap_and_explained_variance(found, scores):
    got = found["forms"]["scores"]
    for k in (3, 5):
        assert got["chance"][str(k)] == pytest.approx(k / LENGTH)
        for a in range(LAYERS):
            ca = covariance(scores[a])
            for b in range(LAYERS):
                u, v = leading(ca, k), leading(covariance(scores[b]), k)
                want = np.linalg.norm(u.T @ v) ** 2 / k
                assert got["overlap"][str(k)][a][b] == pytest.approx(want, rel=1e-6)
                want = np.trace(v.T @ ca @ v) / np.trace(ca)
                assert got["explained"][str(k)][a][b] == pytest.approx(want, rel=1e-6)


def left_of(c, positions):
    columns = c[:, positions]
    among = c[np.ix_(positions, positions)]
    return np.trace(c - columns @ np.linalg.solve(among, columns.T)) / np.trace(c)


def test_selection_leaves_what_it_says(found, scores):
    for layer in range(LAYERS):
        c = covariance(scores[layer])
        got = found["selection"]["layers"][layer]
        for method in ("greedy", "cholesky", "variance", "even", "random"):
            positions = got["positions"][method]
            assert len(set(positions)) == 5
            for i in range(1, 6):
                assert got["residual"][method][i] == pytest.approx(
                    left_of(c, positions[:i]), abs=1e-8
                )
        values = falling(c)
        for i in range(6):
            want = values[i:].sum() / values.sum()
            assert got["residual"]["floor"][i] == pytest.approx(want, abs=1e-9)
            assert got["residual"]["greedy"][i] >= got["residual"]["floor"][i] - 1e-9


def test_reconstruction_is_judged_on_other_text(found, scores, windows):
    """Four parts in turns of eight windows; each is predicted from the other three."""
    part = (np.arange(len(windows)) // 8) % 4
    by_window = scores[0].reshape(HEADS, len(windows), LENGTH, LENGTH)
    fit = next(
        r for r in found["reconstruction"] if r["positions"] == 3 and r["sharing"] == "layer"
    )
    ridge = fit["ridge"][0][0]
    error = total = 0.0
    parts = [by_window[:, part == p].reshape(-1, LENGTH) for p in range(4)]
    whole = covariance(scores[0])
    chosen = [0]  # position 0 first, then each the best one
    while len(chosen) < 3:
        rest = [j for j in range(LENGTH) if j not in chosen]
        chosen.append(min(rest, key=lambda j: left_of(whole, [*chosen, j])))
    for held in range(4):
        train = np.concatenate([parts[p] for p in range(4) if p != held])
        mean, c = train.mean(0), covariance(train)
        among = c[np.ix_(chosen, chosen)]
        among = among + ridge * np.diag(among).mean() * np.eye(3)
        r = np.linalg.solve(among, c[chosen]).T
        x = parts[held] - mean
        error += ((x - x[:, chosen] @ r.T) ** 2).sum()
        total += (x**2).sum()
    assert fit["heldout_residual"][0][0] == pytest.approx(error / total, rel=1e-6)
    assert {r["sharing"] for r in found["reconstruction"]} == {"layer", "shared", "head"}


def test_whole_matrices(found, scores, windows):
    matrix = found["matrix"]
    assert matrix["samples"] == HEADS * len(windows) and matrix["rank"] == 20
    for layer in range(LAYERS):
        x = scores[layer].reshape(-1, LENGTH * LENGTH)
        values = np.linalg.eigvalsh(np.cov(x.T, bias=True))[::-1]
        assert matrix["total"][layer] == pytest.approx(values.sum(), rel=1e-6)
        # Nystroem's estimates are at most the eigenvalues, and close to the first ones
        got = np.array(matrix["eigenvalues"][layer])
        assert (got <= values[:20] * (1 + 1e-6)).all() and got[0] > 0.8 * values[0]
        pairs = matrix["pairs"][layer]
        assert len({tuple(p) for p in pairs}) == len(pairs)
        assert all(0 <= i < LENGTH for p in pairs for i in p)
        left = matrix["residual"][layer]
        assert all(b <= a + 1e-9 for a, b in zip(left, left[1:], strict=False))


def test_own_positions_of_queries_leave_less(found):
    own, common = found["queries"]["own"], found["queries"]["common"]
    assert all(0 < o < c < 1 for o, c in zip(own, common, strict=True))


def test_against_itself(tiny, found):  # noqa: F811
    got = spectra(*arguments(tiny, "--windows", "100000", "--against", tiny / "model"))["against"][
        "forms"
    ]["scores"]
    for k in ("3", "5"):
        np.testing.assert_allclose(got["overlap"][k], found["forms"]["scores"]["overlap"][k])
        assert got["overlap"][k][1][1] == pytest.approx(1)


def test_cost_is_said_as_it_is(found):
    scores = (LENGTH * 3 * WIDTH + LENGTH * LENGTH * 3) / (LENGTH * LENGTH * WIDTH)
    assert found["cost"]["3"]["scores"] == pytest.approx(scores)


def test_interrupted_run_goes_on(tiny, tmp_path):  # noqa: F811
    more = ["--windows", "400", "--by-query", "--matrices", "10", "--quiet"]
    whole = tmp_path / "whole"
    run_ok(*arguments(tiny, "--out", whole, *more))
    cut = tmp_path / "cut"
    command = [program_path(), *map(str, arguments(tiny, "--out", cut, *more))]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    while process.poll() is None and not (tmp_path / "cut.partial" / "training").exists():
        time.sleep(0.001)
    time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    code = process.wait()
    if code != 0:
        assert code == 130 and not cut.exists()
        assert "cut" in refused(*arguments(tiny, "--out", cut, *more))
        other = tiny / "other.txt"  # as many windows of other text
        other.write_text("\n".join(reversed((tiny / "text.txt").read_text().splitlines())) + "\n")
        elsewhere = arguments(tiny, "--out", cut, "--resume", *more)
        elsewhere[elsewhere.index("--data") + 1] = other
        assert " data " in refused(*elsewhere)
        run_ok(*arguments(tiny, "--out", cut, "--resume", *more))
    a, b = (json.loads((out / "spectra.json").read_text()) for out in (whole, cut))
    for key in ("forms", "selection", "reconstruction", "matrix", "queries"):
        assert a[key] == b[key]
    assert (cut / "report.html").exists() and not (cut / "training").exists()


@pytest.mark.parametrize(
    "more, words",
    [
        (["--n", "65"], ["--n", "64", "65"]),
        (["--n", "1"], ["--n", "1"]),
        (["--positions", "13"], ["--positions", "12", "13"]),
        (["--windows", "0"], ["--windows", "0"]),
        (["--matrices", "145"], ["--matrices", "144", "145"]),
        (["--texts", "5"], ["--texts", "spectra"]),
        (["--resume"], ["--resume", "--out"]),
    ],
)
def test_bad_options(tiny, more, words):  # noqa: F811
    command = arguments(tiny)
    if more[0] in command:
        at = command.index(more[0])
        del command[at : at + 2]
    line = refused(*command, *more)
    for word in words:
        assert word in line


def test_one_window(tiny, tmp_path):  # noqa: F811
    """Nothing is held out of it, which the report says; positions by query need more."""
    out = tmp_path / "one"
    run_ok(*arguments(tiny, "--windows", "1", "--out", out, "--quiet"))
    fits = json.loads((out / "spectra.json").read_text())["reconstruction"]
    assert {left for fit in fits for layer in fit["heldout_residual"] for left in layer} == {None}
    assert (out / "report.html").exists()
    line = refused(*arguments(tiny, "--windows", "1", "--by-query", "--out", tmp_path / "two"))
    assert "--by-query" in line and "1 windows of 4 heads" in line
    assert list(tmp_path.iterdir()) == [out]


def test_options_of_spectra_need_spectra(tiny):  # noqa: F811
    line = refused("analyze", tiny / "model", "--data", tiny / "text.txt", "--n", "8")
    assert "--n" in line and "heads" in line


def test_too_little_text(tiny, tmp_path):  # noqa: F811
    (tmp_path / "short.txt").write_text("wa1 wb2\n")
    command = arguments(tiny)
    command[command.index("--data") + 1] = tmp_path / "short.txt"
    assert "window" in refused(*command)


def test_wrong_input_leaves_no_folder(tiny, tmp_path):  # noqa: F811
    out = tmp_path / "out"
    command = arguments(tiny, "--out", out)
    for name, value in (("--n", 65), ("--data", tmp_path / "none.txt")):
        wrong = list(command)
        wrong[wrong.index(name) + 1] = value
        refused(*wrong)
    refused(*command, "--against", tmp_path / "none")
    assert not list(tmp_path.glob("out*"))
    run_ok(*command)
