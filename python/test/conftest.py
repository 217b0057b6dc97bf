"""What several files of tests share."""
import pytest


@pytest.fixture(scope="session")
def mlp():
    # Some files run where torch is not.
    import neso
    import torch
    from modules import Mlp
    batch = torch.export.Dim("batch", min=1, max=64)
    model = Mlp().eval()
    return model, neso.compile(model, (torch.randn(2, 16),), dynamic_shapes=({0: batch},)).load()
