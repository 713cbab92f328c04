import numpy as np
import pandas as pd
import pytest

from configs.errors import DataError
from tasks.data import labels


def test_labels_become_zeros_and_ones():
    frame = pd.DataFrame({"y": ["<30", "NO", ">30"]}, dtype="str")
    found = labels.binary(frame, column="y", positive=["<30"], negative=["NO", ">30"])
    assert found.tolist() == [1.0, 0.0, 0.0]
    assert found.dtype == np.float32


@pytest.mark.parametrize("cell", ["someone@example.org", None])
def test_a_label_in_neither_list_is_refused_without_its_text(cell):
    frame = pd.DataFrame({"y": ["yes", cell]}, dtype="str")
    with pytest.raises(DataError, match="neither") as caught:
        labels.binary(frame, column="y", positive=["yes"], negative=["no"])
    assert "example" not in str(caught.value)
