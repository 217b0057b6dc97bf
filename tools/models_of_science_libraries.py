"""Models of libraries for graphs, science, tables, flows, metrics and simulation: `check_models.py --from models_of_science_libraries`.

Needs torch_geometric neuraloperator tensorly tensorly-torch torch_harmonics e3nn egnn-pytorch torchdiffeq gpytorch botorch zuko nflows deepctr-torch
rtdl_num_embeddings pytorch-tabnet entmax pykan geoopt roma geomloss torchmetrics. Random weights, nothing downloaded.
What libraries leave to their users (equations with derivatives, quantum circuits, rendering) is written out at the end.
MODELS: name → (build, input sets, dynamic shapes), as MODELS of check_models.py has it.
"""
import importlib
from unittest import mock

import torch
from torch import distributions as D
from torch import nn
from torch.export import Dim
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import models_of_timm
from models_of_timm import images
from models_of_transformers import floats, unlike

BATCH = Dim("batch", min=2, max=32)
NODES, EDGES = Dim("nodes", min=3, max=200), Dim("edges", min=3, max=900)


class Call(models_of_timm.Call):
    """All tensors of what the call returns are outputs."""

    def forward(self, *tensors):
        return tuple(t for t in pytree.tree_leaves(super().forward(*tensors)) if isinstance(t, torch.Tensor))


def at(path):
    """What PATH, module.name, names."""
    module, name = path.rsplit(".", 1)
    return getattr(importlib.import_module(module), name)


def dims(dynamic):
    return (tuple(dynamic),) if dynamic else None


def model(path, args=(), call=lambda m, *xs: m(*xs), sets=None, dynamic=None, **options):
    """A class, called with ARGS (a function of nothing, where they are made of what is not yet imported) and options."""
    def build():
        return Call(unlike(at(path)(*(args() if callable(args) else args), **options).eval()), call)
    return (build, sets, dims(dynamic))


def plain(call, sets, dynamic=None):
    """A function of tensors."""
    return (lambda: Call(None, lambda _, *xs: call(*xs)), sets, dims(dynamic))


def traced(row):
    """A model that torch.export does not follow (derivatives by torch.func, checks of values), as the operators that it runs on its first inputs."""
    build, sets, _ = row

    def trace():
        from torch.fx.experimental.proxy_tensor import make_fx
        held, given = build(), sets()[0]
        for p in held.parameters():
            p.requires_grad_(False)
        return make_fx(held, _error_on_data_dependent_ops=False)(*given)
    return (trace, sets, None)


def mlp(*widths):
    layers = [m for a, b in zip(widths, widths[1:]) for m in (nn.Linear(a, b), nn.SiLU())]
    return nn.Sequential(*layers[:-1])


# Parts of a graph: features of nodes and of edges (a), edges, their weights, kinds (t) and pseudo-coordinates (u), places and normals of nodes,
# which graph of the batch a node is of (b).
SHAPES = {"e": {1: EDGES}, "w": {0: EDGES}, "a": {0: EDGES}, "t": {0: EDGES}, "u": {0: EDGES}}


def graph(nodes, edges, parts):
    made = {
        "x": torch.randn(nodes, 8), "e": torch.randint(0, nodes, (2, edges)), "w": torch.rand(edges) + 0.1, "a": torch.randn(edges, 4),
        "p": torch.randn(nodes, 3), "n": F.normalize(torch.randn(nodes, 3), dim=1), "b": torch.arange(nodes) * 3 // nodes,
        "t": torch.randint(0, 3, (edges,)), "u": torch.rand(edges, 2),
    }
    return tuple(made[p] for p in parts)


def gnn(name, parts, args=(), still=False, call=lambda m, *xs: m(*xs), **options):
    """torch_geometric.nn.NAME on graphs of any size, or of one size (STILL)."""
    sizes = ((9, 24),) if still else ((9, 24), (5, 11), (14, 40))
    return model(f"torch_geometric.nn.{name}", args, call, lambda: [graph(n, m, parts) for n, m in sizes],
                 None if still else [SHAPES.get(p, {0: NODES}) for p in parts], **options)


def pool(name, args=()):
    """An aggregation of nodes to their graphs."""
    return gnn(name, "xb", args, call=lambda m, x, b: m(x, b, dim_size=3))


def norms(x, b):
    kinds = [at(f"torch_geometric.nn.{k}")(8) for k in ("GraphNorm", "InstanceNorm", "LayerNorm")]
    return [m(x, b) for m in kinds + [at(f"torch_geometric.nn.{k}")() for k in ("PairNorm", "GraphSizeNorm", "MeanSubtractionNorm")]]


KINDS = ("a", "to", "b"), ("b", "of", "a")

GRAPHS = {
    "gcn": gnn("GCNConv", "xew", (8, 16)),
    "cheb": gnn("ChebConv", "xew", (8, 16), K=3),
    "sage_max": gnn("SAGEConv", "xe", (8, 16), aggr="max", project=True, normalize=True),
    "gated_graph": gnn("GatedGraphConv", "xew", (12, 3)),
    "gat": gnn("GATConv", "xea", (8, 8), heads=2, edge_dim=4),
    "transformer_conv": gnn("TransformerConv", "xea", (8, 8), heads=2, edge_dim=4, beta=True),
    "gine": gnn("GINEConv", "xea", lambda: (mlp(8, 16, 16),), edge_dim=4),
    "arma": gnn("ARMAConv", "xew", (8, 16), num_stacks=2, num_layers=2),
    "rgcn_blocks": gnn("RGCNConv", "xet", (8, 16, 3), num_blocks=2, is_sorted=True),
    "rgat": gnn("RGATConv", "xeta", (8, 8, 3), heads=2, edge_dim=4),
    "pointnet_conv": gnn("PointNetConv", "xpe", lambda: (mlp(11, 16), mlp(16, 8))),
    "gmm_separate": gnn("GMMConv", "xeu", (8, 16), dim=2, kernel_size=3, separate_gaussians=True, aggr="max"),
    "nnconv": gnn("NNConv", "xea", lambda: (8, 6, mlp(4, 16, 48)), aggr="mean"),
    "cgconv": gnn("CGConv", "xea", (8,), dim=4, aggr="max", batch_norm=True),
    "ppf": gnn("PPFConv", "xpne", lambda: (mlp(12, 16), mlp(16, 8))),
    "feast": gnn("FeaStConv", "xe", (8, 16), heads=3),
    "point_transformer": gnn("PointTransformerConv", "xpe", (8, 16)),
    "pna": gnn("PNAConv", "xea", lambda: (8, 16, ["mean", "min", "max", "std", "sum"], ["identity", "amplification", "attenuation", "linear"],
                                          torch.tensor([1, 3, 4, 2, 1])), edge_dim=4, towers=2),
    "gen_softmax": gnn("GENConv", "xea", (8, 16), aggr="softmax", learn_t=True, edge_dim=4, msg_norm=True),
    "gen_power": gnn("GENConv", "xea", (8, 16), aggr="powermean", learn_p=True, edge_dim=4),
    "eg": gnn("EGConv", "xe", (8, 16), aggregators=["sum", "mean", "std", "var", "max", "symnorm"], num_heads=4),
    "han": gnn("HANConv", "xe", ({"a": 8, "b": 8}, 8, (["a", "b"], list(KINDS))), heads=2, still=True,
               call=lambda m, x, e: m({"a": x, "b": x.sin()}, {KINDS[0]: e, KINDS[1]: e.flip(0)})),
    "graph_pools": plain(lambda x, b: [at(f"torch_geometric.nn.global_{k}_pool")(x, b, 3) for k in ("add", "mean", "max")],
                         lambda: [graph(9, 24, "xb"), graph(14, 24, "xb")], [{0: NODES}] * 2),
    "graph_norms": traced(plain(norms, lambda: [graph(9, 24, "xb")])),
    "set2set": pool("Set2Set", (8, 3)),
    "attentional_aggr": pool("AttentionalAggregation", lambda: (mlp(8, 8, 1), mlp(8, 8))),
    "multi_aggr": pool("MultiAggregation", (["mean", "mul", "var", "std", "softmax", "powermean", "min"],)),
    "dmon_pool": model("torch_geometric.nn.DMoNPooling", (8, 3), sets=lambda: [(torch.randn(2, 6, 8), torch.rand(2, 6, 6))]),
    "jumping_lstm": model("torch_geometric.nn.JumpingKnowledge", ("lstm", 8, 2), lambda m, x, y: m([x, y]), floats((7, 8), (7, 8))),
    "polynormer": gnn("Polynormer", "xeb", (8, 16, 4), local_layers=2, global_layers=1, still=True),
    "kge_rotate": model("torch_geometric.nn.RotatE", (9, 3, 8), sets=lambda: [tuple(torch.randint(0, n, (7,)) for n in (9, 3, 9))]),
}


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(3, 16, 2)

    def forward(self, t, y):
        return self.net(torch.cat([y, t.expand(len(y), 1)], 1))


def ode(method):
    """An ODE solved with a fixed step."""
    return traced((lambda: Call(Field(), lambda m, y: at("torchdiffeq.odeint")(m, y, torch.linspace(0, 1, 5), method=method)), images((4, 2)), None))


def posterior(make):
    """The mean and covariance of a Gaussian process. Kernels ask whether values are equal, which torch.export cannot follow: the same tensor is."""
    def call(k, x, y, new):
        with mock.patch.object(torch, "equal", lambda a, b: a is b):
            known = k(x, x).to_dense() + 0.5 * torch.eye(len(x))
            cross, fresh = k(new, x).to_dense(), k(new, new).to_dense()
        factor = torch.linalg.cholesky(known)
        half = torch.linalg.solve_triangular(factor, cross.mT, upper=False)
        return cross @ torch.cholesky_solve(y, factor), fresh - half.mT @ half, torch.logdet(known)
    return (lambda: Call(make(), call), lambda: [(torch.rand(8, 2), torch.randn(8, 1), torch.rand(5, 2))], None)


def kernel(name, *args, **options):
    return at(f"gpytorch.kernels.{name}")(*args, **options)


def flow(name, inverse=True, **options):
    """A flow of zuko: densities and what noise becomes."""
    def call(m, x, c):
        made = m(c)
        return (made.log_prob(x), made.transform.inv(x)) if inverse else made.log_prob(x)
    return model(f"zuko.flows.{name}", (3, 2), call, lambda: [(torch.randn(n, 3) * 0.5, torch.randn(n, 2)) for n in (4, 2, 7)], [{0: BATCH}] * 2,
                 hidden_features=(16,), **options)


def there_and_back(name, *args):
    """A transformation of nflows."""
    def call(m, x):
        z, d = m(x)
        return z, d, m.inverse(z)
    return model(f"nflows.transforms.{name}", args, call, images((5, 4)))


# Values and parameters of distributions.
DRAWN = {
    "positive": lambda: torch.rand(5) + 0.2, "unit": lambda: torch.rand(5) * 0.9 + 0.05,
    "count": lambda: torch.randint(0, 4, (5,)).float(), "simplex": lambda: torch.softmax(torch.randn(5, 3), -1), "kind": lambda: torch.randint(0, 3, (5,)),
    "r": lambda: torch.randn(5), "p": lambda: torch.rand(5) + 0.5, "q": lambda: torch.rand(5) * 0.8 + 0.1, "n": lambda: torch.full((5,), 6.),
    "s": lambda: torch.rand(5, 3) + 0.5, "v": lambda: torch.rand(5) + 4,
}


def spread(name, support, parts, entropy=True, cdf=False):
    """A family of torch.distributions; its parameters are inputs."""
    def call(x, *given):
        d = getattr(D, name)(*given, validate_args=False)
        return [d.log_prob(x), d.mean, d.variance] + ([d.entropy()] if entropy else []) + ([d.cdf(x)] if cdf else [])
    return plain(call, lambda: [tuple(DRAWN[k]() for k in (support, *parts))])


def wishart(x, n, t):
    d = D.Wishart(n, scale_tril=t, validate_args=False)
    return d.log_prob(x), d.entropy(), d.variance


def mixture(x, w, m, s):
    d = D.MixtureSameFamily(D.Categorical(logits=w), D.Normal(m, s))
    return d.log_prob(x), d.mean, d.variance, d.cdf(x)


def transforms(x):
    kinds = [D.StickBreakingTransform(), D.SigmoidTransform(), D.TanhTransform(), D.SoftplusTransform(),
             D.ComposeTransform([D.ExpTransform(), D.AffineTransform(1., 2.)])]
    made, corr = [(t, t(x)) for t in kinds], D.CorrCholeskyTransform()
    return [(y, t.inv(y), t.log_abs_det_jacobian(x, y)) for t, y in made] + [corr(x), corr.inv(corr(x))]


def divergence(a, b):
    return plain(lambda p, q, r, s: D.kl_divergence(getattr(D, a)(p, q), getattr(D, b)(r, s)), lambda: [tuple(torch.rand(5) + 0.5 for _ in range(4))])


TRIANGLE = lambda: torch.linalg.cholesky(torch.eye(3) * 0.7 + 0.3)  # noqa: E731


def angles(quaternions):
    """e3nn asserts values, which torch.export cannot follow."""
    with mock.patch.object(torch, "allclose", lambda *a, **o: True):
        return at("e3nn.o3.matrix_to_angles")(at("e3nn.o3.quaternion_to_matrix")(F.normalize(quaternions, dim=1)))


FNO = dict(in_channels=2, out_channels=1, hidden_channels=8)
TFNO = FNO | dict(n_modes=(6, 6), n_layers=2)
TENSOR = ("4x0e+3x1o+2x2e", "2x0e+1x1o", "4x0e+3x1o+2x1e+1x2e")

SCIENCE = {
    **{f"ode_{m}": ode(m) for m in ("euler", "midpoint", "rk4", "explicit_adams", "heun3")},
    "fno3d": model("neuralop.models.FNO", sets=images((1, 2, 8, 8, 8)), n_modes=(4, 4, 4), n_layers=1, domain_padding=0.2, **FNO),
    "fno_complex": model("neuralop.models.FNO", sets=lambda: [(torch.randn(1, 2, 12, 12, dtype=torch.complex64),)], n_modes=(4, 4), n_layers=1,
                         complex_data=True, positional_embedding=None, **FNO),
    "tfno": model("neuralop.models.TFNO", sets=images((1, 2, 16, 16)), factorization="tucker", rank=0.4, **TFNO),
    "tfno_cp": model("neuralop.models.TFNO", sets=images((1, 2, 16, 16)), factorization="cp", rank=0.3, **TFNO),
    "sht": model("torch_harmonics.RealSHT", (16, 32), sets=images((2, 16, 32), (3, 16, 32)), dynamic=[{0: BATCH}]),
    "sht_vector": model("torch_harmonics.RealVectorSHT", (16, 32), sets=images((2, 2, 16, 32))),
    "resample_s2": model("torch_harmonics.ResampleS2", (12, 24, 16, 32), sets=images((1, 3, 12, 24))),
    "attention_s2": model("torch_harmonics.AttentionS2", (8, 2, (8, 16), (8, 16)), sets=images((1, 8, 8, 16))),
    "e3_harmonics": plain(lambda x: at("e3nn.o3.spherical_harmonics")([0, 1, 2, 3, 4], x, True), images((4, 3), (2, 3), (9, 3)), [{0: BATCH}]),
    "e3_tensor": model("e3nn.o3.FullyConnectedTensorProduct", TENSOR, sets=floats((5, 23), (5, 5))),
    "e3_s2": model("e3nn.nn.S2Activation", lambda: (at("e3nn.io.SphericalTensor")(2, 1, 1), torch.tanh, (8, 9)), sets=images((5, 9))),
    "e3_wigner": traced(plain(lambda a, b, c: [at("e3nn.o3.wigner_D")(n, a, b, c) for n in (1, 2, 3)], floats((4,), (4,), (4,)))),
    "e3_angles": plain(angles, images((5, 4))),
    "egnn": model("egnn_pytorch.EGNN", sets=floats((1, 7, 16), (1, 7, 3)), dim=16, num_nearest_neighbors=3, fourier_features=2, norm_coors=True),
    **{f"gp_{k}": posterior(lambda k=k: kernel(k, ard_num_dims=2)) for k in ("MaternKernel", "RQKernel", "PeriodicKernel", "PiecewisePolynomialKernel")},
    "gp_LinearKernel": posterior(lambda: kernel("LinearKernel")),
    "gp_mixture": posterior(lambda: kernel("SpectralMixtureKernel", num_mixtures=2, ard_num_dims=2)),
    "gp_polynomial": posterior(lambda: kernel("ScaleKernel", kernel("PolynomialKernel", 2) + kernel("RBFKernel") * kernel("CosineKernel"))),
    "gp_arc": posterior(lambda: kernel("ArcKernel", kernel("MaternKernel", nu=2.5), ard_num_dims=2)),
    "smooth_maxima": traced(plain(lambda x: [at(f"botorch.utils.safe_math.{n}")(x, dim=1) for n in ("fatmax", "logmeanexp", "smooth_amax", "logsumexp")],
                                  images((4, 7)))),
    "flow_nsf": flow("NSF", transforms=2),
    "flow_maf": flow("MAF", transforms=2),
    "flow_squares": flow("SOSPF", transforms=1, inverse=False),
    "flow_unaf": flow("UNAF", transforms=1, inverse=False),
    "flow_gaussians": flow("GF", transforms=2, inverse=False),
    "flow_circular": flow("NCSF", transforms=2),
    "nflows_maf": there_and_back("MaskedAffineAutoregressiveTransform", 4, 16),
    "nflows_qr": there_and_back("QRLinear", 4, 3),
    "nflows_svd": there_and_back("SVDLinear", 4, 2),
    **{f"dist_{n.lower()}": spread(n, "r", "rp", cdf=True) for n in ("Normal", "Laplace", "Cauchy", "Gumbel")},
    "dist_student": spread("StudentT", "r", "vrp"),
    **{f"dist_{n.lower()}": spread(n, "positive", "pp", cdf=True) for n in ("Gamma", "Weibull")},
    "dist_beta": spread("Beta", "unit", "pp"),
    "dist_dirichlet": spread("Dirichlet", "simplex", "s"),
    "dist_mises": spread("VonMises", "r", "rp", entropy=False),
    "dist_negative": spread("NegativeBinomial", "count", "nq", entropy=False),
    "dist_continuous_bernoulli": traced(spread("ContinuousBernoulli", "unit", "q", cdf=True)),
    "dist_categorical": spread("Categorical", "kind", "s"),
    "dist_wishart": traced(plain(wishart, lambda: [(torch.eye(3).expand(2, 3, 3) * 2 + 0.3, torch.tensor([5., 6]), TRIANGLE().expand(2, 3, 3).contiguous())])),
    "dist_lkj": plain(lambda x, c: D.LKJCholesky(3, c, validate_args=False).log_prob(x), lambda: [(TRIANGLE(), torch.tensor(1.5))]),
    "dist_mixture": plain(mixture, lambda: [(torch.randn(5), torch.randn(5, 3), torch.randn(5, 3), torch.rand(5, 3) + 0.3)]),
    "transforms": plain(transforms, images((4, 6))),
    **{f"kl_{a}_{b}": divergence(a, b) for a, b in (("Gamma", "Gamma"), ("Beta", "Beta"), ("Laplace", "Normal"), ("Gumbel", "Gumbel"), ("Beta", "Gamma"))},
}


def clicks(name, *extra, **options):
    """A model of deepctr-torch over three categories and two numbers."""
    def build():
        import sys
        from types import SimpleNamespace
        # The library's own looks for a newer version on the network.
        sys.modules.setdefault("deepctr_torch.utils", SimpleNamespace(check_version=lambda version: None))
        columns = [at("deepctr_torch.inputs.SparseFeat")(f"c{i}", 30, embedding_dim=8) for i in range(3)]
        columns += [at("deepctr_torch.inputs.DenseFeat")(f"d{i}", 1) for i in range(2)]
        made = at(f"deepctr_torch.models.{name}")(columns, columns, *extra, **options)
        return Call(unlike(made.eval()), lambda m, c, d: m(torch.cat([c, d], 1)))
    return (build, lambda: [(torch.randint(1, 30, (n, 3)).float(), torch.randn(n, 2)) for n in (5, 2, 7)], dims([{0: BATCH}] * 2))


def node_trees(x, choice, threshold, scale, response):
    """Oblivious decision trees: soft splits by chosen features, and the responses of the leaves."""
    p = torch.sigmoid((torch.einsum("bf,ftd->btd", x, at("entmax.entmax15")(choice, dim=0)) - threshold) * scale.exp())
    leaves = torch.stack([torch.stack([(((torch.arange(8) >> i) & 1) == k).float() for k in (1, 0)]) for i in range(3)])
    return torch.einsum("btl,tlc->btc", torch.einsum("btdk,dkl->btdl", torch.stack([p, 1 - p], -1), leaves).prod(2), response)


def manifold(name, x, y, u):
    """What joins two points of a manifold of geoopt."""
    m = at(f"geoopt.{name}")()
    a, b = m.projx(x), m.projx(y)
    v = m.proju(a, u)
    return m.dist(a, b), m.logmap(a, b), m.expmap(a, v), m.transp(a, b, v) if name == "Lorentz" else m.retr(a, v)


def definite(x, y, u):
    m, a, b = at("geoopt.SymmetricPositiveDefinite")(), x @ x.mT + torch.eye(3), y @ y.mT + torch.eye(3)
    return m.dist(a, b), m.logmap(a, b), m.expmap(a, u + u.mT)


def rotations(v, m, a, b):
    import roma
    q, r = roma.rotvec_to_unitquat(v), roma.special_procrustes(m)
    turned = roma.unitquat_slerp(q, q.flip(0), torch.tensor([0.2, 0.7])), roma.quat_product(q, q.flip(0)), roma.rotvec_geodesic_distance(v, v.flip(0))
    return (q, roma.unitquat_to_rotmat(q), roma.rotmat_to_unitquat(r), roma.rotmat_to_rotvec(r), *turned, roma.special_gramschmidt(m),
            roma.rigid_points_registration(a, b), roma.unitquat_to_euler("xyz", q), roma.symmatrixvec_to_unitquat(a.flatten(1)[:, :10]))


def loss(*args, **options):
    return lambda x, y: at("geomloss.SamplesLoss")(*args, backend="tensorized", diameter=6.0, **options)(x, y)


# Predictions and targets of metrics.
PAIRS = {
    "classes": lambda: (torch.softmax(torch.randn(20, 4), 1), torch.randint(0, 4, (20,))), "bits": lambda: (torch.rand(20), torch.randint(0, 2, (20,))),
    "labels": lambda: (torch.rand(20, 4), torch.randint(0, 2, (20, 4))), "reals": lambda: (torch.randn(20), torch.randn(20)),
    "positives": lambda: (torch.rand(20) + 0.1, torch.rand(20) + 0.1), "rows": lambda: (torch.randn(6, 5), torch.randn(6, 5)),
    "images": lambda: (torch.rand(2, 3, 48, 48), torch.rand(2, 3, 48, 48)), "voices": lambda: (torch.randn(2, 2, 400), torch.randn(2, 2, 400)),
    "sounds": lambda: (torch.randn(2, 400), torch.randn(2, 400)),
}


def metric(name, kind, **options):
    return plain(lambda a, b: at(f"torchmetrics.functional.{name}")(a, b, **options), lambda: [PAIRS[kind]()])


def metrics(prefix, names, kind, trace=False, **options):
    rows = {f"{prefix}_{n.split('.')[-1]}": metric(n, kind, **options) for n in names.split()}
    return {name: traced(row) for name, row in rows.items()} if trace else rows


MULTICLASS = dict(task="multiclass", num_classes=4, validate_args=False)
BINARY = dict(task="binary", validate_args=False)
BINS = lambda: ([torch.linspace(-2, 2, 5 + i) for i in range(4)], 8)  # noqa: E731

TABLES = {
    **{f"ctr_{n.lower()}": clicks(n, dnn_hidden_units=(16, 8)) for n in ("DeepFM", "xDeepFM", "DCNMix", "NFM", "FiBiNET", "AutoInt", "IFM", "ONN")},
    **{f"ctr_{n.lower()}": clicks(n) for n in ("MLR", "AFN")},
    "piecewise_embeddings": model("rtdl_num_embeddings.PiecewiseLinearEmbeddings", BINS, sets=images((5, 4), (2, 4)), dynamic=[{0: BATCH}], activation=True,
                                  version="B"),
    "periodic_embeddings": model("rtdl_num_embeddings.PeriodicEmbeddings", (4, 8), sets=images((5, 4)), lite=True),
    "tabnet_entmax": model("pytorch_tabnet.tab_network.TabNetNoEmbeddings", (6, 3), sets=images((5, 6)), n_steps=2, mask_type="entmax",
                           group_attention_matrix=torch.eye(6)),
    "entmax15": traced(plain(lambda x: [at(f"entmax.{n}")(x, dim=d, k=k) for n, d, k in (("entmax15", -1, None), ("sparsemax", 0, None), ("entmax15", -1, 7),
                                                                                         ("sparsemax", -1, 7))], images((5, 9)))),
    "node_trees": plain(node_trees, floats((5, 6), (6, 4, 3), (4, 3), (4, 3), (4, 8, 2))),
    "kan": model("kan.KAN", sets=images((6, 2)), width=[2, 4, 1], grid=4, k=3, auto_save=False, save_act=False, symbolic_enabled=True),
    "tucker_layer": model("tltorch.FactorizedLinear", ((4, 4), (3, 4)), sets=images((5, 16)), rank=0.5, factorization="tucker"),
    **{n.lower(): plain(lambda *xs, n=n: manifold(n, *xs), floats((5, 4), (5, 4), (5, 4))) for n in ("Lorentz", "Sphere")},
    "definite": plain(definite, floats((2, 3, 3), (2, 3, 3), (2, 3, 3))),
    "rotations": plain(rotations, floats((4, 3), (4, 3, 3), (4, 6, 3), (4, 6, 3))),
    **{f"ot_{n}": plain(loss(n, blur=0.3), floats((6, 2), (7, 2))) for n in ("sinkhorn", "gaussian", "energy", "laplacian")},
    "ot_unbalanced": plain(loss("sinkhorn", p=1, blur=0.3, reach=0.7, debias=False, potentials=True), floats((2, 6, 2), (2, 7, 2))),
    **metrics("metric", "accuracy f1_score stat_scores confusion_matrix cohen_kappa jaccard_index exact_match", "classes", **MULTICLASS),
    **metrics("metric", "matthews_corrcoef calibration_error hinge_loss auroc average_precision", "classes", True, **MULTICLASS),
    **metrics("curve", "auroc average_precision roc precision_recall_curve", "bits", True, thresholds=7, **BINARY),
    **metrics("exact", "auroc average_precision roc", "bits", True, **BINARY),
    **metrics("labels", "classification.multilabel_ranking_average_precision classification.multilabel_coverage_error "
              "classification.multilabel_ranking_loss", "labels", True, num_labels=4, validate_args=False),
    **metrics("regression", "spearman_corrcoef log_cosh_error symmetric_mean_absolute_percentage_error relative_squared_error", "reals"),
    **metrics("regression", "explained_variance kendall_rank_corrcoef r2_score", "reals", True),
    **metrics("regression", "mean_squared_log_error tweedie_deviance_score", "positives"),
    **metrics("pairwise", "pairwise_cosine_similarity pairwise_euclidean_distance pairwise_manhattan_distance pairwise_minkowski_distance", "rows"),
    **metrics("image", "universal_image_quality_index spectral_angle_mapper error_relative_global_dimensionless_synthesis spectral_distortion_index "
              "root_mean_squared_error_using_sliding_window relative_average_spectral_error", "images"),
    "image_msssim": metric("multiscale_structural_similarity_index_measure", "images", betas=(0.3, 0.7), data_range=1.0),
    **metrics("audio", "audio.scale_invariant_signal_distortion_ratio", "sounds"),
    "audio_sdr": metric("audio.signal_distortion_ratio", "sounds", filter_length=32),
    "audio_pit": metric("audio.permutation_invariant_training", "voices", metric_func=lambda p, t: (p * t).sum(-1), eval_func="max"),
}


def derivatives(order):
    """Derivatives of a network by torch.func, as equations in it."""
    def call(net, x):
        from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

        def field(p):
            return net(p).squeeze(-1)
        if order == "burgers":
            u, g, h = field(x), vmap(grad(field))(x), vmap(hessian(field))(x)
            return g[:, 1] + u * g[:, 0] - 0.01 * h[:, 0, 0]
        if order == "jacobian":
            return vmap(jacrev(net))(x), vmap(jacfwd(net))(x)
        if order == "jvp":
            return jvp(field, (x,), (torch.cos(x),)), vjp(field, x)[1](torch.sin(x[:, 0]))[0]
        return vmap(grad(lambda w, p: functional_call(net, w, (p,)).sum()), (None, 0))(dict(net.named_parameters()), x)
    return traced((lambda: Call(nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)), call), floats((6, 2)), None))


def circuit(angles, state):
    """Four qubits: rotations, controlled gates, expectations."""
    s = state.reshape(2, 2, 2, 2) / state.norm()
    for layer in range(2):
        for q in range(4):
            a = angles[layer, q] / 2
            gate = torch.stack([torch.stack([torch.cos(a) + 0j, -1j * torch.sin(a)]), torch.stack([-1j * torch.sin(a), torch.cos(a) + 0j])])
            phase = torch.polar(torch.ones(2), torch.stack([-a, a]))
            s = torch.movedim(torch.einsum("ij,j...->i...", gate * phase, torch.movedim(s, q, 0)), 0, q)
        for q in range(3):
            s = torch.movedim(s, (q, q + 1), (0, 1))
            s = torch.movedim(torch.stack([s[0], s[1].flip(0)]), (0, 1), (q, q + 1))
    rho = torch.einsum("abij,cdij->abcd", s, s.conj()).reshape(4, 4)
    seen = torch.stack([torch.movedim(s.abs() ** 2, q, 0).reshape(2, -1).sum(1) @ torch.tensor([1., -1]) for q in range(4)])
    return torch.view_as_real(s), seen, torch.linalg.eigvalsh(rho), (rho @ rho).diagonal().sum().real


def rays(net, origins, ways):
    """NeRF: encoded points along rays, densities to colours by a cumulated product, and finer samples where there was weight."""
    def render(z):
        p = origins[:, None] + ways[:, None] * z[..., None]
        raw = net(torch.cat([p] + [f(p * 2. ** k) for k in range(4) for f in (torch.sin, torch.cos)], -1))
        gaps = torch.cat([z[:, 1:] - z[:, :-1], torch.full_like(z[:, :1], 1e10)], 1) * ways.norm(dim=-1, keepdim=True)
        alpha = 1 - torch.exp(-F.relu(raw[..., 3]) * gaps)
        weights = alpha * torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], 1), 1)[:, :-1]
        return (weights[..., None] * torch.sigmoid(raw[..., :3])).sum(1), weights, (weights * z).sum(1)
    z = torch.linspace(1, 4, 8).expand(len(origins), -1)
    colour, weights, depth = render(z)
    pdf = (weights[:, 1:-1] + 1e-5) / (weights[:, 1:-1] + 1e-5).sum(-1, keepdim=True)
    cdf = torch.cat([torch.zeros_like(pdf[:, :1]), pdf.cumsum(-1)], -1)
    middle = (z[:, 1:] + z[:, :-1]) / 2
    u = torch.linspace(0.03, 0.97, 6).expand(len(origins), 6).contiguous()
    i = torch.searchsorted(cdf, u, right=True)
    low, high = (i - 1).clamp(min=0), i.clamp(max=cdf.shape[1] - 1)
    gap = cdf.gather(1, high) - cdf.gather(1, low)
    gap = torch.where(gap < 1e-5, torch.ones_like(gap), gap)
    finer = middle.gather(1, low) + (u - cdf.gather(1, low)) / gap * (middle.gather(1, high) - middle.gather(1, low))
    return colour, depth, render(torch.sort(torch.cat([z, finer], 1), 1)[0])


def hash_grid(tables, x):
    """Instant NGP: three levels, corners hashed by products that overflow 32 bits."""
    found, primes = [], torch.tensor([1, 2654435761, 805459861])
    corners = torch.tensor([[(i >> k) & 1 for k in range(3)] for i in range(8)])
    for level, n in enumerate((4, 9, 20)):
        p = x * n
        base = p.floor().long()
        where = (base[:, None] + corners) * primes
        mixed = (where[..., 0] ^ where[..., 1] ^ where[..., 2]) & 0xFFFFFFFF
        narrow = ((base.to(torch.int32) * torch.tensor([1, -1640531535, 805459861], dtype=torch.int32)).sum(1).to(torch.int32) >> 3) % 64
        w = torch.where(corners.bool(), (p - base)[:, None], 1 - (p - base)[:, None]).prod(-1, keepdim=True)
        found += [(tables[level][mixed % 64] * w).sum(1), tables[level][narrow.long()]]
    return torch.cat(found, 1)


OWN = {
    **{f"pinn_{k}": derivatives(k) for k in ("burgers", "jacobian", "jvp", "weights")},
    "circuit": plain(circuit, lambda: [(torch.randn(2, 4), torch.randn(16, dtype=torch.complex64))]),
    "nerf": (lambda: Call(mlp(27, 32, 4), rays), lambda: [(torch.randn(5, 3) * 0.1, F.normalize(torch.randn(5, 3), dim=1))], None),
    "hash_grid": plain(hash_grid, lambda: [(torch.randn(3, 64, 2), torch.rand(n, 3)) for n in (9, 3, 20)], [{}, {0: BATCH}]),
}

MODELS = GRAPHS | SCIENCE | TABLES | OWN
