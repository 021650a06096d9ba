"""Models of scikit-learn, LightGBM and XGBoost, converted to ONNX, agree with the libraries they come from."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler
from sklearn.svm import SVC

import ingot

if TYPE_CHECKING:
    from pathlib import Path

X, Y = load_iris(return_X_y=True)
X = X.astype(np.float32)
NAMES = np.array(["setosa", "versicolor", "virginica"])


def converted(model: Any, features: int = X.shape[1]) -> onnx.ModelProto:
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType

    options = {id(model): {"zipmap": False}} if hasattr(model, "predict_proba") else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return to_onnx(
            model, initial_types=[("x", FloatTensorType([None, features]))], options=options, target_opset=17
        )


def agree(label: Any, probability: Any, model: Any, x: Any) -> None:
    """All but a few rows: one that lies on a threshold of a tree may fall either way in single precision."""
    far = np.abs(probability - model.predict_proba(x)).max(axis=1) > 1e-4
    assert np.mean(far) <= 0.02
    assert np.mean(label == model.predict(x)) >= 0.98


def run(model: onnx.ModelProto, folder: Path, x: Any) -> list[Any]:
    """In process and as a library, which must agree."""
    onnx.save(model, folder / "model.onnx")
    graph = ingot.compile(folder / "model.onnx")
    (name,) = [port.name for port in graph.inputs]
    outputs = list(graph.inference({name: x}).values())
    graph.emit(folder / "model.so")
    for a, b in zip(outputs, ingot.load(folder / "model.so").inference({name: x}).values(), strict=True):
        np.testing.assert_array_equal(a, b)
    return outputs


@pytest.mark.parametrize(
    "model",
    [
        make_pipeline(StandardScaler(), RandomForestClassifier(n_estimators=30, random_state=0)),
        make_pipeline(MinMaxScaler(), LogisticRegression(max_iter=500)),
        make_pipeline(Normalizer(), GradientBoostingClassifier(n_estimators=20, random_state=0)),
        SVC(probability=True, random_state=0),
        KNeighborsClassifier(),
    ],
    ids=lambda m: type(m[-1] if hasattr(m, "steps") else m).__name__,
)
@pytest.mark.parametrize("labels", ["numbers", "names"])
def test_classifiers_of_scikit_learn(model: Any, labels: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, Y if labels == "numbers" else NAMES[Y])
        label, probability = run(converted(model), tmp_path, X)
        agree(label, probability, model, X)


@pytest.mark.parametrize("model", [LinearRegression(), RandomForestRegressor(n_estimators=20, random_state=0)])
def test_regressors_of_scikit_learn(model: Any, tmp_path: Path) -> None:
    model.fit(X, X @ np.array([1.0, -2.0, 0.5, 3.0]))
    (y,) = run(converted(model), tmp_path, X)
    np.testing.assert_allclose(y.ravel(), model.predict(X), rtol=1e-4, atol=1e-4)


def boosted(kind: str, x: Any, y: Any) -> tuple[Any, onnx.ModelProto]:
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    types = [("x", FloatTensorType([None, x.shape[1]]))]
    if kind == "lightgbm":
        import lightgbm

        model = lightgbm.LGBMClassifier(n_estimators=25, verbose=-1).fit(x, y)
        return model, onnxmltools.convert_lightgbm(model, initial_types=types, zipmap=False, target_opset=15)
    import xgboost

    model = xgboost.XGBClassifier(n_estimators=25).fit(x, y)
    return model, onnxmltools.convert_xgboost(model, initial_types=types, target_opset=15)


@pytest.mark.parametrize("kind", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("classes", [2, 3])
def test_boosted_trees(kind: str, classes: int, tmp_path: Path) -> None:
    x, y = (X, Y) if classes == 3 else load_breast_cancer(return_X_y=True)
    x = np.asarray(x, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, onnx_model = boosted(kind, x, y)
        label, probability = run(onnx_model, tmp_path, x)
        agree(label, probability, model, x)
