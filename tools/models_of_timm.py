"""Vision models that check_models.py and the zoo do not hold: `check_models.py --from models_of_timm`. Random weights, nothing downloaded.

One small variant of each further family of timm, then torchvision's detectors, videos and flows. Wide variants are cut in depth and width by
the arguments of their own classes; sizes of images are the least that a family takes without losing a stage. Every third model takes batches of
any size; some take images of any size. A detector also gives boxes whose number depends on the values.
"""
import torch
from torch import nn
from torch.export import Dim

BATCH = Dim("batch", min=1, max=32)


def images(*sizes):
    return lambda: [(torch.randn(*s),) for s in sizes]


def awaken(model):
    """Constant parameters hide mistakes: a layer scale of 1e-6 hides its whole block, a head of zeros the model. They get values of their own."""
    with torch.no_grad():
        for p in model.parameters():
            if p.is_floating_point() and p.numel() > 1 and bool((p == p.flatten()[0]).all()):
                if p.flatten()[0] >= 0.5:
                    p.mul_(torch.empty_like(p).uniform_(0.8, 1.2))
                else:
                    p.normal_(0, 0.1)
    return model


def net(name, size=96, batches=False, **options):
    """timm's NAME on square images; with `batches` the number of images is dynamic."""
    def build():
        from timm.models import create_model
        return awaken(create_model(name, pretrained=False, **options))
    shape = (3, size, size)
    if batches:
        return (build, images((2, *shape), (1, *shape), (3, *shape)), ({0: BATCH},))
    return (build, images((1, *shape)), None)


def any_size(name, **options):
    """timm's NAME on images whose height and width are dynamic multiples of 32."""
    build, _, _ = net(name, **options)
    rows, columns = Dim("rows", min=2, max=16), Dim("columns", min=2, max=16)
    return (build, images((1, 3, 96, 64), (1, 3, 64, 128), (1, 3, 96, 96)), ({2: 32 * rows, 3: 32 * columns},))


class Call(nn.Module):
    """A model as a function of positional tensors that returns a tuple of tensors."""

    def __init__(self, model, call):
        super().__init__()
        self.model, self.call = model, call

    def forward(self, *tensors):
        return self.call(self.model, *tensors)


def vision(path, sets, call=lambda m, *xs: m(*xs), dynamic=None, **options):
    """torchvision.models.PATH, without weights."""
    def build():
        import torchvision.models as models
        place = models
        for part in path.split("."):
            place = getattr(place, part)
        return Call(awaken(place(weights=None, **options)), call)
    return (build, sets, dynamic)


def features(name, size=96, batches=False, **options):
    """The feature pyramid that timm's backbones give detectors."""
    return net(name, size, batches, features_only=True, **options)


SMALL_VIT = dict(embed_dim=192, depth=2, num_heads=3)

TIMM = {
    "beit_v2": net("beitv2_base_patch16_224", 224, depth=2, embed_dim=192, num_heads=3),
    "eca_botnext": net("eca_botnext26ts_256", 256),
    "halonet_h1": net("halonet_h1", 256, batches=True),
    "lambda_rpt": net("lambda_resnet26rpt_256", 256),
    "bat_resnext": net("bat_resnext26ts", 256),
    "mobileone": net("mobileone_s1", 96, batches=True),
    "gernet": net("gernet_s", 96),
    "regnetz_b": net("regnetz_b16", 96),
    "resnet_clip": net("resnet50_clip", 224),
    "regnetz_evos": net("regnetz_b16_evos", 96, batches=True),
    "cait_384": net("cait_xxs24_384", 384, depth=4),
    "coat": net("coat_tiny", 224),
    "convit": net("convit_tiny", 224, batches=True),
    "convnext": net("convnext_zepto_rms", 96),
    "convnext_any": any_size("convnext_atto"),
    "cpubone": net("cpubone_nano", 96),
    "crossvit_dagger": net("crossvit_9_dagger_240", 240, batches=True),
    "csatv2": net("csatv2", 256),
    "cs3darknet": net("cs3darknet_focus_s", 96),
    "cspresnext": net("cspresnext50", 96, batches=True),
    "cspnext": net("cspnext_tiny", 96),
    "deepseek_vit": net("deepseek_vit_412m", 196, **SMALL_VIT),
    "deit3": net("deit3_small_patch16_224", 224, depth=3, batches=True),
    "densenet_blur": net("densenetblur121d", 96),
    "dla_x": net("dla46x_c", 96),
    "dla60_res2": net("dla60_res2next", 96, batches=True),
    "dpn48": net("dpn48b", 96),
    "edgenext_rw": net("edgenext_small_rw", 128),
    "efficientformer": net("efficientformer_l1", 224, batches=True),
    "efficientformer_v2": net("efficientformerv2_s0", 224),
    "efficientnet_cc": net("efficientnet_cc_b0_4e", 96),
    "efficientnet_evos": net("efficientnet_b0_g16_evos", 96, batches=True),
    "efficientnet_gn": net("efficientnet_b0_gn", 96),
    "mixnet": net("mixnet_s", 96),
    "fbnetc": net("fbnetc_100", 96, batches=True),
    "tinynet": net("tinynet_e", 106),
    "spnasnet": net("spnasnet_100", 96),
    "mnasnet_semnas": net("semnasnet_075", 96, batches=True),
    "tf_mixnet": net("tf_mixnet_s", 97),
    "efficientvim": net("efficientvim_m1", 224),
    "efficientvit_mit": net("efficientvit_b0", 96, batches=True),
    "efficientvit_msra": net("efficientvit_m0", 224),
    "eva_rope_mixed": net("vit_small_patch16_rope_mixed_224", 224, depth=2),
    "eva_dinov3": net("vit_small_patch16_dinov3", 96, depth=2, batches=True),
    "eva_pe": net("vit_pe_core_tiny_patch16_384", 384, depth=2),
    "fasternet": net("fasternet_t0", 96),
    "fastvit_mci": net("fastvit_mci0", 128, batches=True),
    "focalnet": net("focalnet_tiny_lrf", 224),
    "gcvit": net("gcvit_xxtiny", 224),
    "gemma4_vit": net("gemma4_vit_167m", 192, **SMALL_VIT),
    "ghostnet_v2": net("ghostnetv2_100", 96, batches=True),
    "ghostnet_v3": net("ghostnetv3_100", 96),
    "hardcorenas": net("hardcorenas_a", 96),
    "hgnet": net("hgnet_tiny", 96, batches=True),
    "hgnet_v2": net("hgnetv2_b0", 96),
    "hieradet": net("sam2_hiera_tiny", 224, stages=(1, 1, 2, 1), global_att_blocks=(3,)),
    "hrnet_features": features("hrnet_w18_small", 96, batches=True),
    "iformer": net("iformer_t", 224),
    "inception_next": net("inception_next_atto", 96),
    "inception_v4": net("inception_v4", 139),
    "inception_resnet_v2": net("inception_resnet_v2", 139),
    "lcnet": net("lcnet_050", 96, batches=True),
    "lcnet_v2": net("lcnetv2_base", 96),
    "levit_conv": net("levit_conv_128s", 224),
    "lowformer": net("lowformer_b0", 96, batches=True),
    "mambaout": net("mambaout_femto", 96),
    "coatnet": net("coatnet_pico_rw_224", 224),
    "coatnext": net("coatnext_nano_rw_224", 224, batches=True),
    "coatnet_rmlp": net("coatnet_rmlp_nano_rw_224", 224),
    "maxvit_tf": net("maxvit_tiny_tf_224", 224, depths=(1, 1, 1, 1)),
    "caformer": net("caformer_s18", 96, batches=True),
    "convformer": net("convformer_s18", 96),
    "poolformer_v2": net("poolformerv2_s12", 96),
    "mixer_gmixer": net("gmixer_24_224", 224, batches=True),
    "mobilenetv3_rw": net("mobilenetv3_rw", 96),
    "fbnetv3": net("fbnetv3_b", 96),
    "mobilenetv4_hybrid": net("mobilenetv4_hybrid_medium", 128, batches=True),
    "mobilenetv4_blur": net("mobilenetv4_conv_blur_medium", 96),
    "mobilenetv5": net("mobilenetv5_base", 128),
    "mobilevit_v2": net("mobilevitv2_050", 128, batches=True),
    "mvit_v2": net("mvitv2_tiny", 224),
    "naflexvit": net("naflexvit_base_patch16_gap", 128, batches=True, **SMALL_VIT),
    "naflexvit_map": net("naflexvit_base_patch16_map", 128, **SMALL_VIT),
    "nasnet": net("nasnetalarge", 96, stem_size=32, num_features=1344),
    "nest": net("nest_tiny_jx", 224, batches=True),
    "nextvit": net("nextvit_small", 96),
    "nfnet_f": net("test_nfnet", 96),
    "nf_regnet": net("nf_regnet_b0", 96, batches=True),
    "nf_ecaresnet": net("nf_ecaresnet26", 96),
    "dm_nfnet": net("eca_nfnet_l0", 96),
    "pit": net("pit_ti_distilled_224", 224, batches=True),
    "pnasnet": net("pnasnet5large", 96),
    "pvt_v2_li": net("pvt_v2_b2_li", 96),
    "qwen3_vit": net("qwen3_vit_88m", 192, batches=True, **SMALL_VIT),
    "rdnet": net("rdnet_tiny", 96),
    "regnet_sgn": net("regnetx_002", 96),
    "regnetv": net("regnety_002", 96, batches=True),
    "repghost": net("repghostnet_050", 96),
    "repvit": net("repvit_m1", 96),
    "res2net_v1d": net("res2net50d", 96, batches=True),
    "res2next": net("res2next50", 96),
    "resnest_fast": net("resnest26d", 96),
    "seresnet": net("seresnext26t_32x4d", 96, batches=True),
    "ecaresnet": net("ecaresnet26t", 96),
    "resnet_blur": net("resnetblur18", 96),
    "resnet_aa": net("resnetaa34d", 96, batches=True),
    "resnetrs": net("resnetrs50", 96),
    "resnetv2_bit": net("resnetv2_50x1_bit", 96),
    "resnetv2_frn": net("resnetv2_50d_frn", 96, batches=True),
    "resnet_any": any_size("resnet10t"),
    "rexnetr": net("rexnetr_100", 96),
    "selecsls": net("selecsls42", 96, batches=True),
    "legacy_senet": net("legacy_seresnext26_32x4d", 96),
    "sequencer_m": net("sequencer2d_s", 64, layers=(1, 1, 1, 1)),
    "shvit": net("shvit_s1", 128, batches=True),
    "sknet_x": net("skresnext50_32x4d", 96),
    "starnet": net("starnet_s050", 96),
    "swiftformer": net("swiftformer_xs", 224, batches=True),
    "swin": net("swin_tiny_patch4_window7_224", 224, depths=(1, 1, 2, 1)),
    "swin_s3": net("swin_s3_tiny_224", 224, depths=(1, 1, 2, 1)),
    "swinv2": net("swinv2_tiny_window8_256", 256, batches=True, depths=(1, 1, 2, 1)),
    "swinv2_cr_ns": net("swinv2_cr_tiny_ns_224", 224, depths=(1, 1, 2, 1)),
    "tiny_vit": net("tiny_vit_5m_224", 224, batches=True),
    "tresnet": net("tresnet_m", 96),
    "twins_pcpvt": net("twins_pcpvt_small", 224, batches=True),
    "visformer": net("visformer_tiny", 224, batches=True),
    "vit_hybrid": net("vit_tiny_r_s16_p8_224", 224),
    "vit_relpos": net("vit_relpos_small_patch16_224", 224, depth=2, batches=True),
    "vit_srelpos": net("vit_srelpos_small_patch16_224", 224, depth=2),
    "samvit": net("samvit_base_patch16_224", 224, depth=3, embed_dim=192, num_heads=3, global_attn_indexes=(2,)),
    "flexivit": net("flexivit_small", 240, depth=2, batches=True),
    "vit_siglip": net("vit_base_patch16_siglip_224", 224, **SMALL_VIT),
    "vit_parallel": net("vit_base_patch16_18x2_224", 224, **SMALL_VIT),
    "vit_xp": net("vit_little_patch16_reg4_gap_256", 256, depth=2),
    "vit_aimv2": net("aimv2_large_patch14_224", 224, batches=True, **SMALL_VIT),
    "vitamin": net("vitamin_small_224", 224),
    "vovnet": net("ese_vovnet19b_slim_dw", 96, batches=True),
    "vovnet_evos": net("ese_vovnet19b_dw", 96),
    "xception": net("xception41p", 96),
    "legacy_xception": net("legacy_xception", 96, batches=True),
    "xcit_p8": net("xcit_nano_12_p8_224", 96),
    "fastvit_features": features("fastvit_t8", 128),
    "convnext_features": features("convnext_atto", 96, batches=True),
    "swin_features": features("swin_tiny_patch4_window7_224", 224, depths=(1, 1, 1, 1)),
    "efficientnet_any": any_size("efficientnet_lite0"),
    "mobilenetv4_any": any_size("mobilenetv4_conv_small_050"),
    "metaformer_any": any_size("poolformerv2_s12"),
}


def suppressed(boxes, scores, idxs, iou_threshold):
    """torchvision's batched_nms without its tests of how many boxes there are, at which torch.export stops."""
    from torchvision.ops import nms
    offsets = idxs.to(boxes) * (boxes.max() + 1)
    return nms(boxes + offsets[:, None], scores, iou_threshold)


def detections(model, image):
    """What a detector gives for one image."""
    from unittest import mock

    import torchvision
    with mock.patch.object(torchvision.ops.boxes, "batched_nms", suppressed):
        found = model([image])[0]
    return tuple(found[key] for key in sorted(found))


def heads(model, image):
    """What a one-stage detector's heads give. With random weights hundreds of scores lie within 1e-6 of one another, and rounding decides which box
    suppresses which."""
    images, _ = model.transform([image], None)
    found = model.head(list(model.backbone(images.tensors).values()))
    return tuple(found[key] for key in sorted(found))


def detector(name, size=128, **options):
    return vision(f"detection.{name}", lambda: [(torch.rand(3, size, size),)], detections, weights_backbone=None, num_classes=5, min_size=size,
                  max_size=size, **options)


CLIP = images((1, 3, 8, 64, 64))
FLOW = lambda: [(torch.rand(1, 3, 128, 160), torch.rand(1, 3, 128, 160))]  # noqa: E731
BOTH = lambda m, x: tuple(m(x)[k] for k in ("out", "aux"))  # noqa: E731
ANY_BATCH = ({0: BATCH},)
ANY_TENSORS = ((ANY_BATCH[0],),)


def batches(size):
    return images((2, 3, size, size), (1, 3, size, size), (3, 3, size, size))


VISION = {
    "tv_wide_resnet": vision("resnet50", batches(64), width_per_group=32, dynamic=ANY_TENSORS),
    "tv_googlenet_aux": vision("googlenet", images((1, 3, 96, 96)), aux_logits=True, init_weights=False),
    "tv_densenet_small": vision("densenet121", batches(64), dynamic=ANY_TENSORS),
    "tv_squeezenet1_0": vision("squeezenet1_0", images((1, 3, 96, 96))),
    "tv_regnet_x": vision("regnet_x_400mf", batches(96), dynamic=ANY_TENSORS),
    "tv_mobilenet_v3_large": vision("mobilenet_v3_large", images((1, 3, 96, 96))),
    "tv_fcn_aux": vision("segmentation.fcn_resnet50", images((1, 3, 64, 64)), BOTH, weights_backbone=None, aux_loss=True),
    "tv_deeplab_any": vision("segmentation.deeplabv3_mobilenet_v3_large", images((1, 3, 96, 64), (1, 3, 64, 128), (1, 3, 96, 96)),
                             lambda m, x: m(x)["out"], (({2: 32 * Dim("rows", min=2, max=16), 3: 32 * Dim("columns", min=2, max=16)},),),
                             weights_backbone=None),
    "tv_lraspp_batches": vision("segmentation.lraspp_mobilenet_v3_large", batches(96), lambda m, x: m(x)["out"], ANY_TENSORS, weights_backbone=None),
    "tv_mc3": vision("video.mc3_18", CLIP),
    "tv_r2plus1d": vision("video.r2plus1d_18", CLIP),
    "tv_mvit_v2": vision("video.mvit_v2_s", images((1, 3, 16, 224, 224))),
    "tv_swin3d": vision("video.swin3d_t", images((1, 3, 8, 64, 64))),
    "tv_raft_large": vision("optical_flow.raft_large", FLOW, lambda m, a, b: m(a, b, num_flow_updates=2)[-1]),
    "tv_fasterrcnn": detector("fasterrcnn_resnet50_fpn"),
    "tv_fasterrcnn_mobilenet": detector("fasterrcnn_mobilenet_v3_large_320_fpn"),
    "tv_retinanet": detector("retinanet_resnet50_fpn"),
    "tv_retinanet_v2": detector("retinanet_resnet50_fpn_v2"),
    "tv_fcos": detector("fcos_resnet50_fpn"),
    "tv_ssdlite": vision("detection.ssdlite320_mobilenet_v3_large", lambda: [(torch.rand(3, 320, 320),)], heads, weights_backbone=None, num_classes=5),
    "tv_ssd300": vision("detection.ssd300_vgg16", lambda: [(torch.rand(3, 300, 300),)], detections, weights_backbone=None, num_classes=5),
    "tv_maskrcnn": detector("maskrcnn_resnet50_fpn"),
    "tv_keypointrcnn": detector("keypointrcnn_resnet50_fpn", num_keypoints=5),
}

MODELS = TIMM | VISION
