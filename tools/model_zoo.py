"""More model families for check_models.py: what an unseen model may hold. Small widths, random weights, nothing downloaded.

ZOO: name → (build, input sets, dynamic shapes), as MODELS of check_models.py has it.
"""
import torch
from torch import nn


class Function(nn.Module):
    """A model as a function of positional tensors; picks the tensors out of what it returns."""

    def __init__(self, model, call=None, fields=None):
        super().__init__()
        self.model, self.call, self.fields = model, call, fields

    def forward(self, *tensors):
        out = self.call(self.model, *tensors) if self.call else self.model(*tensors)
        if self.fields:
            return tuple(out[name] for name in self.fields)
        return out


def timm(name, **options):
    def build():
        from timm.models import create_model
        return create_model(name, pretrained=False, **options)
    return build


def vision(path, call=None, **options):
    """torchvision.models.PATH, without weights."""
    def build():
        import torchvision.models as models
        place = models
        for part in path.split("."):
            place = getattr(place, part)
        return Function(place(**options), call)
    return build


def hugging(kind, config, names, fields, model="AutoModel", eager=False, **fixed):
    def build():
        import transformers
        settings = transformers.AutoConfig.for_model(kind, **config)
        if eager:
            settings._attn_implementation = "eager"
        net = getattr(transformers, model)
        net = net.from_config(settings) if hasattr(net, "from_config") else net(settings)
        return Function(net, lambda m, *xs: m(**dict(zip(names, xs)), **fixed), fields)
    return build


def images(*sizes):
    return lambda: [(torch.randn(*s),) for s in sizes]


def ids(*sizes, vocabulary=1000):
    return lambda: [(torch.randint(5, vocabulary, s),) for s in sizes]


def pair(length, other):
    return lambda: [(torch.randint(5, 1000, (2, length)), torch.randint(5, 1000, (2, other)))]


def clip_inputs():
    return [(torch.randint(5, 1000, (2, 12)), torch.randn(2, 3, 64, 64))]


SMALL = dict(vocab_size=1000, hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256)
DECODER = SMALL | dict(num_key_value_heads=2, max_position_embeddings=128)
IDS = ["input_ids"]
PIXELS = ["pixel_values"]
VIT = dict(hidden_size=96, num_hidden_layers=2, num_attention_heads=4, intermediate_size=192, image_size=64, patch_size=16)
NONE = dict(weights=None, weights_backbone=None)
OUT = lambda m, x: m(x)["out"]  # noqa: E731


def causal(kind, config, **fixed):
    return (hugging(kind, config, IDS, ["logits"], "AutoModelForCausalLM", use_cache=False, **fixed), ids((2, 17)), None)


def encoder(kind, config, **fixed):
    return (hugging(kind, config, IDS, ["last_hidden_state"], **fixed), ids((2, 17)), None)


def square(name, size=224, **options):
    return (timm(name, **options), images((1, 3, size, size)), None)


class Text(nn.Module):
    """What people write by hand: an encoder layer of PyTorch, a recurrent layer, a convolution over time."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(1000, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, norm_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.lstm = nn.LSTM(64, 48, 2, batch_first=True, bidirectional=True)
        self.conv = nn.Conv1d(96, 32, 3, padding=1, dilation=1)
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        y, _ = self.lstm(self.encoder(self.embed(x)))
        y = torch.relu(self.conv(y.transpose(1, 2)))
        return self.head(torch.cat([y.mean(-1)], -1)), y.topk(3, -1).values


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Transformer(64, 4, 2, 2, 128, batch_first=True)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(9))

    def forward(self, source, target):
        return self.model(source, target, tgt_mask=self.mask, tgt_is_causal=True)


class Spectrum(nn.Module):
    def forward(self, x):
        window = torch.hann_window(64)
        s = torch.stft(x, 64, 16, window=window, return_complex=True)
        return s.abs(), torch.fft.irfft(torch.fft.rfft(x)), torch.view_as_real(s)


ZOO = {
    # torchvision
    "alexnet": (vision("alexnet"), images((1, 3, 224, 224)), None),
    "vgg11_bn": (vision("vgg11_bn"), images((1, 3, 96, 96)), None),
    "googlenet": (vision("googlenet", init_weights=False, aux_logits=False), images((1, 3, 160, 160)), None),
    "inception_v3": (vision("inception_v3", init_weights=False, aux_logits=False), images((1, 3, 299, 299)), None),
    "mnasnet0_5": (vision("mnasnet0_5"), images((1, 3, 160, 160)), None),
    "resnext50": (vision("resnext50_32x4d"), images((1, 3, 160, 160)), None),
    "efficientnet_v2_s": (vision("efficientnet_v2_s"), images((1, 3, 160, 160)), None),
    "shufflenet_v2_x0_5": (vision("shufflenet_v2_x0_5"), images((1, 3, 160, 160)), None),
    "maxvit_t": (vision("maxvit_t"), images((1, 3, 224, 224)), None),
    "swin_v2_t": (vision("swin_v2_t"), images((1, 3, 224, 224)), None),
    "fcn_resnet50": (vision("segmentation.fcn_resnet50", OUT, **NONE), images((1, 3, 96, 96)), None),
    "deeplabv3_resnet50": (vision("segmentation.deeplabv3_resnet50", OUT, **NONE), images((1, 3, 96, 96)), None),
    "lraspp_mobilenet": (vision("segmentation.lraspp_mobilenet_v3_large", OUT, **NONE), images((1, 3, 128, 128)), None),
    "r3d_18": (vision("video.r3d_18"), images((1, 3, 8, 64, 64)), None),
    "mvit_v1_b": (vision("video.mvit_v1_b"), images((1, 3, 16, 224, 224)), None),
    "s3d": (vision("video.s3d"), images((1, 3, 16, 224, 224)), None),
    "fpn_backbone": (lambda: Fpn(), images((1, 3, 128, 128)), None),
    "raft_small": (vision("optical_flow.raft_small", lambda m, a, b: m(a, b, num_flow_updates=2)[-1]),
                   lambda: [(torch.rand(1, 3, 128, 128), torch.rand(1, 3, 128, 128))], None),
    # timm
    "timm_deit_tiny": square("deit_tiny_distilled_patch16_224"),
    "timm_convmixer": square("convmixer_768_32", 64),
    "timm_coat": square("coat_lite_tiny"),
    "timm_efficientnetv2": square("tf_efficientnetv2_b0", 160),
    "timm_maxvit": square("maxvit_rmlp_pico_rw_256", 256),
    "timm_swinv2": square("swinv2_cr_tiny_224"),
    "timm_beit": square("beit_base_patch16_224", depth=2),
    "timm_cait": square("cait_xxs24_224"),
    "timm_crossvit": square("crossvit_9_240", 240),
    "timm_davit": square("davit_tiny"),
    "timm_dla": square("dla34", 128),
    "timm_dpn": square("dpn68", 128),
    "timm_edgenext": square("edgenext_xx_small", 256),
    "timm_eva": square("eva02_tiny_patch14_224"),
    "timm_fastvit": square("fastvit_t8", 256),
    "timm_focalnet": square("focalnet_tiny_srf"),
    "timm_gcresnet": square("gcresnet33ts", 128),
    "timm_halonet": square("halonet26t", 256),
    "timm_botnet": square("botnet26t_256", 256),
    "timm_lambda": square("lambda_resnet26t", 256),
    "timm_hrnet": square("hrnet_w18_small", 128),
    "timm_levit": square("levit_128s"),
    "timm_nfnet": square("nfnet_l0", 128),
    "timm_pit": square("pit_ti_224"),
    "timm_poolformer": square("poolformer_s12"),
    "timm_pvt": square("pvt_v2_b0"),
    "timm_repvgg": square("repvgg_a0", 128),
    "timm_res2net": square("res2net50_26w_4s", 128),
    "timm_resnest": square("resnest14d", 128),
    "timm_rexnet": square("rexnet_100", 128),
    "timm_sequencer": square("sequencer2d_s", 224, layers=(1, 1, 1, 1)),
    "timm_skresnet": square("skresnet18", 128),
    "timm_tnt": square("tnt_s_legacy_patch16_224", depth=2),
    "timm_twins": square("twins_svt_small"),
    "timm_visformer": square("visformer_tiny"),
    "timm_volo": square("volo_d1_224"),
    "timm_xcit": square("xcit_nano_12_p16_224"),
    "timm_mobilenetv4": square("mobilenetv4_conv_small", 128),
    "timm_tinyvit": square("tiny_vit_5m_224"),
    "timm_hiera": square("hiera_tiny_224"),
    "timm_convnextv2": square("convnextv2_atto", 128),
    "timm_gmlp": square("gmlp_s16_224"),
    "timm_resmlp": square("resmlp_12_224"),
    # transformers: text
    "hf_bart": (hugging("bart", dict(vocab_size=1000, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                                     decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, max_position_embeddings=64),
                        ["input_ids", "decoder_input_ids"], ["last_hidden_state"], use_cache=False), pair(13, 7), None),
    "hf_marian": (hugging("marian", dict(vocab_size=1000, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, pad_token_id=0,
                                         decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, max_position_embeddings=64),
                          ["input_ids", "decoder_input_ids"], ["last_hidden_state"], use_cache=False), pair(13, 7), None),
    "hf_t5": (hugging("t5", dict(vocab_size=1000, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, feed_forward_proj="gated-gelu"),
                      ["input_ids", "decoder_input_ids"], ["last_hidden_state"], use_cache=False), pair(13, 7), None),
    "hf_roberta": encoder("roberta", SMALL | dict(pad_token_id=1)),
    "hf_electra": encoder("electra", SMALL | dict(embedding_size=64)),
    "hf_albert": encoder("albert", SMALL | dict(embedding_size=64)),
    "hf_deberta": encoder("deberta-v2", SMALL | dict(relative_attention=True, pos_att_type=["p2c", "c2p"], max_relative_positions=32)),
    "hf_mpnet": encoder("mpnet", SMALL | dict(pad_token_id=1)),
    "hf_squeezebert": encoder("squeezebert", SMALL | dict(embedding_size=128)),
    "hf_fnet": encoder("fnet", SMALL),
    "hf_modernbert": encoder("modernbert", SMALL | dict(pad_token_id=0, cls_token_id=1, sep_token_id=2, bos_token_id=1, eos_token_id=2)),
    "hf_opt": causal("opt", dict(vocab_size=1000, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, ffn_dim=128,
                                 max_position_embeddings=64, word_embed_proj_dim=64)),
    "hf_gpt_neo": causal("gpt_neo", dict(vocab_size=1000, hidden_size=64, num_layers=2, num_heads=4, intermediate_size=128,
                                         attention_types=[[["global", "local"], 1]], max_position_embeddings=64, window_size=8)),
    "hf_gpt_neox": causal("gpt_neox", SMALL | dict(max_position_embeddings=64)),
    "hf_gptj": causal("gptj", dict(vocab_size=1000, n_embd=64, n_layer=2, n_head=4, rotary_dim=8, n_positions=64)),
    "hf_bloom": causal("bloom", dict(vocab_size=1000, hidden_size=64, n_layer=2, n_head=4)),
    "hf_falcon": causal("falcon", dict(vocab_size=1000, hidden_size=64, num_hidden_layers=2, num_attention_heads=4)),
    "hf_phi": causal("phi", SMALL | dict(max_position_embeddings=64)),
    "hf_phi3": causal("phi3", DECODER | dict(pad_token_id=0)),
    "hf_qwen2": causal("qwen2", DECODER),
    "hf_qwen3": causal("qwen3", DECODER | dict(head_dim=32)),
    "hf_gemma": causal("gemma", DECODER | dict(head_dim=32)),
    "hf_gemma2": causal("gemma2", DECODER | dict(head_dim=32, sliding_window=8)),
    "hf_gemma3": causal("gemma3_text", DECODER | dict(head_dim=32, sliding_window=8)),
    "hf_mistral": causal("mistral", DECODER | dict(sliding_window=8)),
    "hf_mixtral": causal("mixtral", DECODER | dict(num_local_experts=4)),
    "hf_qwen2_moe": causal("qwen2_moe", DECODER | dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64,
                                                       shared_expert_intermediate_size=64)),
    "hf_olmo2": causal("olmo2", DECODER | dict(pad_token_id=0)),
    "hf_stablelm": causal("stablelm", DECODER),
    "hf_cohere": causal("cohere", DECODER | dict(pad_token_id=0)),
    "hf_granite": causal("granite", DECODER),
    "hf_starcoder2": causal("starcoder2", DECODER),
    "hf_smollm3": causal("smollm3", DECODER | dict(pad_token_id=0)),
    "hf_glm": causal("glm", DECODER | dict(head_dim=32, pad_token_id=0)),
    "hf_mamba": causal("mamba", dict(vocab_size=1000, hidden_size=64, num_hidden_layers=2, state_size=8)),
    "hf_mamba2": causal("mamba2", dict(vocab_size=1000, hidden_size=64, num_hidden_layers=2, state_size=16, num_heads=8, head_dim=16, n_groups=2,
                                       chunk_size=16)),
    "hf_rwkv": causal("rwkv", dict(vocab_size=1000, hidden_size=64, num_hidden_layers=2, context_length=64)),
    "hf_xlnet": (hugging("xlnet", dict(vocab_size=1000, d_model=64, n_layer=2, n_head=4, d_inner=128), IDS, ["last_hidden_state"]),
                 ids((2, 17)), None),
    # transformers: images, sound, both
    "hf_vit": (hugging("vit", VIT, PIXELS, ["last_hidden_state"]), images((2, 3, 64, 64)), None),
    "hf_dinov2": (hugging("dinov2", VIT, PIXELS, ["last_hidden_state"]), images((2, 3, 64, 64)), None),
    "hf_vit_mae": (hugging("vit_mae", VIT | dict(mask_ratio=0.5, decoder_hidden_size=64, decoder_num_hidden_layers=1), ["pixel_values", "noise"],
                           ["last_hidden_state"], "ViTMAEModel"), lambda: [(torch.randn(2, 3, 64, 64), torch.rand(2, 16))], None),
    "hf_segformer": (hugging("segformer", dict(hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1], decoder_hidden_size=64), PIXELS, ["logits"],
                             "SegformerForSemanticSegmentation"), images((1, 3, 64, 64)), None),
    "hf_swinv2": (hugging("swinv2", dict(image_size=64, embed_dim=32, depths=[2, 2], num_heads=[2, 4], window_size=4), PIXELS,
                          ["last_hidden_state"]), images((1, 3, 64, 64)), None),
    "hf_mobilevit": (hugging("mobilevit", dict(hidden_sizes=[24, 32, 40], neck_hidden_sizes=[8, 16, 24, 32, 40, 48, 64]), PIXELS,
                             ["last_hidden_state"]), images((1, 3, 128, 128)), None),
    "hf_dpt": (hugging("dpt", VIT | dict(num_hidden_layers=4, backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[16, 32, 48, 64], fusion_hidden_size=32,
                                         is_hybrid=False), PIXELS, ["predicted_depth"], "DPTForDepthEstimation"), images((1, 3, 64, 64)), None),
    "hf_detr_encoder": (hugging("yolos", VIT | dict(image_size=[64, 64], num_detection_tokens=5), PIXELS, ["last_hidden_state"]),
                        images((1, 3, 64, 64)), None),
    "hf_clip": (hugging("clip", dict(text_config=SMALL | dict(max_position_embeddings=32, eos_token_id=999), vision_config=VIT, projection_dim=32),
                        ["input_ids", "pixel_values"], ["logits_per_image"]), clip_inputs, None),
    "hf_siglip": (hugging("siglip", dict(text_config=SMALL | dict(max_position_embeddings=32), vision_config=VIT | dict(hidden_size=128)),
                          ["input_ids", "pixel_values"], ["logits_per_image"]), clip_inputs, None),
    "hf_whisper": (hugging("whisper", dict(vocab_size=1000, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                                           decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, num_mel_bins=16,
                                           max_source_positions=50, max_target_positions=32, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                                           decoder_start_token_id=1),
                           ["input_features", "decoder_input_ids"], ["last_hidden_state"], use_cache=False),
                   lambda: [(torch.randn(1, 16, 100), torch.randint(5, 1000, (1, 8)))], None),
    "hf_wav2vec2": (hugging("wav2vec2", SMALL | dict(conv_dim=[32] * 7, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4), ["input_values"],
                            ["last_hidden_state"]), images((1, 4000)), None),
    "hf_ast": (hugging("audio-spectrogram-transformer", VIT | dict(max_length=64, num_mel_bins=32), ["input_values"], ["last_hidden_state"]),
               images((1, 64, 32)), None),
    # by hand
    "hand_text": (Text, ids((2, 15)), None),
    "hand_seq2seq": (Seq2Seq, lambda: [(torch.randn(2, 11, 64), torch.randn(2, 9, 64))], None),
    "hand_spectrum": (Spectrum, images((2, 512)), None),
}


class Fpn(nn.Module):
    def __init__(self):
        super().__init__()
        from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
        self.model = resnet_fpn_backbone(backbone_name="resnet18", weights=None)

    def forward(self, x):
        return tuple(self.model(x).values())
