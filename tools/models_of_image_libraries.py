"""Models and functions of libraries about images, for `check_models.py --from models_of_image_libraries`. Random weights, nothing downloaded.

Needs diffusers, segmentation_models_pytorch, monai, kornia, spandrel, ultralytics, pytorchvideo, open_clip_torch, vit-pytorch, facenet-pytorch, lpips
and ptwt (`pip install --no-deps --target FOLDER ...`, with einops, opencv-python-headless, PyWavelets and what else they import), FOLDER in PYTHONPATH.
A row's library is imported when its model is built.

A row builds a small model of one architecture, or wraps functions of a library (torchvision's too). Its model returns every tensor of the output, so
that rows need no names of fields. More than a third take batches of any size.
MODELS: name → (build, input sets, dynamic shapes), as MODELS of check_models.py has it.
"""
import importlib
from functools import partial

import torch
from torch.export import Dim
from torch.utils import _pytree as pytree

from models_of_timm import Call, awaken

BATCH = Dim("batch", min=1, max=16)


def plain(out):
    """Outputs that are objects of a library's own class, as dictionaries."""
    if isinstance(out, (list, tuple)):
        return [plain(o) for o in out]
    if isinstance(out, dict):
        return {k: plain(v) for k, v in out.items()}
    return vars(out) if hasattr(out, "__dict__") and not isinstance(out, torch.Tensor) else out


def tensors(model, call):
    """CALL(model, inputs) as a model that returns all tensors of its output."""
    return Call(model, lambda m, *xs: tuple(t for t in pytree.tree_leaves(plain(call(m, *xs))) if isinstance(t, torch.Tensor)))


def plainly(model, *inputs):
    return model(*inputs)


def normal(*shape):
    return lambda batch: torch.randn(batch or shape[0], *shape[1:])


def unit(*shape):
    """An input of numbers in 0..1."""
    return lambda batch: torch.rand(batch or shape[0], *shape[1:])


def whole(*shape, high):
    """An input of whole numbers below HIGH."""
    return lambda batch: torch.randint(0, high, (batch or shape[0], *shape[1:]))


def given(values):
    """An input of these values."""
    return lambda batch: torch.tensor(values)


def eye(size, noise=0.1):
    return lambda batch: torch.eye(size).repeat(batch or 1, 1, 1) + noise * torch.rand(batch or 1, size, size)


def row(build, inputs, make=normal, batches=False):
    """INPUTS are shapes of random tensors or makers of tensors. With `batches` the first size of all is dynamic."""
    makers = [make(*i) if isinstance(i, tuple) else i for i in inputs]

    def sets():
        return [tuple(m(b) for m in makers) for b in ((2, 1, 3) if batches else (None,))]
    return build, sets, (tuple({0: BATCH} for _ in makers),) if batches else None


def function(module, call, *inputs, batches=False):
    """A function CALL(library module, tensors)."""
    return row(lambda: tensors(importlib.import_module(module), call), inputs, unit, batches)


def net(path, inputs, call=plainly, batches=False, make=normal, **options):
    """The class or the function at PATH ("package.module:Class"), called with OPTIONS."""
    def build():
        module, name = path.split(":")
        return tensors(awaken(getattr(importlib.import_module(module), name)(**options)).eval(), call)
    return row(build, inputs, make, batches)


kornia = partial(function, "kornia")
RGB, GRAY = (1, 3, 24, 32), (1, 1, 24, 32)
TILT = [[[1.0, 0.1, 2.0], [-0.1, 0.9, 1.0]]]
KORNIA = {
    "bilateral": kornia(lambda k, x: k.filters.bilateral_blur(x, (3, 5), 0.1, (1.5, 1.5)), RGB, batches=True),
    "blur_pool": kornia(lambda k, x: [k.filters.blur_pool2d(x, 3), k.filters.max_blur_pool2d(x, 3), k.filters.edge_aware_blur_pool2d(x, 3)], RGB, batches=True),
    "canny": kornia(lambda k, x: k.filters.canny(x)[0], RGB),
    "fft_conv": kornia(lambda k, x, w: k.filters.filter.fft_conv(x, w), RGB, (1, 5, 5)),
    "guided": kornia(lambda k, x, y: k.filters.guided_blur(x, y, 3, 0.1), RGB, RGB, batches=True),
    "median": kornia(lambda k, x: k.filters.median_blur(x, (3, 5)), RGB, batches=True),
    "motion3d": kornia(lambda k, x, a: k.filters.motion_blur3d(x, 3, a * 90, torch.tensor([0.3])), (1, 1, 6, 7, 8), (1, 3)),
    "otsu": kornia(lambda k, x: k.filters.otsu_threshold(x), RGB),
    "sobel": kornia(lambda k, x: [k.filters.sobel(x), k.filters.spatial_gradient(x, "sobel", 2)], RGB, batches=True),
    "discrete_gaussian": kornia(lambda k, x: [k.filters.kernels.gaussian_discrete(5, x), k.filters.kernels.gaussian_discrete_erf(5, x)], (2, 1)),
    "affine": kornia(lambda k, x, m: k.geometry.warp_affine(x, m, (20, 28), padding_mode="reflection"), RGB, given(TILT)),
    "affine_bicubic": kornia(lambda k, x, m: k.geometry.warp_affine(x, m, (20, 28), mode="bicubic", align_corners=False, padding_mode="border"), RGB,
                             given(TILT)),
    "perspective": kornia(lambda k, x, m: k.geometry.warp_perspective(x, m, (20, 28)), RGB, eye(3, 0.01), batches=True),
    "affine3d": kornia(lambda k, x, m: k.geometry.warp_affine3d(x, m[:, :3], (5, 6, 7)), (1, 2, 6, 7, 8), eye(4, 0.02)),
    "elastic": kornia(lambda k, x, n: k.geometry.transform.elastic_transform2d(x, n, (7, 7), (2.0, 2.0), (1.0, 1.0)), RGB, (1, 2, 24, 32), batches=True),
    "laplacian_pyramid": kornia(lambda k, x: k.geometry.transform.build_laplacian_pyramid(x, 3), (1, 3, 24, 40)),
    "spline": kornia(lambda k, x, p, q: k.geometry.transform.warp_image_tps(x, q, *k.geometry.transform.get_tps_transform(p, q)), RGB,
                     given([[[-.9, -.8], [.9, -.9], [-.8, .9], [.85, .8], [.1, .0]]]), given([[[-1., -.9], [.8, -.9], [-.8, 1.], [.9, .9], [.0, .15]]])),
    "remap": kornia(lambda k, x, u, v: k.geometry.remap(x, u * 30, v * 20, align_corners=True), RGB, (1, 10, 12), (1, 10, 12), batches=True),
    "homography_irls": kornia(lambda k, p, w: k.geometry.find_homography_dlt_iterated(p, p * 1.5 + 0.1 * p.flip(2), w), (1, 9, 2), (1, 9)),
    "fundamental": kornia(lambda k, p, q: k.geometry.epipolar.sampson_epipolar_distance(p, q, k.geometry.epipolar.find_fundamental(p, q, torch.ones(1, 12))),
                          (1, 12, 2), (1, 12, 2)),
    "essential": kornia(lambda k, e: k.geometry.epipolar.decompose_essential_matrix(e)[2].abs(), (2, 3, 3)),
    "rotations": kornia(lambda k, v: [k.geometry.axis_angle_to_rotation_matrix(v),
                                      k.geometry.rotation_matrix_to_quaternion(k.geometry.axis_angle_to_rotation_matrix(v)),
                                      k.geometry.quaternion_to_axis_angle(k.geometry.axis_angle_to_quaternion(v))], (4, 3), batches=True),
    "lie": kornia(lambda k, v: [k.geometry.liegroup.So3.exp(v[:, :3]).matrix(), k.geometry.liegroup.Se3.exp(v).matrix(), k.geometry.liegroup.Se3.exp(v).log()],
                  (4, 6)),
    "undistort": kornia(lambda k, p, d: k.geometry.undistort_points(p, torch.eye(3)[None], d * 0.1), (1, 7, 2), (1, 14)),
    "depth": kornia(lambda k, d, m: [k.geometry.depth.depth_to_3d(d + 1, m), k.geometry.depth.depth_to_normals(d + 1, m)], GRAY, eye(3), batches=True),
    "conv_soft_argmax": kornia(lambda k, x: k.geometry.conv_soft_argmax2d(x, (3, 3), (1, 1), (1, 1), output_value=True), GRAY, batches=True),
    "quad_interp3d": kornia(lambda k, x: k.geometry.conv_quad_interp3d(x), (1, 1, 5, 12, 14)),
    "spatial_argmax": kornia(lambda k, x: [k.geometry.spatial_soft_argmax2d(x), k.geometry.spatial_expectation2d(x.softmax(-1))], RGB, batches=True),
    "lab": kornia(lambda k, x: [k.color.rgb_to_lab(x), k.color.lab_to_rgb(k.color.rgb_to_lab(x))], RGB, batches=True),
    "yuv420": kornia(lambda k, x: k.color.yuv420_to_rgb(*k.color.rgb_to_yuv420(x)), RGB),
    "raw": kornia(lambda k, x: k.color.raw_to_rgb(x, k.color.CFA.BG), GRAY, batches=True),
    "colormap": kornia(lambda k, x: k.color.apply_colormap((x * 255).to(torch.int64), k.color.ColorMap("jet")), GRAY),
    "equalize": kornia(lambda k, x: k.enhance.equalize(x), RGB),
    "clahe": kornia(lambda k, x: k.enhance.equalize_clahe(x, 20.0, (4, 4)), (1, 3, 32, 32)),
    "adjust": kornia(lambda k, x, f: [k.enhance.adjust_hue(x, f), k.enhance.adjust_saturation(x, f), k.enhance.adjust_gamma(x, f, f),
                                      k.enhance.adjust_sigmoid(x)], RGB, (1,), batches=True),
    "posterize": kornia(lambda k, x: [k.enhance.posterize(x, torch.tensor([3])), k.enhance.solarize(x, torch.tensor([0.4])),
                                      k.enhance.sharpness(x, torch.tensor([0.6]))], RGB),
    "histogram": kornia(lambda k, x, y: [k.enhance.histogram(x, torch.linspace(0, 1, 9), torch.tensor(0.1)),
                                         k.enhance.histogram2d(x, y, torch.linspace(0, 1, 9), torch.tensor(0.1))], (2, 50), (2, 50), batches=True),
    "integral": kornia(lambda k, x: [k.enhance.integral_image(x), k.enhance.integral_tensor(x, (0, 1))], RGB),
    "jpeg": kornia(lambda k, x, q: k.enhance.jpeg_codec_differentiable(x, q * 50 + 20), (2, 3, 32, 48), (2,)),
    "zca": kornia(lambda k, x: k.enhance.zca_whiten(x), (12, 5)),
    "morphology": kornia(lambda k, x: [f(x, torch.ones(3, 3)) for f in
                                       (k.morphology.dilation, k.morphology.opening, k.morphology.gradient, k.morphology.top_hat)], RGB, batches=True),
    "components": kornia(lambda k, x: k.contrib.connected_components((x > 0.6).float(), 20), GRAY),
    "distance": kornia(lambda k, x: k.contrib.distance_transform((x > 0.9).float(), 5), GRAY, batches=True),
    "tensor_patches": kornia(lambda k, x: k.contrib.combine_tensor_patches(k.contrib.extract_tensor_patches(x, (8, 8), (8, 8)), (24, 32), (8, 8), (8, 8)), RGB),
    "loss_dice": kornia(lambda k, x, t: [k.losses.dice_loss(x, t), k.losses.tversky_loss(x, t, 0.4, 0.6), k.losses.focal_loss(x, t, 0.5, 2.0, "none"),
                                         k.losses.lovasz_softmax_loss(x, t)], (2, 4, 6, 7), whole(2, 6, 7, high=4), batches=True),
    "loss_hausdorff": kornia(lambda k, x, t: k.losses.HausdorffERLoss(k=3)(x, t), (2, 3, 8, 9), whole(2, 1, 8, 9, high=3)),
    "loss_ssim": kornia(lambda k, x, y: [k.losses.ssim_loss(x, y, 5), k.losses.MS_SSIMLoss(reduction="none")(x, y), k.losses.psnr_loss(x, y, 1.0)], RGB, RGB,
                        batches=True),
    "loss_others": kornia(lambda k, x, y: [k.losses.js_div_loss_2d(x, y), k.losses.total_variation(x), k.losses.inverse_depth_smoothness_loss(x, y),
                                           k.losses.welsch_loss(x, y), k.losses.cauchy_loss(x, y)], RGB, RGB, batches=True),
    "metrics": kornia(lambda k, a, b: [k.metrics.confusion_matrix(a, b, 5), k.metrics.mean_iou(a, b, 5)], whole(2, 30, high=5), whole(2, 30, high=5)),
    "responses": kornia(lambda k, x: [k.feature.harris_response(x), k.feature.gftt_response(x), k.feature.hessian_response(x),
                                      k.feature.dog_response_single(x, 1.0, 1.6)], GRAY, batches=True),
    "lafs": kornia(lambda k, x, c: k.feature.extract_patches_from_pyramid(
        x, k.feature.laf_from_center_scale_ori(c * 20, c[..., :1, None] * 4 + 2, c[..., 1:] * 90), 8), (1, 1, 40, 40), (1, 5, 2)),
    "nms2d": kornia(lambda k, x: [k.geometry.subpix.nms2d(x, (3, 3)), k.geometry.subpix.nms3d(x[:, :, None].repeat(1, 1, 3, 1, 1), (3, 3, 3))], GRAY,
                    batches=True),
}


def lucid(module, name="ViT", inputs=((1, 3, 64, 64),), *call, **options):
    """A vision transformer of vit-pytorch."""
    usual = dict(image_size=64, patch_size=16, num_classes=10, dim=32, depth=2, heads=2, dim_head=16, mlp_dim=64)
    return net(f"vit_pytorch.{module}:{name}", inputs, *call, **{k: v for k, v in (usual | options).items() if v is not None})


IN_STAGES = dict(image_size=None, patch_size=None, heads=None, dim_head=None, mlp_dim=None)
LUCID = {
    "cait": lucid("cait", "CaiT", cls_depth=1, batches=True),
    "cross": lucid("cross_vit", "CrossViT", patch_size=None, dim=None, heads=None, dim_head=None, mlp_dim=None, sm_dim=24, lg_dim=32, depth=1, sm_patch_size=8,
                   sm_enc_mlp_dim=48, lg_patch_size=16, lg_enc_depth=1, lg_enc_mlp_dim=64, cross_attn_depth=1, batches=True),
    "crossformer": lucid("crossformer", "CrossFormer", ((1, 3, 224, 224),), **IN_STAGES | dict(dim=(32, 32, 64, 64), depth=(1, 1, 1, 1))),
    "cvt": lucid("cvt", "CvT", **IN_STAGES | dict(dim=None, depth=None, s1_emb_dim=16, s2_emb_dim=24, s2_depth=1, s3_emb_dim=32, s3_depth=1, s3_heads=2),
                 batches=True),
    "deepvit": lucid("deepvit", "DeepViT"),
    "jet": lucid("jet_vit", "JetViT", window_size=3),
    "jumbo": lucid("jumbo_vit", "JumboViT", batches=True),
    "levit": lucid("levit", "LeViT", patch_size=None, dim_head=None, mlp_dim=None, dim=(16, 32, 32), depth=1, heads=(1, 2, 2), mlp_mult=2, batches=True),
    "look": lucid("look_vit", "LookViT", image_size=48, mlp_dim=None, inputs=((1, 3, 48, 48),)),
    "max": lucid("max_vit", "MaxViT", **IN_STAGES | dict(dim=16, depth=(1, 1), dim_head=16, window_size=4, dim_conv_stem=16), batches=True),
    "navit": lucid("na_vit", "NaViT", ((3, 32, 48), (3, 48, 16), (3, 16, 16)), lambda m, *xs: m([list(xs[:2]), list(xs[2:])])),
    "nest": lucid("nest", "NesT", depth=None, mlp_dim=None, patch_size=4, num_hierarchies=3, block_repeats=(1, 1, 1), batches=True),
    "normalized": lucid("normalized_vit", "nViT", batches=True),
    "pit": lucid("pit", "PiT", depth=(1, 1, 1), batches=True),
    "region": lucid("regionvit", "RegionViT", ((1, 3, 224, 224),), **IN_STAGES | dict(dim=(16, 32, 32, 64), depth=(1, 1, 1, 1), use_peg=True)),
    "rvt": lucid("rvt", "RvT"),
    "scalable": lucid("scalable_vit", "ScalableViT", ((1, 3, 128, 128),),
                      **IN_STAGES | dict(dim=16, depth=(1, 1), heads=(1, 2), reduction_factor=(4, 2), window_size=(16, None)), batches=True),
    "sep": lucid("sep_vit", "SepViT", ((1, 3, 112, 112),), **IN_STAGES | dict(dim=16, depth=(1, 1), heads=(1, 2), dim_head=16)),
    "uvit": lucid("simple_uvit", "SimpleUViT", depth=4),
    "orthogonal": lucid("simple_vit_orthog_residual_update", "SimpleViT", batches=True),
    "fft": lucid("simple_vit_with_fft", "SimpleViT", freq_patch_size=8, batches=True),
    "hyper": lucid("simple_vit_with_hyper_connections", "SimpleViT", num_residual_streams=3),
    "sparse": lucid("simple_vit_with_sparse_gating", "SimpleViTWithSparseGating"),
    "t2t": lucid("t2t", "T2TViT", patch_size=None, dim_head=None, batches=True),
    "vit5": lucid("vit_5", batches=True),
    "merger": lucid("vit_with_patch_merger", depth=4),
    "vivit_moss": lucid("vivit_with_moss", "ViViT", ((1, 3, 4, 64, 64),), patch_size=None, image_patch_size=16, frames=4, frame_patch_size=2, depth=None,
                        spatial_depth=1, temporal_depth=1, use_flash_attn=False),
    "wwt": lucid("wwt", "WWT", num_slots=5),
    "xcit": lucid("xcit", "XCiT", cls_depth=1, batches=True),
}


def restorer(architecture, size=32, name=None, **options):
    """An architecture of spandrel that restores or enlarges images."""
    return net(f"spandrel.architectures.{architecture}:{name or architecture}", ((1, 3, size, size),), make=unit, **options)


SWIN = dict(img_size=32, embed_dim=24, depths=(2, 2), num_heads=(2, 2), upscale=2)
RESTORERS = {
    "atd": restorer("ATD", **SWIN, window_size=8, category_size=64, num_tokens=16, upsampler="pixelshuffledirect"),
    "craft": restorer("CRAFT", embed_dim=24, depths=[1, 1], num_heads=[2, 2], upscale=2),
    "dat": restorer("DAT", embed_dim=24, depth=[2], num_heads=[2], split_size=[8, 16]),
    "ditn": restorer("DITN", dim=16, ITL_blocks=1, SAL_blocks=1, upscale=2, batches=True),
    "fdat": restorer("FDAT", scale=2, embed_dim=16, num_groups=1, depth_per_group=2, num_heads=2, mid_dim=16, batches=True),
    "fftformer": restorer("FFTformer", dim=8, num_blocks=[1, 1, 1], num_refinement_blocks=1),
    "grl": restorer("GRL", img_size=32, embed_dim=24, upscale=2, depths=[2], num_heads_window=[2], num_heads_stripe=[2], upsampler="pixelshuffle",
                    anchor_window_down_factor=2, local_connection=True),
    "hat": restorer("HAT", **SWIN | dict(window_size=8, squeeze_factor=6)),
    "kbnet_s": restorer("KBNet", name="KBNet_s", width=16, middle_blk_num=1, enc_blk_nums=[1, 1], dec_blk_nums=[1, 1], batches=True),
    "moesr": restorer("MoESR", scale=2, dim=16, n_blocks=1, n_block=1, batches=True),
    "mosr": restorer("MoSR", upscale=2, n_block=2, dim=16, upsampler="dys"),
    "nafnet": restorer("NAFNet", width=8, enc_blk_nums=[1, 1], dec_blk_nums=[1, 1], batches=True),
    "omnisr": restorer("OmniSR", num_feat=16, up_scale=2),
    "plksr": restorer("PLKSR", dim=16, n_blocks=2, upscaling_factor=2, ccm_type="DCCM", lk_type="SparsePLK", use_max_kernel=True),
    "realplksr": restorer("PLKSR", name="RealPLKSR", dim=16, n_blocks=2, upscaling_factor=2, dysample=True, batches=True),
    "rgt": restorer("RGT", embed_dim=24, depth=[2], num_heads=[2]),
    "retinexformer": restorer("RetinexFormer", n_feat=8, stage=1),
    "safmn": restorer("SAFMN", dim=16, n_blocks=2, upscaling_factor=2, batches=True),
    "swin2sr": restorer("Swin2SR", **SWIN | dict(window_size=8, upsampler="nearest+conv", upscale=4)),
    "uformer": restorer("Uformer", 128, img_size=128, embed_dim=8, depths=[1] * 9),
    "gfpgan": restorer("GFPGAN", 64, out_size=64, num_style_feat=32, channel_multiplier=1, narrow=0.125, num_mlp=2, different_w=True, input_is_latent=True),
}


def diffuser(name, inputs, names, batches=False, fixed=None, **options):
    """A model of diffusers whose arguments of these NAMES are the inputs."""
    return net(f"diffusers:{name}", inputs, lambda m, *xs: m(**dict(zip(names, xs)), **(fixed or {}), return_dict=False), batches, **options)


def time(batch):
    return torch.tensor([17, 400, 3])[:batch or 1]


LATENT, WORDS, VIDEO, PIXELS = (1, 4, 16, 16), (1, 7, 32), (1, 3, 5, 32, 32), (1, 3, 32, 32)
UNET = ("sample", "timestep", "encoder_hidden_states")
TEXT = ("hidden_states", "encoder_hidden_states", "timestep")
TIMED = ("hidden_states", "timestep", "encoder_hidden_states")
CROSS = dict(block_out_channels=(16, 32), norm_num_groups=8, cross_attention_dim=32, attention_head_dim=8)
CODER = dict(block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=8)
BLOCKS = lambda down, up: dict(down_block_types=down, up_block_types=up)  # noqa: E731
IDS = lambda count: lambda batch: torch.randint(0, 9, (count, 3)).float()  # noqa: E731
HEADS = dict(num_attention_heads=2, attention_head_dim=16, num_layers=2)
PLAIN = HEADS | dict(in_channels=4, out_channels=4)
DIFFUSERS = {
    "unet": diffuser("UNet2DConditionModel", (LATENT, time, WORDS), UNET, True, **CROSS,
                     **BLOCKS(("CrossAttnDownBlock2D", "DownBlock2D"), ("UpBlock2D", "CrossAttnUpBlock2D")), layers_per_block=1),
    "unet_simple": diffuser("UNet2DConditionModel", (LATENT, time, WORDS), UNET, **CROSS,
                            **BLOCKS(("SimpleCrossAttnDownBlock2D", "ResnetDownsampleBlock2D"), ("ResnetUpsampleBlock2D", "SimpleCrossAttnUpBlock2D")),
                            mid_block_type="UNetMidBlock2DSimpleCrossAttn", resnet_time_scale_shift="scale_shift", layers_per_block=1),
    "unet_1d_values": diffuser("UNet1DModel", ((1, 14, 32), time), UNET[:2], in_channels=14, out_channels=14, block_out_channels=(16, 32, 64, 128),
                               layers_per_block=1, down_block_types=("DownResnetBlock1D",) * 4, up_block_types=(), mid_block_type="ValueFunctionMidBlock1D",
                               out_block_type="ValueFunction", use_timestep_embedding=True, downsample_each_block=True, time_embedding_type="positional",
                               act_fn="mish"),
    "unet_motion": diffuser("UNetMotionModel", ((1, 4, 3, 16, 16), time, (3, 7, 32)), UNET, block_out_channels=(16, 32), norm_num_groups=8,
                            cross_attention_dim=32, num_attention_heads=2, motion_num_attention_heads=2, layers_per_block=1,
                            **BLOCKS(("CrossAttnDownBlockMotion", "DownBlockMotion"), ("UpBlockMotion", "CrossAttnUpBlockMotion"))),
    "uvit": net("diffusers:UVit2DModel", (whole(1, 8, 8, high=60), WORDS, (1, 32), unit(1, 5)), hidden_size=32, cond_embed_dim=32, micro_cond_encode_dim=16,
                micro_cond_embed_dim=80, encoder_hidden_size=32, vocab_size=64, codebook_size=60, in_channels=32, block_out_channels=32, num_res_blocks=1,
                block_num_heads=2, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64),
    "vae": diffuser("AutoencoderKL", (PIXELS,), ("sample",), True, **CODER, **BLOCKS(("DownEncoderBlock2D",) * 2, ("UpDecoderBlock2D",) * 2)),
    "vae_dc": diffuser("AutoencoderDC", (PIXELS,), ("sample",), latent_channels=8, attention_head_dim=8, encoder_block_types=("ResBlock", "EfficientViTBlock"),
                       decoder_block_types=("ResBlock", "EfficientViTBlock"), encoder_block_out_channels=(16, 32), decoder_block_out_channels=(16, 32),
                       encoder_layers_per_block=(1, 1), decoder_layers_per_block=(1, 1), encoder_qkv_multiscales=((), (5,)),
                       decoder_qkv_multiscales=((), (5,))),
    "vae_hunyuan_video": diffuser("AutoencoderKLHunyuanVideo", (VIDEO,), ("sample",), **CODER | dict(block_out_channels=(8, 8, 8, 8)), latent_channels=4),
    "vae_ltx": diffuser("AutoencoderKLLTXVideo", ((1, 3, 9, 32, 32),), ("sample",), latent_channels=8, block_out_channels=(8, 8, 8, 8),
                        decoder_block_out_channels=(8, 8, 8, 8), layers_per_block=(1,) * 5, decoder_layers_per_block=(1,) * 5),
    "vae_wan_residual": diffuser("AutoencoderKLWan", (VIDEO,), ("sample",), base_dim=8, z_dim=4, num_res_blocks=1, dim_mult=[1, 1, 2, 2], is_residual=True,
                                 in_channels=12, out_channels=12, patch_size=2),
    "vae_oobleck": diffuser("AutoencoderOobleck", ((1, 2, 256),), ("sample",), True, encoder_hidden_size=8, downsampling_ratios=[2, 4],
                            channel_multiples=[1, 2], decoder_channels=8, decoder_input_channels=4),
    "vae_vidtok": diffuser("AutoencoderVidTok", ((1, 3, 5, 32, 32),), ("sample",), ch=32, ch_mult=[1, 1, 1, 1], num_res_blocks=1, regularizer="fsq",
                           z_channels=3, double_z=False, codebook_size=512),
    "sd3": diffuser("SD3Transformer2DModel", (LATENT, WORDS, (1, 48), time), ("hidden_states", "encoder_hidden_states", "pooled_projections", "timestep"), True,
                    **HEADS, sample_size=16, in_channels=4, out_channels=4, joint_attention_dim=32, caption_projection_dim=32, pooled_projection_dim=48,
                    dual_attention_layers=(0,), qk_norm="rms_norm", pos_embed_max_size=16),
    "flux": diffuser("FluxTransformer2DModel", ((1, 12, 16), WORDS, (1, 24), unit(1), IDS(12), IDS(7), unit(1)), ("hidden_states", "encoder_hidden_states",
                     "pooled_projections", "timestep", "img_ids", "txt_ids", "guidance"), **HEADS | dict(num_layers=1), num_single_layers=1, in_channels=16,
                     joint_attention_dim=32, pooled_projection_dim=24, guidance_embeds=True, axes_dims_rope=(4, 6, 6)),
    "dit": diffuser("DiTTransformer2DModel", (LATENT, time, whole(1, high=1000)), ("hidden_states", "timestep", "class_labels"), True, **HEADS, sample_size=16,
                    norm_num_groups=8),
    "cogvideo": diffuser("CogVideoXTransformer3DModel", ((1, 2, 4, 8, 8), WORDS, time), TEXT, **PLAIN, time_embed_dim=8, text_embed_dim=32, sample_width=8,
                         sample_height=8, sample_frames=5, max_text_seq_length=7),
    "ltx": diffuser("LTXVideoTransformer3DModel", ((1, 24, 8), WORDS, time, whole(1, 7, high=2)), (*TEXT, "encoder_attention_mask"),
                    fixed=dict(num_frames=2, height=3, width=4), **HEADS, in_channels=8, out_channels=8, cross_attention_dim=32, caption_channels=32),
    "wan": diffuser("WanTransformer3DModel", ((1, 4, 2, 8, 8), time, WORDS), TIMED, True, **PLAIN, text_dim=32, freq_dim=16, ffn_dim=64, rope_max_seq_len=32),
    "sana_video": diffuser("SanaVideoTransformer3DModel", ((1, 4, 2, 8, 8), WORDS, time), TEXT, **PLAIN, num_cross_attention_heads=2,
                           cross_attention_head_dim=16, cross_attention_dim=32, caption_channels=32, sample_size=8, rope_max_seq_len=32),
    "chroma": diffuser("ChromaTransformer2DModel", ((1, 12, 16), WORDS, unit(1), IDS(12), IDS(7)), (*TEXT, "img_ids", "txt_ids"), **HEADS | dict(num_layers=1),
                       num_single_layers=1, in_channels=16, joint_attention_dim=32, axes_dims_rope=(4, 6, 6), approximator_num_channels=8,
                       approximator_hidden_dim=32, approximator_layers=1),
    "cosmos": diffuser("CosmosTransformer3DModel", ((1, 4, 2, 8, 8), unit(1), WORDS, given([[[[0.0] * 8] * 8]])), (*TIMED, "padding_mask"), **PLAIN,
                       text_embed_dim=32, adaln_lora_dim=8, max_size=(4, 16, 16)),
    "mochi": diffuser("MochiTransformer3DModel", ((1, 4, 2, 8, 8), WORDS, time, given([[True] * 5 + [False] * 2])), (*TEXT, "encoder_attention_mask"), **HEADS,
                      pooled_projection_dim=24, in_channels=4, text_embed_dim=32, time_embed_dim=16, max_sequence_length=7),
    "stable_audio": diffuser("StableAudioDiTModel", ((1, 8, 24), time, WORDS, (1, 1, 24)), (*TIMED, "global_hidden_states"),
                             **HEADS | dict(num_attention_heads=4), in_channels=8, out_channels=8, sample_size=24, num_key_value_attention_heads=2,
                             cross_attention_dim=32, time_proj_dim=16, global_states_input_dim=24, cross_attention_input_dim=32, batches=True),
    "zimage": net("diffusers:ZImageTransformer2DModel", ((4, 1, 8, 8), unit(1), (7, 32)), lambda m, x, t, c: m([x], t, [c], return_dict=False), in_channels=4,
                  dim=32, n_layers=1, n_refiner_layers=1, n_heads=2, n_kv_heads=2, cap_feat_dim=32, axes_dims=[4, 6, 6], axes_lens=[64, 32, 32]),
    "acestep": diffuser("AceStepTransformer1DModel", ((1, 12, 8), unit(1), unit(1), WORDS, (1, 12, 16)), ("hidden_states", "timestep", "timestep_r",
                        "encoder_hidden_states", "context_latents"), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
                        num_key_value_heads=1, head_dim=16, in_channels=24, audio_acoustic_hidden_dim=8, sliding_window=4, encoder_hidden_size=32),
    "nucleus": diffuser("NucleusMoEImageTransformer2DModel", ((1, 12, 16), WORDS, given([[True] * 7]), unit(1)), ("hidden_states", "encoder_hidden_states",
                        "encoder_hidden_states_mask", "timestep"), fixed=dict(img_shapes=[(1, 3, 4)]), **HEADS | dict(num_layers=5), in_channels=16,
                        out_channels=4, num_key_value_heads=1, joint_attention_dim=32, axes_dims_rope=(4, 6, 6), num_experts=4, moe_intermediate_dim=16,
                        capacity_factors=2.0),
}


def medical(name, *inputs_and_call, **options):
    return net(f"monai.networks.nets:{name}", *inputs_and_call, **options)


SLICE = (1, 1, 32, 32)
MEDICAL = {
    "ahnet": medical("AHNet", ((1, 1, 32, 32, 32),), layers=(1, 1, 1, 1), psp_block_num=2, upsample_mode="trilinear"),
    "attention_unet": medical("AttentionUnet", (SLICE,), spatial_dims=2, in_channels=1, out_channels=2, channels=(8, 16, 16), strides=(2, 2), batches=True),
    "spade_kl": medical("SPADEAutoencoderKL", (SLICE, unit(1, 3, 32, 32)), lambda m, x, s: m.decode(m.encode(x)[0], s), spatial_dims=2, label_nc=3,
                        num_res_blocks=(1, 1), channels=(8, 16), attention_levels=(False, True), norm_num_groups=8, spade_intermediate_channels=8,
                        batches=True),
    "daf3d": medical("DAF3D", ((1, 1, 16, 32, 32),), in_channels=1, out_channels=1),
    "global": medical("GlobalNet", ((1, 1, 16, 16, 16),), image_size=[16, 16, 16], spatial_dims=3, in_channels=1, num_channel_initial=4, depth=2),
    "highres": medical("HighResNet", ((1, 1, 8, 8, 8),)),
    "hover": medical("HoVerNet", ((1, 3, 256, 256),), mode="FAST", out_classes=3),
    "quicknat": medical("Quicknat", (SLICE,), num_classes=3, num_filters=8),
    "segres_vae": medical("SegResNetVAE", ((1, 1, 16, 16, 16),), lambda m, x: m(x)[:1], input_image_size=[16, 16, 16], vae_nz=8, blocks_down=(1, 1, 1),
                          blocks_up=(1, 1)),
    "segres_ds": medical("SegResNetDS", ((1, 1, 16, 16, 16),), init_filters=4, blocks_down=(1, 1, 1), dsdepth=2, resolution=[1, 1, 2]),
    "swin_unetr_2d": medical("SwinUNETR", ((1, 1, 64, 64),), in_channels=1, out_channels=2, feature_size=12, depths=(1, 1, 1, 1), num_heads=(2, 2, 2, 2),
                             spatial_dims=2, downsample="mergingv2"),
    "decoder": medical("DecoderOnlyTransformer", (whole(1, 9, high=30), (1, 4, 32)), num_tokens=30, max_seq_len=16, attn_layers_dim=32, attn_layers_depth=1,
                       attn_layers_heads=2, with_cross_attention=True, batches=True),
    "vqvae": medical("VQVAE", (SLICE,), spatial_dims=2, in_channels=1, out_channels=1, channels=(8, 16), num_res_layers=1, num_res_channels=(8, 16),
                     downsample_parameters=((2, 4, 1, 1),) * 2, upsample_parameters=((2, 4, 1, 1, 0),) * 2, num_embeddings=16, embedding_dim=8, batches=True),
}

monai = partial(function, "monai")
MONAI_FUNCTIONS = {
    "information": monai(lambda m, x, y: [m.losses.GlobalMutualInformationLoss()(x, y), m.losses.GlobalMutualInformationLoss("b-spline")(x, y)], (2, 1, 12, 14),
                         (2, 1, 12, 14)),
    "correlation": monai(lambda m, x, y: m.losses.LocalNormalizedCrossCorrelationLoss(spatial_dims=2)(x, y), (2, 1, 12, 14), (2, 1, 12, 14), batches=True),
    "spectral": monai(lambda m, x, y: m.losses.JukeboxLoss(spatial_dims=2)(x, y), (2, 1, 12, 14), (2, 1, 12, 14), batches=True),
    "bending": monai(lambda m, x: [m.losses.BendingEnergyLoss()(x), m.losses.DiffusionLoss(normalize=True)(x)], (1, 3, 6, 7, 8), batches=True),
    "contrastive": monai(lambda m, x, y: [m.losses.ContrastiveLoss()(x, y), m.losses.BarlowTwinsLoss()(x, y)], (4, 8), (4, 8)),
    "mmd": monai(lambda m, x, y: m.metrics.mmd.compute_mmd(x, y, None), (6, 5), (6, 5)),
    "gaussian": monai(lambda m, x: [m.networks.layers.GaussianFilter(3, 1.5, approx=a)(x) for a in ("erf", "sampled", "scalespace")], (1, 2, 6, 7, 8),
                      batches=True),
    "kspace": monai(lambda m, x: [m.networks.blocks.fft_utils_t.ifftn_centered_t(x, 2), m.networks.blocks.fft_utils_t.fftn_centered_t(x, 2)], (1, 8, 9, 2)),
}


def yolo(path, size=64, task="DetectionModel", width=0.125):
    """A configuration of ultralytics, cut in width and depth; its largest head's numbers of channels stay multiples of 8."""
    def build():
        import yaml
        tasks, root = importlib.import_module("ultralytics.nn.tasks"), importlib.import_module("ultralytics.utils").ROOT
        settings = yaml.safe_load((root / "cfg/models" / path).read_text()) | dict(nc=4, scales={"x": [0.17, width, 256]}, scale="x")
        return tensors(awaken(getattr(tasks, task)(settings, ch=3, verbose=False)).eval(), plainly)
    return row(build, ((1, 3, size, size),), unit)


YOLO = {
    "v3_tiny": yolo("v3/yolov3-tiny.yaml", 96),
    "v6": yolo("v6/yolov6.yaml", width=0.25),
    "v10": yolo("v10/yolov10n.yaml", 96, width=0.25),
    "v11_seg": yolo("11/yolo11-seg.yaml", 64, "SegmentationModel", width=0.25),
    "v11_pose": yolo("11/yolo11-pose.yaml", 64, "PoseModel", width=0.25),
    "v11_cls": yolo("11/yolo11-cls.yaml", 64, "ClassificationModel", width=0.25),
    "v12": yolo("12/yolo12.yaml", 64, width=0.25),
    "v26_seg": yolo("26/yolo26-seg.yaml", 96, "SegmentationModel", width=0.25),
    "rtdetr_resnet": yolo("rt-detr/rtdetr-resnet50.yaml", 96, "RTDETRDetectionModel"),
}


def segmenter(name, encoder="resnet18", size=64, **options):
    return net(f"segmentation_models_pytorch:{name}", ((1, 3, size, size),), encoder_name=encoder, encoder_weights=None, classes=3, **options)


SEGMENTERS = {
    "unet": segmenter("Unet", decoder_attention_type="scse", decoder_channels=(32, 16, 16, 16, 16), batches=True),
    "unet_plus": segmenter("UnetPlusPlus", "timm-mobilenetv3_small_minimal_100", decoder_channels=(32, 16, 16, 8, 8)),
    "manet": segmenter("MAnet", "efficientnet-b0", decoder_channels=(32, 16, 16, 8, 8), decoder_pab_channels=8, batches=True),
    "fpn": segmenter("FPN", "mobileone_s0", batches=True),
    "pspnet": segmenter("PSPNet", "resnet18"),
    "pan": segmenter("PAN", "resnet18", 128),
    "deeplab": segmenter("DeepLabV3", "resnet18", decoder_channels=32, batches=True),
    "upernet": segmenter("UPerNet", "mit_b0", decoder_channels=32, batches=True),
    "dpt": segmenter("DPT", "tu-vit_tiny_patch16_224", 224, decoder_intermediate_channels=(16, 16, 16, 16), decoder_fusion_channels=16),
    "stats": function("segmentation_models_pytorch", lambda s, a, b: s.metrics.get_stats(a, b, mode="multiclass", num_classes=4), whole(2, 8, 9, high=4),
                      whole(2, 8, 9, high=4)),
}

BOXES = lambda count, scale=20.0: lambda batch: torch.cat([a := torch.rand(count, 2) * scale, a + torch.rand(count, 2) * scale / 2 + 1], 1)  # noqa: E731
# Each box with the number of its image.
ROIS = lambda batch: torch.cat([torch.tensor([[0.0], [1], [0]]), BOXES(3, 12.0)(None)], 1)  # noqa: E731
BYTES = whole(1, 3, 24, 32, high=256)
ops = partial(function, "torchvision.ops")
turn = partial(function, "torchvision.transforms.v2.functional")
VISION = {
    "deform": ops(lambda o, x, w, d, m: o.deform_conv2d(x, d * 4 - 2, w, None, 2, 1, 1, m), (2, 4, 12, 13), (6, 2, 3, 3), (2, 36, 6, 7), (2, 18, 6, 7)),
    "roi": ops(lambda o, x, r: [o.roi_align(x, r, (3, 4), 0.5, 2, True), o.roi_align(x, r, 3), o.roi_pool(x, r, (3, 4)), o.ps_roi_align(x, r, 2, 1.0, 2),
                                o.ps_roi_pool(x, r, 2)], (2, 8, 16, 18), ROIS),
    "nms": ops(lambda o, b, s: o.nms(b, s, 0.3), BOXES(20), (20,)),
    "ious": ops(lambda o, a, b: [o.box_iou(a, b), o.generalized_box_iou(a, b), o.distance_box_iou(a, b), o.complete_box_iou(a, b),
                                 o.complete_box_iou_loss(a, b[:6]), o.clip_boxes_to_image(a, (15, 15))], BOXES(6), BOXES(8)),
    "box_convert": ops(lambda o, a: [o.box_convert(a, "xyxy", "cxcywh"), o.box_area(a), o.remove_small_boxes(a, 5.0)], BOXES(9)),
    "resize": turn(lambda t, x: [t.resize(x, [17, 40], antialias=a, interpolation=i)
                                 for i in (t.InterpolationMode.BILINEAR, t.InterpolationMode.BICUBIC) for a in (True, False)], RGB, batches=True),
    "rotate": turn(lambda t, x: [t.rotate(x, 33.0, expand=True), t.rotate(x, 33.0, fill=[0.5, 0.1, 0.2])], RGB),
    "perspective": turn(lambda t, x: t.perspective(x, None, None, coefficients=[1.1, 0.05, -1.0, 0.02, 0.95, 0.5, 0.001, 0.002]), RGB, batches=True),
    "elastic": turn(lambda t, x, d: t.elastic(x, d * 0.2), RGB, (1, 24, 32, 2)),
    "equalize": turn(lambda t, x: t.equalize(x.byte()), BYTES),
    "hue": turn(lambda t, x: [t.adjust_hue(x, 0.2), t.adjust_saturation(x, 1.4), t.adjust_contrast(x, 1.3), t.adjust_sharpness(x, 1.7), t.adjust_gamma(x, 1.2)],
                RGB, batches=True),
    "hue_bytes": turn(lambda t, x: [t.adjust_hue(x.byte(), -0.3), t.adjust_sharpness(x.byte(), 0.4), t.posterize(x.byte(), 3), t.solarize(x.byte(), 100),
                                    t.invert(x.byte())], BYTES),
    "blur": turn(lambda t, x: [t.gaussian_blur(x, [5, 3], [1.1, 0.7]), t.autocontrast(x)], RGB, batches=True),
    "autocontrast_bytes": turn(lambda t, x: [t.autocontrast(x.byte()), t.gaussian_blur(x.byte(), [3, 3])], BYTES),
    "gray_pad": turn(lambda t, x: [t.rgb_to_grayscale(x), t.pad(x, [2, 3, 4, 5], padding_mode="reflect"), t.pad(x, [2, 3, 4, 5], padding_mode="symmetric"),
                                   t.pad(x, [2], fill=0.3), t.five_crop(x, [10, 10])], RGB),
    "dtypes": turn(lambda t, x: [t.to_dtype(x.byte(), torch.float32, scale=True), t.to_dtype(x.byte(), torch.int32, scale=True),
                                 t.to_dtype(x.float() / 255, torch.uint8, scale=True)], BYTES),
}

TOWERS = dict(embed_dim=32, vision_cfg=dict(image_size=32, layers=2, width=32, head_width=16, patch_size=8),
              text_cfg=dict(context_length=8, vocab_size=100, width=32, heads=2, layers=2))
POOL = dict(attentional_pool=True, attn_pooler_heads=2)
PAIR = ((1, 3, 32, 32), whole(1, 8, high=100))
PATCHES = ((2, 1, 32, 32),)
waves = partial(function, "ptwt")
OTHERS = {
    "film_slowfast": net("pytorchvideo.models.slowfast:create_slowfast", ((1, 3, 4, 64, 64), (1, 3, 16, 64, 64)), lambda m, s, f: m([s, f]), model_depth=50,
                         head_pool_kernel_sizes=((4, 2, 2), (16, 2, 2)), model_num_class=5, slowfast_channel_reduction_ratio=(4,), stem_dim_outs=(16, 4)),
    "film_x3d": net("pytorchvideo.models.x3d:create_x3d", ((1, 3, 4, 64, 64),), input_clip_length=4, input_crop_size=64, model_num_class=5, depth_factor=1.0,
                    batches=True),
    "film_csn": net("pytorchvideo.models.csn:create_csn", ((1, 3, 4, 64, 64),), head_pool_kernel_size=(1, 2, 2), model_num_class=5, stem_dim_out=16),
    "clip_vit": net("open_clip.model:CLIP", PAIR, **TOWERS, batches=True),
    "clip_vit_pool": net("open_clip.model:CustomTextCLIP", PAIR,
                         **TOWERS | dict(vision_cfg=TOWERS["vision_cfg"] | dict(**POOL, pos_embed_type="sin_cos_2d", no_ln_pre=True, ls_init_value=0.1))),
    "clip_resnet": net("open_clip.model:CLIP", ((1, 3, 64, 64), PAIR[1]), **TOWERS | dict(vision_cfg=dict(image_size=64, layers=(1, 1, 1, 1), width=16)),
                       batches=True),
    "clip_coca": net("open_clip.coca_model:CoCa", PAIR,
                     **TOWERS | dict(text_cfg=TOWERS["text_cfg"] | dict(embed_cls=True, output_tokens=True),
                                     vision_cfg=TOWERS["vision_cfg"] | dict(**POOL, output_tokens=True),
                                     multimodal_cfg=dict(context_length=8, width=32, heads=2, layers=1, vocab_size=100))),
    "wave_dwt1": waves(lambda p, x: [p.wavedec(x, "db3", level=3), p.waverec(p.wavedec(x, "db3", level=3), "db3")], (2, 50), batches=True),
    "wave_dwt2": waves(lambda p, x: p.waverec2(p.wavedec2(x, "db2", level=2, mode="symmetric"), "db2"), (2, 21, 30)),
    "wave_dwt3": waves(lambda p, x: p.waverec3(p.wavedec3(x, "haar", level=2), "haar"), (1, 12, 13, 14)),
    "wave_stationary": waves(lambda p, x: p.iswt(p.swt(x, "db2", level=3), "db2"), (2, 64), batches=True),
    "wave_packets": waves(lambda p, x: [p.WaveletPacket(x, "haar", maxlevel=2)[k] for k in ("aa", "ad", "da", "dd")], (2, 32)),
    "other_facenet": net("facenet_pytorch.models.inception_resnet_v1:InceptionResnetV1", ((1, 3, 96, 96),), pretrained=None, classify=False),
    "other_pnet": net("facenet_pytorch.models.mtcnn:PNet", ((1, 3, 40, 52),), pretrained=False, batches=True),
    "other_lpips": net("lpips:LPIPS", ((1, 3, 64, 64), (1, 3, 64, 64)), pretrained=False, pnet_rand=True, net="alex", verbose=False, batches=True),
    "feature_sift": net("kornia.feature:SIFTDescriptor", PATCHES, batches=True, patch_size=32, make=unit),
    "feature_dominant": net("kornia.feature:PatchDominantGradientOrientation", PATCHES, make=unit),
    "feature_affine": net("kornia.feature:PatchAffineShapeEstimator", PATCHES, patch_size=32, batches=True, make=unit),
    "feature_disk": net("kornia.feature:DISK", ((1, 3, 64, 64),), lambda m, x: m.heatmap_and_dense_descriptors(x), batches=True, make=unit),
    "feature_loftr": net("kornia.feature:LoFTR", ((1, 1, 64, 64), (1, 1, 64, 64)), lambda m, a, b: m.backbone(torch.cat([a, b])), pretrained=None, make=unit),
    "feature_dexined": net("kornia.models.dexined:DexiNed", ((1, 3, 64, 64),), make=unit, pretrained=False),
}

TABLES = {"kornia": KORNIA, "lucid": LUCID, "restorer": RESTORERS, "diffusers": DIFFUSERS, "monai": MEDICAL, "monai_f": MONAI_FUNCTIONS, "yolo": YOLO,
          "segmenter": SEGMENTERS, "vision": VISION}
MODELS = {f"{kind}_{name}": one for kind, table in TABLES.items() for name, one in table.items()} | OTHERS
