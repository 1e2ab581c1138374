"""`hedgerow bench`: that it measures what it says; how fast is not tested."""

import json

import pytest
from program import refused, run_ok
from test_models import tiny_folder


def bench(*args) -> dict:
    return json.loads(run_ok("bench", *args, "--rounds", "1", "--json", "--threads", "1"))


def test_operators_are_checked_and_timed():
    document = bench("ops", "--length", "33,70", "--heads", "2", "--head-dim", "12", "--decode")
    rows = document["rows"]
    found = {(row["method"], row["mask"], row["step"], row["T"]) for row in rows}
    assert len(rows) == len(found) == 2 * 2 * 2 * 2
    assert {row["T"] for row in rows} == {33, 70} and {row["heads"] for row in rows} == {2}
    for row in rows:
        assert row["ms"] > 0 and row["sdpa_ms"] > 0 and 0 <= row["error"] < 1e-4
        assert row["ratio"] == pytest.approx(row["ms"] / row["sdpa_ms"])
        assert 0 < row["percent_of_peak"] < 130  # clocks move between the two measurements
    assert document["machine"]["threads"] == 1 and document["decode"]["kernel_us"] > 0


@pytest.mark.parametrize(("heads", "width"), [(8, 24), (12, 16), (24, 8), (48, 5)])
def test_talking_heads_beside_einsum(heads, width):
    rows = bench(
        "ops",
        "--method",
        "talking_heads",
        "--heads",
        str(heads),
        "--head-dim",
        str(width),
        "--length",
        "33,70",
        "--max-eager-length",
        "33",
    )["rows"]
    assert len(rows) == 2 * 2 * 2
    for row in rows:
        assert (
            (row["heads"], row["head_dim"]) == (heads, width)
            and row["ratio"] > 0
            and 0 <= row["error"] < 1e-4
        )
        assert ("eager_ms" in row) == ("eager_peak_bytes" in row) == (row["T"] == 33)
        pairs = heads * (
            row["T"] ** 2 if row["mask"] == "dense" else row["T"] * (row["T"] + 1) // 2
        )
        products = 2 * (width + heads) if row["step"] == "forward" else 7 * width + 9 * heads
        assert row["gflops"] * row["ms"] * 1e6 == pytest.approx(2 * pairs * products)


@pytest.mark.parametrize("alpha", ["1.5", "mix"])
def test_talking_heads_with_entmax(alpha):
    rows = bench(
        "ops",
        "--method",
        "talking_heads_entmax",
        "--alpha",
        alpha,
        "--length",
        "40",
        "--heads",
        "3",
    )["rows"]
    assert [row["alpha"] for row in rows] == [alpha] * 4
    for row in rows:
        assert row["eager_ms"] > 0 and 0 <= row["error"] < 1e-4 and 0 < row["density"] <= 1


@pytest.mark.parametrize("width", [12, 33])
def test_partial_beside_exact_attention(width):
    heads = 3
    rows = bench(
        "ops",
        "--method",
        "partial",
        "--positions",
        "1,9,40",
        "--length",
        "33,70",
        "--heads",
        str(heads),
        "--head-dim",
        str(width),
    )["rows"]
    methods = {"partial_all_keys", "partial_selected", "partial_layer"}
    kinds = {(row["method"], row["mask"], row["step"]) for row in rows}
    assert len(kinds) == 12 and {method for method, _, _ in kinds} == methods
    sizes = [(33, 1), (33, 9), (70, 1), (70, 9), (70, 40)]  # no more positions than keys
    for kind in kinds:
        found = [row for row in rows if (row["method"], row["mask"], row["step"]) == kind]
        assert [(row["T"], row["positions"]) for row in found] == sizes
    for row in rows:
        assert row["sdpa_ms"] > 0 and 0 <= row["error"] < 1e-4
        assert row["exact_ratio"] == pytest.approx(row["ms"] / row["exact_ms"])
        n, p, d, m = row["T"], row["positions"], width, heads * width
        share = row["multiplications"]
        assert share["scores"] == pytest.approx(p / d + p / n)
        scores, values = heads * n * p * (d + n), heads * n * n * d
        exact = 2 * heads * n * n * d
        assert share["core"] == pytest.approx((scores + values) / exact)
        projected = m * m * (3 * n + p)
        assert share["layer"] == pytest.approx(
            (scores + values + projected) / (exact + 4 * n * m * m)
        )
        if (row["mask"], row["step"]) == ("dense", "forward"):
            products = scores + values + (projected if row["method"] == "partial_layer" else 0)
            assert row["gflops"] * row["ms"] * 1e6 == pytest.approx(2 * products)


def test_one_method_of_partial_attention():
    arguments = ["--positions", "5", "--length", "20", "--heads", "2", "--max-sdpa-length", "0"]
    rows = bench("ops", "--method", "partial_layer", *arguments)["rows"]
    assert [row["method"] for row in rows] == ["partial_layer"] * 4
    assert all("sdpa_ms" not in row and row["exact_ms"] > 0 for row in rows)


def test_own_reconstructions_of_queries():
    arguments = ["--positions", "3,5", "--length", "20", "--heads", "2", "--batch", "2"]
    rows = bench("ops", "--method", "partial_by_query", *arguments)["rows"]
    found = {(row["mask"], row["step"], row["positions"]) for row in rows}
    steps = ("forward", "forward+backward")
    assert found == {
        (mask, step, p) for mask in ("dense", "causal") for step in steps for p in (3, 5)
    }
    assert all(0 <= row["error"] < 1e-4 for row in rows)


def test_long_rows_leave_out_softmax(tmp_path):
    out = tmp_path / "bench.json"
    document = bench(
        "ops", "--length", "40", "--method", "hedgehog", "--max-sdpa-length", "39", "--out", out
    )
    assert all("sdpa_ms" not in row for row in document["rows"])
    assert json.loads(out.read_text())["rows"] == document["rows"]


def test_layers_of_models(tmp_path):
    tiny_folder(tmp_path / "plain")
    assert [
        row["mixer"] for row in bench("model", tmp_path / "plain", "--length", "5,9")["rows"]
    ] == ["softmax"] * 2
    config = json.loads((tmp_path / "plain" / "config.json").read_text())
    positions = config["max_position_embeddings"]
    rows = bench("model", tmp_path / "plain", "--layer", "1", "--length", str(4 * positions))[
        "rows"
    ]
    assert rows[0]["T"] == 4 * positions, "a layer alone has no positions"


@pytest.mark.parametrize(
    "arguments,needle",
    [
        (["ops", "--method", "nothing"], "nothing"),
        (["ops", "--method", "nothing"], "partial_selected"),
        (["ops", "--length", "0"], "0"),
        (["ops", "--method", "partial", "--positions", "0"], "--positions"),
        (["ops", "some/model"], "takes no model"),
        (["model"], "model folder"),
        (["model", "no/such/folder"], "no/such/folder"),
        (["speed"], "speed"),
    ],
)
def test_bad_arguments(arguments, needle):
    assert needle in refused("bench", *arguments)


def test_a_layer_that_is_not_there(tmp_path):
    tiny_folder(tmp_path / "plain")
    assert "layer" in refused("bench", "model", tmp_path / "plain", "--layer", "99")
