"""Architectures of Hugging Face's transformers with tiny configurations, for `check_models.py --from models_of_transformers`.

A row names a kind of model and what its configuration needs beside SMALL, which shrinks whatever fields of those names a configuration has,
sub-configurations too. A model returns every tensor of its output, so that rows need no names of fields.
MODELS: name → (build, input sets, dynamic shapes), as MODELS of check_models.py has it.
"""
import torch
from torch import nn
from torch.export import Dim
from torch.utils import _pytree as pytree

BATCH = Dim("batch", min=1, max=32)
LENGTH = Dim("length", min=2, max=128)

# Set where a configuration has a number of this name.
SMALL = dict(
    vocab_size=1000, type_vocab_size=2, pad_token_id=0, bos_token_id=1, eos_token_id=2, sep_token_id=2, cls_token_id=1, decoder_start_token_id=1,
    hidden_size=64, d_model=64, n_embd=64, dim=64, embedding_size=64, word_embed_proj_dim=64, projection_dim=32, hidden_dim=128, embed_dim=64,
    num_hidden_layers=2, n_layer=2, n_layers=2, num_layers=2, encoder_layers=2, decoder_layers=2, num_encoder_layers=2, num_decoder_layers=2,
    num_attention_heads=4, n_head=4, n_heads=4, num_heads=4, num_key_value_heads=2, encoder_attention_heads=4, decoder_attention_heads=4,
    intermediate_size=128, ffn_dim=128, d_ff=128, d_inner=128, d_kv=16, encoder_ffn_dim=128, decoder_ffn_dim=128, head_dim=16,
    max_position_embeddings=128, n_positions=128, max_source_positions=64, max_target_positions=64, sliding_window=8, attention_window_size=8,
    num_experts=4, num_local_experts=4, n_routed_experts=4, moe_num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
    shared_expert_intermediate_size=32, expert_ffn_hidden_size=32, n_group=1, topk_group=1,
    q_lora_rank=32, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=16, v_head_dim=16, index_head_dim=16, index_n_heads=16, index_topk=8,
    image_size=64, patch_size=16, num_mel_bins=16)


class Tensors(nn.Module):
    """A model as a function of positional tensors that returns all tensors of its output."""

    def __init__(self, model, names, fixed):
        super().__init__()
        self.model, self.names, self.fixed = model, names, fixed

    def forward(self, *tensors):
        out = self.model(**dict(zip(self.names, tensors)), **self.fixed)
        if hasattr(out, "to_tuple"):
            out = out.to_tuple()
        return tuple(t for t in pytree.tree_leaves(out) if isinstance(t, torch.Tensor))


def shrunk(config, given):
    """The arguments that make a small configuration of this class: SMALL where it applies, then what the row gives."""
    fields, parts = config.to_dict(), {}
    for name, value in SMALL.items():
        had = fields.get(name)
        if isinstance(had, int) and not isinstance(had, bool):
            parts[name] = value
        elif isinstance(had, (list, tuple)) and name in ("image_size", "patch_size") and len(had) == 2:
            parts[name] = [value, value]
    for name in getattr(config, "sub_configs", {}):
        part = getattr(config, name, None)
        if part is not None:
            own = given.get(name, {})
            parts[name] = own if "model_type" in own else shrunk(part, own) | {"model_type": part.model_type}
    return parts | {k: v for k, v in given.items() if k not in parts or not isinstance(v, dict)}


def unlike(model):
    """Fresh weights that are all alike (routers of 0, biases, norms) would tie experts and hide mistakes."""
    with torch.no_grad():
        for p in model.parameters():
            if p.is_floating_point() and p.numel() > 1 and p.device.type != "meta" and bool((p == p.flatten()[0]).all()):
                p.add_(torch.randn_like(p) * 0.05)
    return model


def hugging(kind, given, names, model="AutoModel", fixed=None, eager=False):
    def build():
        import transformers
        settings = transformers.AutoConfig.for_model(kind, **shrunk(transformers.AutoConfig.for_model(kind), given))
        if eager:
            settings._attn_implementation = "eager"
        net = getattr(transformers, model)
        net = net.from_config(settings) if hasattr(net, "from_config") else net(settings)
        return Tensors(unlike(net.float()), names, fixed or {})
    return build


def ids(*sizes, vocabulary=1000):
    return lambda: [(torch.randint(5, vocabulary, s),) for s in sizes]


def floats(*sizes):
    """One input set; a size is a shape."""
    return lambda: [tuple(torch.randn(*s) for s in sizes)]


TEXTS = ids((2, 17), (1, 64), (3, 33))
TEXT = (({0: BATCH, 1: LENGTH},),)


def text(kind, given, model, still, fixed):
    build = hugging(kind, given, ["input_ids"], model, fixed)
    return (build, ids((2, 17)), None) if still else (build, TEXTS, TEXT)


def decoder(kind, still=False, **given):
    return text(kind, given, "AutoModelForCausalLM", still, dict(use_cache=False))


def encoder(kind, still=False, model="AutoModel", **given):
    return text(kind, given, model, still, {})


def both(kind, model="AutoModelForSeq2SeqLM", names=("input_ids", "decoder_input_ids"), sizes=((2, 13), (2, 7)), **given):
    return (hugging(kind, given, list(names), model, dict(use_cache=False)), lambda: [tuple(torch.randint(5, 1000, s) for s in sizes)], None)


def image(kind, size=64, model="AutoModel", batch=1, **given):
    return (hugging(kind, given, ["pixel_values"], model), floats((batch, 3, size, size)), None)


def sound(kind, *size, names=("input_values",), model="AutoModel", **given):
    return (hugging(kind, given, list(names), model), floats(size), None)


def pair(kind, size=64, length=12, model="AutoModel", fixed=None, **given):
    return (hugging(kind, given, ["input_ids", "pixel_values"], model, fixed),
            lambda: [(torch.randint(5, 999, (2, length)), torch.randn(2, 3, size, size))], None)


# What a kind needs beside SMALL.
RESNET = dict(model_type="resnet", embedding_size=16, hidden_sizes=[16, 24, 32, 48], depths=[1, 1, 1, 1], layer_type="basic")
LAST, LEVELS = RESNET | dict(out_features=["stage4"]), RESNET | dict(out_features=["stage2", "stage3", "stage4"])
SWIN = dict(embed_dim=48, num_heads=[3, 3, 6, 6], patch_size=4, depths=[1, 1, 2, 1])
PARTS = dict(qk_nope_head_dim=16, qk_rope_head_dim=16, v_head_dim=16, num_key_value_heads=4, head_dim=16)

GIVEN = {
    "nemotron": dict(head_dim=16), "axk1": dict(num_key_value_heads=4), "axk2": dict(num_key_value_heads=4), "deepseek_v32": dict(num_key_value_heads=4), "deepseek_v2": dict(num_key_value_heads=4),
    "deepseek_v3": dict(num_key_value_heads=4), "codegen": dict(rotary_dim=8), "gptj": dict(rotary_dim=8), "dots1": dict(n_shared_experts=1),
    "ernie4_5_moe": dict(moe_k=2), "esm": dict(vocab_size=1000), "esmc": dict(num_key_value_heads=4), "xmod": dict(default_language="en_XX"), "lilt": dict(hidden_size=96),
    "flaubert": dict(emb_dim=64, n_words=1000), "xlm": dict(emb_dim=64, n_words=1000), "funnel": dict(block_sizes=[1, 1, 1], d_head=16, model="FunnelModel"),
    "luke": dict(entity_vocab_size=1000, entity_emb_size=64),
    "convnext": dict(patch_size=4), "convnextv2": dict(patch_size=4), "donut-swin": SWIN, "maskformer-swin": SWIN, "swin": SWIN | dict(window_size=4), "swinv2": SWIN | dict(window_size=4),
    "swin2sr": dict(embed_dim=48, num_heads=[4, 4], depths=[2, 2], window_size=4, patch_size=1, image_size=32),
    "efficientnet": dict(width_coefficient=0.25, depth_coefficient=0.25, hidden_dim=160),
    "hiera": dict(patch_size=[7, 7]), "mobilevitv2": dict(size=256), "sam2_vision_model": dict(backbone_config=dict(hidden_size=96)),
    "detr": dict(backbone_config=LAST), "conditional_detr": dict(backbone_config=LAST), "dab-detr": dict(backbone_config=LAST),
    "table-transformer": dict(backbone_config=LAST), "deformable_detr": dict(backbone_config=LEVELS),
    "mask2former": dict(backbone_config=dict(model_type="swin", image_size=64, window_size=4, out_features=["stage1", "stage2", "stage3", "stage4"]) | SWIN),
    "maskformer": dict(backbone_config=dict(model_type="swin", image_size=64, window_size=4, out_features=["stage1", "stage2", "stage3", "stage4"]) | SWIN),
}

# PyTorch exports these only with fixed sizes.
STILL = """bailing_hybrid bamba cpmant deepseek_v4 axk2 canine mobilebert falcon_h1 granitemoehybrid mamba2 nemotron_h zamba2 qwen3_next kimi_linear olmo_hybrid lfm2 minimax reformer qwen3_5_text qwen3_5_moe_text xlstm
    deepseek_v32 falcon_mamba hy_v4 jamba lara_mini mamba openai-gpt qwen4_exp_text recurrent_gemma rwkv""".split()

DECODERS = """
    afmoe apertus arcee aria_text axk2 bailing_hybrid bert-generation biogpt bitnet bamba codegen cohere cohere2 cohere2_moe cpmant ctrl cwm deepseek_v3
    deepseek_v32 deepseek_v4 diffllama doge ernie4_5 exaone exaone4 exaone_moe falcon falcon_h1 falcon_mamba flex_olmo flint gemma gemma2 gemma3_text glm glm4
    glm4_moe glm4_moe_lite glm_moe_dsa gpt2 gpt_bigcode gpt_neo gpt_neox gpt_neox_japanese gpt_oss gptj granite granite_swa granitemoe granitemoe_swa
    granitemoehybrid granitemoeshared helium hrm_text hy_v3 hy_v4 hyperclovax internlm3 iquestcoder jais2 jamba jetmoe
    kolibri1 laguna lara_mini lfm2 lfm3 llama llama4_text mamba mellum mimo_v2_flash minicpm3 minimax minimax_m2 ministral ministral3 mistral mixtral
    modernbert-decoder mpt nanochat nemotron nemotron_h olmo olmo2 olmo3 olmo_hybrid olmoe openai-gpt opt persimmon phi phi3 phimoe qwen2 qwen2_moe
    qwen3 qwen3_5_text qwen3_5_moe_text qwen3_moe qwen3_next qwen4_exp_text recurrent_gemma rwkv sarvam_mla sarvam_moe seed_oss smollm3 solar_open
    stablelm starcoder2 trocr vaultgemma xglm xlstm youtu dory inkling_text inkling2_text minimax_m3_vl_text mistral_large4_text bloom""".split()

ENCODERS = """
    albert bert big_bird camembert canine clip_text_model convbert data2vec-text deberta deberta-v2 distilbert dpr electra embedding_gemma2_text ernie
    esmc eurobert flaubert fnet funnel gte ibert jina_embeddings_v3 layoutlm lilt luke markuplm megatron-bert mobilebert modernbert mpnet mra neomme
    nomic_bert nystromformer rembert roberta roberta-prelayernorm roc_bert roformer splinter squeezebert tapas tipsv2_text_model ultrabert xlm
    xlm-roberta xlm-roberta-xl xlnet xmod yoso""".split()

BOTH = """
    bart bigbird_pegasus blenderbot blenderbot-small fsmt led m2m_100 marian mbart mt5 mvp nllb-moe pegasus pegasus_x plbart prophetnet t5 t5gemma
    umt5""".split()

IMAGES = """
    aimv2_vision_model beit bit chinese_clip_vision_model clip_vision_model convnext convnextv2 cvt data2vec-vision deit dinov2 dinov2_with_registers
    dinov3_convnext dinov3_vit focalnet glpn hgnet_v2 hiera ijepa levit maskformer-swin mgp-str mlcd_vision_model mobilenet_v1 mobilenet_v2 mobilevit
    pixio poolformer pvt pvt_v2 radio regnet resnet sam_vision_model sam2_vision_model sapiens2 segformer siglip_vision_model swiftformer swin2sr
    swinv2 textnet tipsv2_vision_model vit vit_msn vitdet yolos mask2former maskformer conditional_detr dab-detr deformable_detr detr table-transformer""".split()

MODELS = {f"decoder_{k}": decoder(k, k in STILL, **GIVEN.get(k, {})) for k in DECODERS}
MODELS |= {f"encoder_{k}": encoder(k, k in STILL, **GIVEN.get(k, {})) for k in ENCODERS}
MODELS |= {f"both_{k}": both(k, **GIVEN.get(k, {})) for k in BOTH}
MODELS |= {f"image_{k}": image(k, **GIVEN.get(k, {})) for k in IMAGES}

SPEECH = dict(conv_dim=[32] * 7, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, mask_time_prob=0.0)
MODELS |= {
    # sound
    "sound_wav2vec2": sound("wav2vec2", 1, 4000, **SPEECH),
    "sound_hubert": sound("hubert", 1, 4000, **SPEECH),
    "sound_wavlm": sound("wavlm", 1, 4000, **SPEECH),
    "sound_unispeech": sound("unispeech", 1, 4000, **SPEECH),
    "sound_unispeech_sat": sound("unispeech-sat", 1, 4000, **SPEECH),
    "sound_sew": sound("sew", 1, 4000, **SPEECH | dict(conv_dim=[32] * 13)),
    "sound_sew_d": sound("sew-d", 1, 4000, **SPEECH | dict(conv_dim=[32] * 13)),
    "sound_data2vec": sound("data2vec-audio", 1, 4000, **SPEECH),
    "sound_wav2vec2_conformer": sound("wav2vec2-conformer", 1, 4000, **SPEECH),
    "sound_wav2vec2_conformer_rotary": sound("wav2vec2-conformer", 1, 4000, **SPEECH | dict(position_embeddings_type="rotary")),
    "sound_wav2vec2_bert": sound("wav2vec2-bert", 1, 50, 160, names=["input_features"]),
    "sound_ast": sound("audio-spectrogram-transformer", 1, 64, 32, max_length=64, num_mel_bins=32),
    "sound_whisper_encoder": sound("whisper", 1, 16, 128, names=["input_features"], model="WhisperForAudioClassification", max_source_positions=64),
    "sound_encodec": sound("encodec", 1, 1, 1600, num_filters=8, hidden_size=32, codebook_size=64, upsampling_ratios=[4, 2]),
    "sound_dac": sound("dac", 1, 1, 2048, encoder_hidden_size=16, decoder_hidden_size=64, downsampling_ratios=[2, 4], upsampling_ratios=[4, 2], codebook_size=32,
                       n_codebooks=2),
    "sound_univnet": (hugging("univnet", dict(model_hidden_channels=8), ["input_features", "noise_sequence"]), floats((1, 20, 16), (1, 20, 64)), None),
    "sound_parakeet": sound("parakeet_encoder", 1, 64, 16, names=["input_features"]),
    "sound_lasr": sound("lasr_encoder", 1, 64, 16, names=["input_features"]),
    "sound_moonshine": (hugging("moonshine", {}, ["input_values", "decoder_input_ids"], fixed=dict(use_cache=False)),
                        lambda: [(torch.randn(1, 4000), torch.randint(5, 999, (1, 7)))], None),
    "sound_speech_to_text": (hugging("speech_to_text", dict(input_feat_per_channel=16, conv_channels=32), ["input_features", "decoder_input_ids"], fixed=dict(use_cache=False)),
                             lambda: [(torch.randn(1, 64, 16), torch.randint(5, 999, (1, 7)))], None),
    "sound_speecht5": (hugging("speecht5", SPEECH, ["input_values", "decoder_input_ids"], "SpeechT5ForSpeechToText", fixed=dict(use_cache=False)),
                       lambda: [(torch.randn(1, 4000), torch.randint(5, 999, (1, 7)))], None),
    "sound_vits": (hugging("vits", dict(noise_scale=0.0, noise_scale_duration=0.0, flow_size=32, upsample_initial_channel=32), ["input_ids"]), ids((1, 9), vocabulary=38), None),
    "sound_fastspeech2": (hugging("fastspeech2_conformer", {}, ["input_ids"]), ids((1, 9), vocabulary=70), None),
    "sound_xcodec": sound("xcodec", 1, 1, 6400),
    "sound_qwen2_audio_encoder": sound("qwen2_audio_encoder", 1, 16, 128, names=["input_features"], max_source_positions=64),
    "sound_voxtral_encoder": sound("voxtral_encoder", 1, 16, 128, names=["input_features"], max_source_positions=64),
    "sound_seamless": (hugging("seamless_m4t", {}, ["input_ids", "decoder_input_ids"], "SeamlessM4TForTextToText", fixed=dict(use_cache=False)),
                       lambda: [(torch.randint(5, 999, (1, 9)), torch.randint(5, 999, (1, 7)))], None),
    "sound_seamless_v2": (hugging("seamless_m4t_v2", {}, ["input_ids", "decoder_input_ids"], "SeamlessM4Tv2ForTextToText", fixed=dict(use_cache=False)),
                          lambda: [(torch.randint(5, 999, (1, 9)), torch.randint(5, 999, (1, 7)))], None),
    "sound_pe_audio": sound("pe_audio_encoder", 1, 1, 4000),
    # words and images
    "pair_clip": pair("clip"), "pair_siglip": pair("siglip"), "pair_altclip": pair("altclip"), "pair_chinese_clip": pair("chinese_clip"),
    "pair_blip": pair("blip"),
    "pair_groupvit": pair("groupvit", size=64, vision_config=dict(num_group_tokens=[8, 4, 0], depths=[1, 1, 1], num_output_groups=[8, 4, 0])),
    "pair_owlvit": pair("owlvit"), "pair_owlv2": pair("owlv2"), "pair_clipseg": pair("clipseg", model="CLIPSegModel"), "pair_metaclip_2": pair("metaclip_2"),
    "pair_flava": pair("flava"), "pair_git": pair("git", fixed=dict(use_cache=False)), "pair_vilt": pair("vilt"), "pair_bridgetower": pair("bridgetower"),
    "pair_tipsv2": pair("tipsv2"),
    "pair_lxmert": (hugging("lxmert", {}, ["input_ids", "visual_feats", "visual_pos"]), lambda: [(torch.randint(5, 999, (1, 12)), torch.randn(1, 5, 2048), torch.rand(1, 5, 4))], None),
    "pair_visual_bert": (hugging("visual_bert", dict(visual_embedding_dim=64), ["input_ids", "visual_embeds"]), lambda: [(torch.randint(5, 999, (1, 12)), torch.randn(1, 5, 64))], None),
    # films
    "film_timesformer": (hugging("timesformer", dict(num_frames=4), ["pixel_values"]), floats((1, 4, 3, 64, 64)), None),
    "film_videomae": (hugging("videomae", dict(num_frames=4), ["pixel_values"]), floats((1, 4, 3, 64, 64)), None),
    "film_vivit": (hugging("vivit", dict(num_frames=4, tubelet_size=[2, 16, 16]), ["pixel_values"]), floats((1, 4, 3, 64, 64)), None),
    "film_vjepa2": (hugging("vjepa2", dict(crop_size=64, frames_per_clip=4, pred_hidden_size=64, pred_num_attention_heads=4, pred_num_hidden_layers=2), ["pixel_values_videos"]),
                    floats((1, 4, 3, 64, 64)), None),
    # dense pictures
    "dense_dpt": image("dpt", 64, "DPTForDepthEstimation", backbone_out_indices=[0, 1, 2, 3], num_hidden_layers=4, neck_hidden_sizes=[16, 32, 48, 64], fusion_hidden_size=32, is_hybrid=False),
    "dense_segformer": image("segformer", 64, "SegformerForSemanticSegmentation", decoder_hidden_size=32, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1]),
    "dense_beit": image("beit", 64, "BeitForSemanticSegmentation", num_hidden_layers=4, out_indices=[1, 2, 3, 4]),
    "dense_mobilevit": image("mobilevit", 64, "MobileViTForSemanticSegmentation"),
    "dense_upernet": image("upernet", 64, "UperNetForSemanticSegmentation", hidden_size=32, auxiliary_in_channels=32, auxiliary_channels=16, backbone_config=RESNET | dict(out_features=["stage1", "stage2", "stage3", "stage4"])),
    "dense_sam": (hugging("sam", dict(vision_config=dict(output_channels=32, global_attn_indexes=[1], window_size=2, num_pos_feats=16), prompt_encoder_config=dict(hidden_size=32, mask_input_channels=8),
                          mask_decoder_config=dict(hidden_size=32, iou_head_hidden_dim=32, mlp_dim=64)), ["pixel_values", "input_points"], "SamModel"),
                  lambda: [(torch.randn(1, 3, 64, 64), torch.rand(1, 1, 2, 2) * 64)], None),
    "dense_superpoint": image("superpoint", 64, "SuperPointForKeypointDetection"),
    "dense_imagegpt": (hugging("imagegpt", dict(vocab_size=513), ["input_ids"], fixed=dict(use_cache=False)), ids((1, 20), vocabulary=500), None),
    # series and others
    "series_patchtst": (hugging("patchtst", dict(num_input_channels=3, context_length=64, prediction_length=8, patch_length=8, patch_stride=8), ["past_values"], "PatchTSTForPrediction"), floats((2, 64, 3)), None),
    "series_patchtsmixer": (hugging("patchtsmixer", dict(num_input_channels=3, context_length=64, prediction_length=8, patch_length=8, patch_stride=8), ["past_values"], "PatchTSMixerForPrediction"),
                            floats((2, 64, 3)), None),
    "series_decision": (hugging("decision_transformer", dict(hidden_size=64), ["states", "actions", "rewards", "returns_to_go", "timesteps"]),
                        lambda: [(torch.randn(1, 6, 17), torch.randn(1, 6, 4), torch.randn(1, 6, 1), torch.randn(1, 6, 1), torch.arange(6)[None])], None),
    "series_perceiver": (hugging("perceiver", dict(num_latents=8, d_latents=64, d_model=32, num_blocks=1, num_self_attends_per_block=2, num_self_attention_heads=4, num_cross_attention_heads=4), ["inputs"]),
                         floats((1, 20, 32)), None),
}
for k in ("time_series_transformer",):
    MODELS[f"series_{k}"] = (hugging(k, dict(prediction_length=6, context_length=12, lags_sequence=[1, 2, 3], num_time_features=2, d_model=32),
                                     ["past_values", "past_time_features", "past_observed_mask", "future_values", "future_time_features"], fixed=dict(use_cache=False)),
                             lambda: [(torch.randn(2, 15), torch.randn(2, 15, 2), torch.ones(2, 15), torch.randn(2, 6), torch.randn(2, 6, 2))], None)


class Step(nn.Module):
    """One step of a decoder whose keys and values so far are inputs: grown by the step, or tensors of a fixed length that it writes to."""

    def __init__(self, model, fixed_length):
        super().__init__()
        self.model, self.fixed_length = model, fixed_length

    def forward(self, tokens, *cache):
        from transformers import DynamicCache, StaticCache
        config, pairs = self.model.config, list(zip(cache[::2], cache[1::2]))
        if self.fixed_length:
            past = StaticCache(config=config, max_cache_len=pairs[0][0].shape[2])
            for layer, (k, v) in zip(past.layers, pairs):
                layer.lazy_initialization(k, v)
                layer.keys, layer.values = k.clone(), v.clone()
                layer.cumulative_length = torch.full((), self.fixed_length, dtype=torch.int64)
        else:
            past = DynamicCache(pairs, config=config)
        out = self.model(input_ids=tokens, past_key_values=past, use_cache=True)
        return (out.logits, *(t for layer in past.layers for t in (layer.keys, layer.values)))


def step(kind, fixed_length=0, heads=2, width=16, **given):
    def build():
        import transformers
        settings = transformers.AutoConfig.for_model(kind, **shrunk(transformers.AutoConfig.for_model(kind), given))
        return Step(unlike(transformers.AutoModelForCausalLM.from_config(settings).float()), fixed_length)

    def sets(*sizes):
        return lambda: [(torch.randint(5, 1000, (b, 1)), *(torch.randn(b, heads, n, width) for _ in range(4))) for b, n in sizes]
    if fixed_length:
        return build, sets((2, 32)), None
    past = Dim("past", min=1, max=64)
    return build, sets((2, 11), (1, 30), (3, 1)), ({0: BATCH}, tuple({0: BATCH, 2: past} for _ in range(4)))


MODELS |= {f"step_{k}": step(k) for k in "phi llama qwen3 olmo2 granite stablelm smollm3 glm4 mixtral phi3 starcoder2 helium".split()}
MODELS |= {f"step_fixed_{k}": step(k, 12) for k in "llama qwen3 gemma olmo2 cohere granite qwen3_moe".split()}
MODELS |= {f"step_{k}": step(k, heads=4) for k in ["gpt_neox"]}
