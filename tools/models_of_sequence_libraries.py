"""Models of libraries for language, sound and time series, for `check_models.py --from models_of_sequence_libraries`. Random weights, small sizes.

X_TRANSFORMERS: options of one transformer library. LANGUAGE: attention, recurrence, experts, memories and quantisers of text models. SOUND: models,
transforms, filters and losses of waves. SERIES: forecasters, spiking and liquid neurons, state spaces, linear attention written plainly, decoders.
Packages: for X_TRANSFORMERS x-transformers; for LANGUAGE those that its modules are named after; for SOUND torchaudio, asteroid, speechbrain, vocos,
bigvgan, nnAudio, demucs, openunmix, torchlibrosa, auraloss, torchcrepe, bs-roformer; for SERIES neuralforecast, gluonts, chronos-forecasting,
pytorch-tcn, TorchCRF, ncps, snntorch, norse, mambapy, flash-linear-attention, litgpt, torchtune.
MODELS: name → (build, input sets, dynamic shapes), as MODELS of check_models.py has it.
"""
import importlib
import sys
from unittest.mock import MagicMock

import torch
from torch import nn
from torch.export import Dim
from torch.utils import _pytree as pytree

from models_of_timm import awaken
from models_of_timm import images as several
from models_of_transformers import LENGTH, floats

BATCH = Dim("batch", min=1, max=16)


class Call(nn.Module):
    """A model (or a function) of positional tensors that returns all tensors of its output that are not empty, complex ones as pairs."""

    def __init__(self, model, call=None, **fixed):
        super().__init__()
        self.model, self.call, self.fixed = model, call or (lambda m, *xs, **options: m(*xs, **options)), fixed

    def forward(self, *tensors):
        out = self.call(self.model, *tensors, **self.fixed)
        out = [t for t in pytree.tree_leaves(out) if isinstance(t, torch.Tensor) and t.numel()]
        return tuple(torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in out)


def load(path):
    """The class or function of this dotted name."""
    if "torchaudio._extension" not in sys.modules:
        # torchaudio's compiled part is for one version of torch. Without it the filters are loops in Python.
        sys.modules["torchaudio._extension"] = MagicMock(_IS_TORCHAUDIO_EXT_AVAILABLE=False, fail_if_no_align=lambda function: function)
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def absent(*names):
    """Modules that a library imports but that its models do not use."""
    for name in names:
        sys.modules.setdefault(name, MagicMock())


def net(path, sets, *arguments, call=None, dynamic=None, fixed=None, **options):
    """The library's class PATH made with these arguments."""
    return (lambda: Call(awaken(load(path)(*arguments, **options)), call, **(fixed or {})), sets, dynamic)


def function(path, sets, dynamic=None, call=None, **options):
    """The library's function PATH of the tensors, with these options."""
    return (lambda: Call(load(path), call, **options), sets, dynamic)


def ids(*sizes):
    return lambda: [(torch.randint(1, 256, s),) for s in sizes]


TEXT = ids((2, 64))
TEXTS, ANY_TEXT = ids((2, 17), (1, 64), (3, 33)), (({0: BATCH, 1: LENGTH},),)
TOKENS = floats((2, 64, 32))
MANY_TOKENS, ANY_TOKENS = several((2, 17, 32), (1, 64, 32), (3, 33, 32)), (({0: BATCH, 1: LENGTH},),)


def x_transformer(causal=True, sets=TEXTS, dynamic=ANY_TEXT, wrapper=None, **layers):
    """A model of tokens with these options of its layers."""
    def build():
        x = importlib.import_module("x_transformers")
        stack = (x.Decoder if causal else x.Encoder)(dim=32, depth=2, heads=4, attn_dim_head=8, **layers)
        return Call(awaken(x.TransformerWrapper(num_tokens=256, max_seq_len=128, attn_layers=stack, **(wrapper or {}))))
    return (build, sets, dynamic)


def x_wrapped(wrapper, **options):
    """An encoder in another wrapper."""
    x = importlib.import_module("x_transformers")
    return Call(awaken(getattr(x, wrapper)(attn_layers=x.Encoder(dim=32, depth=2, heads=4, attn_dim_head=8, rotary_pos_emb=True), **options)))


X_TRANSFORMERS = {
    "x_plain": x_transformer(),
    "x_rotary_glu_rms": x_transformer(rotary_pos_emb=True, ff_glu=True, ff_swish=True, use_rmsnorm=True, attn_kv_heads=2),
    "x_xpos": x_transformer(rotary_xpos=True),
    "x_alibi_learned": x_transformer(sets=TEXT, dynamic=None, alibi_pos_bias=True, alibi_num_heads=2),
    "x_t5_bias": x_transformer(sets=TEXT, dynamic=None, causal=False, rel_pos_bias=True),
    "x_dynamic_bias": x_transformer(sets=TEXT, dynamic=None, dynamic_pos_bias=True, dynamic_pos_bias_log_distance=True),
    "x_topk_talking": x_transformer(sets=TEXT, dynamic=None, attn_sparse_topk=4, attn_pre_talking_heads=True, attn_post_talking_heads=True),
    "x_macaron_sandwich": x_transformer(macaron=True, sandwich_norm=True, residual_attn=True),
    "x_memory_tokens": x_transformer(attn_num_mem_kv=4, wrapper=dict(num_memory_tokens=5)),
    "x_gated": x_transformer(gate_residual=True, attn_gate_values=True, attn_on_attn=True),
    "x_qk_norm": x_transformer(attn_qk_norm=True, attn_qk_norm_dim_scale=True, use_scalenorm=True),
    "x_softclamp": x_transformer(attn_softclamp_logits=True, attn_head_scale=True, softclamp_output=True),
    "x_shift_hyper": x_transformer(sets=TEXT, dynamic=None, shift_tokens=1, num_residual_streams=3),
    "x_relu_squared": x_transformer(ff_relu_squared=True, attn_sigmoid=True),
    "x_laser_differential": x_transformer(attn_laser=True, integrate_layers=True),
    "x_selective": x_transformer(sets=TEXT, dynamic=None, attn_selective=True),
    "x_cope": x_transformer(attn_use_cope=True),
    "x_data_alibi": x_transformer(sets=TEXT, dynamic=None, attn_data_dependent_alibi=True),
    "x_polar": x_transformer(polar_pos_emb=True),
    "x_dynamic_tanh": x_transformer(use_dynamic_tanh=True),
    "x_value_residual": x_transformer(add_value_residual=True, attn_orthog_projected_values=True),
    "x_post_emb_norm": x_transformer(wrapper=dict(emb_frac_gradient=0.5, use_abs_pos_emb=False, post_emb_norm=True)),
    "x_latent_kv": x_transformer(attn_use_latent_q=True, attn_dim_latent_q=16, attn_use_latent_kv=True, attn_dim_latent_kv=16, attn_latent_rope_subheads=2,
                                 rotary_pos_emb=False),
    "x_hard": x_transformer(attn_hard=True, attn_cog_signed=False),
    "x_cog": x_transformer(attn_cog_signed=True),
    "x_gumbel_past": x_transformer(sets=TEXT, dynamic=None, attn_max_attend_past=8, attn_head_learned_sink=True),
    "x_orthog_residual": x_transformer(orthog_residual=True, attn_output_gate=True),
    "x_sigsoftmax": x_transformer(wrapper=dict(mixture_of_softmax=True, sigsoftmax_logits=True, attn_pool=True)),
    "x_interspersed": x_transformer(sets=TEXT, dynamic=None, wrapper=dict(num_memory_tokens=2, memory_tokens_interspersed_every=16)),
    "x_rel_proj": x_transformer(sets=TEXT, dynamic=None, attn_use_rel_proj_pos_bias=True, use_derf=True),
    "x_inverted": x_transformer(causal=False, attn_inverted_attention=True, use_simple_rmsnorm=True, par_ratio=2),
    "x_vision": (lambda: x_wrapped("ViTransformerWrapper", image_size=32, patch_size=8, num_classes=10, num_register_tokens=2), floats((1, 3, 32, 32)), None),
    "x_continuous": (lambda: x_wrapped("ContinuousTransformerWrapper", dim_in=32, dim_out=16, max_seq_len=128), MANY_TOKENS, ANY_TOKENS),
}


def language(path, sets=TEXT, **options):
    """A model of tokens in the arguments that most of these packages share."""
    return net(path, sets, num_tokens=256, dim=32, depth=2, **options)


LANGUAGE = {
    "performer": language("performer_pytorch.PerformerLM", max_seq_len=64, heads=4, dim_head=8, causal=False, nb_features=16, ff_glu=True, shift_tokens=True,
                          local_attn_heads=2, local_window_size=16),
    "linformer": language("linformer.LinformerLM", seq_len=64, k=16, heads=4, one_kv_head=True, share_kv=True),
    "local_attention": language("local_attention.LocalTransformer", ids((2, 60)), max_seq_len=64, heads=4, dim_head=8, local_attn_window_size=16,
                                use_xpos=True),
    "soft_moe_dynamic": net("soft_moe_pytorch.DynamicSlotsSoftMoE", TOKENS, 32, num_experts=4),
    "perceiver_io": net("perceiver_pytorch.PerceiverIO", lambda: [(torch.randn(2, 40, 32), torch.rand(2, 40) > 0.3, torch.randn(2, 9, 16))], depth=2, dim=32,
                        queries_dim=16, logits_dim=10, num_latents=8, latent_dim=24, latent_heads=2, cross_dim_head=8, latent_dim_head=8, decoder_ff=True),
    "ring_attention": net("ring_attention_pytorch.RingAttention", TOKENS, 32, dim_head=8, heads=4, causal=True, bucket_size=16, rotary_embed=True),
    "native_sparse": net("native_sparse_attention_pytorch.SparseAttention", floats((2, 31, 32)), dim=32, dim_head=8, heads=4, kv_heads=2, sliding_window_size=4,
                         compress_block_size=4, compress_block_sliding_stride=2, selection_block_size=4, num_selected_blocks=2, causal=True),
    "conformer": net("conformer.Conformer", MANY_TOKENS, 32, depth=2, dim_head=8, heads=4, conv_kernel_size=15, dynamic=ANY_TOKENS),
    "egnn": net("egnn_pytorch.EGNN", floats((2, 16, 32), (2, 16, 3)), dim=32, num_nearest_neighbors=4, fourier_features=2, norm_feats=True, norm_coors=True,
                soft_edges=True),
    "g_mlp": language("g_mlp_pytorch.gMLP", seq_len=64, causal=True, circulant_matrix=True, heads=2, attn_dim=16, shift_tokens=1),
    "h_transformer": language("h_transformer_1d.HTransformer1D", lambda: [(torch.randint(1, 256, (2, 60)), torch.rand(2, 60) > 0.2)], max_seq_len=64, heads=2,
                              dim_head=8, block_size=8, call=lambda m, x, k: m(x, mask=k)),
    "nystrom": net("nystrom_attention.Nystromformer", TOKENS, dim=32, dim_head=8, heads=4, depth=2, num_landmarks=16, pinv_iterations=4),
    "infini_transformer": language("infini_transformer_pytorch.InfiniTransformer", dim_head=8, heads=4, use_mem_delta_rule=True,
                                   fixed=dict(return_new_memories=True)),
    "min_gru": net("minGRU_pytorch.minGRU", MANY_TOKENS, 32, 1.5, dynamic=ANY_TOKENS),
    "min_lstm": net("minGRU_pytorch.minLSTM.minLSTM", TOKENS, 32),
    "product_keys": net("product_key_memory.PKM", TOKENS, dim=32, heads=2, num_keys=16, topk=4, dim_head=16),
    "peer": net("PEER_pytorch.PEER", TOKENS, dim=32, heads=2, num_experts=256, num_experts_per_head=4, pre_rmsnorm=True),
    "colt5": net("colt5_attention.ConditionalRoutedTransformerBlock", TOKENS, 32, num_heavy_attn_tokens_q=8, num_heavy_attn_tokens_kv=16, num_heavy_ff_tokens=8,
                 light_dim_head=8, light_heads=2, light_window_size=16, heavy_dim_head=8, heavy_heads=2),
    "invariant_point": net("invariant_point_attention.InvariantPointAttention",
                           lambda: [(torch.randn(1, 20, 16), torch.randn(1, 20, 20, 8), torch.linalg.qr(torch.randn(1, 20, 3, 3))[0], torch.randn(1, 20, 3),
                                     torch.rand(1, 20) > 0.2)], dim=16, heads=2, scalar_key_dim=4, scalar_value_dim=4, pairwise_repr_dim=8,
                           call=lambda m, s, p, r, t, k: m(s, p, rotations=r, translations=t, mask=k)),
    "sinkhorn": language("sinkhorn_transformer.SinkhornTransformerLM", max_seq_len=64, heads=4, bucket_size=16, non_permutative=True, causal=False,
                         n_local_attn_heads=2),
    "block_recurrent": language("block_recurrent_transformer_pytorch.BlockRecurrentTransformer", dim_head=8, heads=2, max_seq_len=64, block_width=16,
                                num_state_vectors=16, recurrent_layers=(1,)),
    "charformer": net("charformer_pytorch.GBST", TEXT, num_tokens=256, dim=32, max_block_size=4, downsample_factor=4),
    "compressive": language("compressive_transformer_pytorch.CompressiveTransformer", ids((1, 32)), seq_len=32, mem_len=32, cmem_len=8, heads=2,
                            mogrify_gru=True),
    "megabyte": net("MEGABYTE_pytorch.MEGABYTE", ids((1, 50)), num_tokens=256, dim=(32, 16), depth=(2, 1), max_seq_len=(16, 4), dim_head=8, heads=2),
    "gateloop": net("gateloop_transformer.SimpleGateLoopLayer", TOKENS, 32),
    "gateloop_heinsen": net("gateloop_transformer.SimpleGateLoopLayer", TOKENS, 32, use_heinsen=True),
    "taylor_attention": net("taylor_series_linear_attention.TaylorSeriesLinearAttn", TOKENS, 32, dim_head=8, heads=2, causal=False, gate_value_heads=True,
                            rotary_emb=True),
    "retnet_chunks": net("yet_another_retnet.retnet.RetNet", TEXT, num_tokens=256, d_model=32, nhead=2, num_layers=2, dim_feedforward=64,
                         call=lambda m, x: m.forward_chunkwise(x, 0, [None] * 2)),
    "mogrifier": net("mogrifier.Mogrifier", floats((2, 9, 32), (2, 9, 32)), 32, iters=5, factorize_k=8),
    "hierarchical": net("simple_hierarchical_transformer.HierarchicalTransformer", ids((1, 32)), num_tokens=256, dim=(32, 32), depth=2, seq_len=64, dim_head=8,
                        heads=2, hierarchies=(1, 2), window_sizes=(8, None)),
    "token_shift_gpt": language("token_shift_gpt.TokenShiftGPT", max_seq_len=64),
    "lambda_layer": net("lambda_networks.LambdaLayer", floats((1, 16, 12, 12)), 16, dim_k=8, r=5, heads=2, dim_out=16, dim_u=2),
    "feedback_transformer": language("feedback_transformer_pytorch.FeedbackTransformer", ids((1, 12)), mem_len=8, seq_len=4, heads=2, dim_head=8),
    "axial_embedding": net("axial_positional_embedding.AxialPositionalEmbedding", TOKENS, dim=32, axial_shape=(8, 8)),
    "ft_transformer": net("tab_transformer_pytorch.FTTransformer", lambda: [(torch.randint(0, 4, (3, 5)), torch.randn(3, 6))], categories=(10, 5, 6, 5, 8),
                          num_continuous=6, dim=16, depth=2, heads=2, dim_head=8),
    "recurrent_memory": language("recurrent_memory_transformer_pytorch.RecurrentMemoryTransformer", ids((1, 32)), num_memory_tokens=4, seq_len=32, dim_head=8,
                                 heads=2, use_xl_memories=True),
    "fsq": net("vector_quantize_pytorch.FSQ", TOKENS, [8, 5, 5, 5], dim=32, num_codebooks=2),
    "lfq": net("vector_quantize_pytorch.LFQ", floats((2, 16, 8, 8)), codebook_size=256, dim=16),
    "residual_lfq": net("vector_quantize_pytorch.ResidualLFQ", TOKENS, dim=32, codebook_size=64, num_quantizers=3),
    "latent_quantize": net("vector_quantize_pytorch.LatentQuantize", floats((2, 16, 8, 8)), levels=[5, 5, 8], dim=16),
    "sim_vq": net("vector_quantize_pytorch.SimVQ", TOKENS, dim=32, codebook_size=64),
}

WAVE = floats((2, 1, 4000))
MANY_WAVES, ANY_WAVES = several((2, 3200), (1, 2400), (3, 4000)), (({0: BATCH, 1: Dim("samples", min=1000, max=8000)},),)
SPEECH = dict(
    extractor_conv_layer_config=[(16, 10, 5), (16, 3, 2), (16, 2, 2)], extractor_conv_bias=False, encoder_embed_dim=32, encoder_projection_dropout=0.0,
    encoder_pos_conv_kernel=16, encoder_pos_conv_groups=4, encoder_num_layers=2, encoder_num_heads=4, encoder_attention_dropout=0.0,
    encoder_ff_interm_features=64, encoder_ff_interm_dropout=0.0, encoder_dropout=0.0, encoder_layer_drop=0.0, aux_num_out=20)
SNAKE = dict(
    num_mels=16, upsample_initial_channel=32, upsample_rates=[4, 4], upsample_kernel_sizes=[8, 8], resblock="1", resblock_kernel_sizes=[3, 7],
    resblock_dilation_sizes=[[1, 3, 5]] * 2, activation="snakebeta", snake_logscale=True, use_tanh_at_final=True, use_bias_at_final=True)


def audio(name, sets, *arguments, **options):
    return net("torchaudio.models." + name, sets, *arguments, **options)


def transform(name, sets=MANY_WAVES, *arguments, **options):
    """A transform of torchaudio, on waves of any length unless other inputs are given."""
    return net("torchaudio.transforms." + name, sets, *arguments, dynamic=ANY_WAVES if sets is MANY_WAVES else None, **options)


def effect(name, sets=floats((2, 24)), **options):
    """A function of torchaudio. Recursive filters are loops over the samples: few of them."""
    return function("torchaudio.functional." + name, sets, **options)


def speech(name, sets, *arguments, **options):
    return net("speechbrain." + name, sets, *arguments, **options)


def spectra():
    return [(torch.randn(2, 2, 17, 20, dtype=torch.complex64), torch.rand(2, 17, 20), torch.rand(2, 17, 20))]


def vocos():
    parts = [load("vocos.models.VocosBackbone")(input_channels=16, dim=32, intermediate_dim=64, num_layers=2, layer_scale_init_value=0.5),
             load("vocos.heads.ISTFTHead")(dim=32, n_fft=64, hop_length=16, padding="center")]
    return Call(nn.ModuleList(parts), lambda m, x: m[1](m[0](x)))


SOUND = {
    "conformer_rnnt": audio("Conformer", lambda: [(torch.randn(30, 2, 32), torch.arange(30) >= torch.tensor([[30], [20]]))], 32, 4, 64, 2, 7,
                            use_group_norm=True, convolution_first=True, call=lambda m, x, k: m.conformer_layers[1](m.conformer_layers[0](x, k), k)),
    "conv_tasnet": audio("ConvTasNet", WAVE, enc_num_feats=32, msk_num_feats=16, msk_num_hidden_feats=32, msk_num_layers=3, msk_num_stacks=2),
    "deep_speech": audio("DeepSpeech", floats((2, 20, 13)), 13, n_hidden=32, n_class=20),
    "emformer": audio("Emformer", lambda: [(torch.randn(1, 36, 32), torch.tensor([36]))], 32, 4, 64, 2, 8, left_context_length=8, right_context_length=4,
                      max_memory_size=2, tanh_on_mem=True),
    "wave_rnn": audio("WaveRNN", floats((2, 1, 64), (2, 1, 16, 12)), upsample_scales=[2, 2, 2], n_classes=32, hop_length=8, n_res_block=2, n_rnn=32, n_fc=32,
                      n_freq=16, n_hidden=16, n_output=16),
    "wav2vec2": audio("wav2vec2_model", MANY_WAVES, "group_norm", encoder_layer_norm_first=False, dynamic=ANY_WAVES, **SPEECH),
    "wavlm": audio("wavlm_model", floats((2, 2000)), "group_norm", encoder_layer_norm_first=False, encoder_num_buckets=32, encoder_max_distance=64, **SPEECH),
    "squim_objective": audio("squim_objective_model", floats((1, 4000)), feat_dim=32, win_len=64, d_model=32, nhead=4, hidden_dim=32, num_blocks=2,
                             rnn_type="LSTM", chunk_size=31),
    "spectrogram": transform("Spectrogram", n_fft=256, hop_length=100, power=None),
    "inverse_spectrogram": transform("InverseSpectrogram", lambda: [(torch.randn(2, 129, 30, dtype=torch.complex64),)], n_fft=256),
    "mel_spectrogram": transform("MelSpectrogram", n_fft=300, n_mels=20, norm="slaney", mel_scale="slaney", normalized=True),
    "mfcc": transform("MFCC", n_mfcc=13, melkwargs=dict(n_fft=256, n_mels=23, center=True)),
    "lfcc": transform("LFCC", n_lfcc=13, n_filter=20, speckwargs=dict(n_fft=256)),
    "griffin_lim": transform("GriffinLim", lambda: [(torch.rand(1, 65, 20),)], n_fft=128, n_iter=4, rand_init=False),
    "time_stretch": transform("TimeStretch", lambda: [(torch.randn(2, 65, 40, dtype=torch.complex64),)], n_freq=65, fixed_rate=1.3),
    "spectral_centroid": transform("SpectralCentroid", MANY_WAVES, 16000),
    "compute_deltas": transform("ComputeDeltas", floats((2, 20, 30)), mode="reflect"),
    "amplitude_to_db": transform("AmplitudeToDB", lambda: [(torch.rand(2, 20, 30),)], top_db=40.0),
    "mu_law": net("torch.nn.Identity", MANY_WAVES, dynamic=ANY_WAVES,
                  call=lambda m, x: load("torchaudio.functional.mu_law_decoding")(load("torchaudio.functional.mu_law_encoding")(x.tanh(), 256), 256)),
    "cmvn_window": transform("SlidingWindowCmn", floats((2, 50, 8)), cmn_window=20, norm_vars=True, center=True),
    "fade": transform("Fade", MANY_WAVES, 100, 200, fade_shape="logarithmic"),
    "mvdr_solution": transform("MVDR", spectra, solution="ref_channel", multi_mask=False, call=lambda m, x, a, b: m(x, a, b)),
    "mvdr_evd": transform("MVDR", spectra, solution="stv_evd", online=False, call=lambda m, x, a, b: m(x, a, b)),
    "mvdr_power": transform("MVDR", spectra, solution="stv_power", call=lambda m, x, a, b: m(x, a, b)),
    "mvdr_rtf": transform("RTFMVDR", lambda: [(torch.randn(2, 17, 20, dtype=torch.complex64), torch.randn(17, 2, dtype=torch.complex64),
                                               torch.eye(2).to(torch.complex64).repeat(17, 1, 1) * 2)], call=lambda m, x, r, p: m(x, r, p, 0)),
    "add_noise": transform("AddNoise", floats((2, 300), (2, 300), (2,))),
    "preemphasis": transform("Preemphasis"),
    "deemphasis": transform("Deemphasis", floats((2, 24))),
    "fft_convolve": transform("FFTConvolve", floats((2, 300), (2, 41)), mode="same"),
    "convolve": transform("Convolve", floats((2, 300), (2, 41)), mode="valid"),
    "lfilter": effect("lfilter", lambda: [(torch.rand(2, 24) - 0.5, torch.tensor([1.0, -0.4, 0.2]), torch.tensor([0.3, 0.2, 0.1]))]),
    "filtfilt": effect("filtfilt", lambda: [(torch.rand(2, 24) - 0.5, torch.tensor([1.0, -0.4, 0.2]), torch.tensor([0.3, 0.2, 0.1]))]),
    "equalizer": effect("equalizer_biquad", sample_rate=16000, center_freq=1000.0, gain=6.0),
    "band": effect("band_biquad", sample_rate=16000, central_freq=1000.0, noise=True),
    "loudness": effect("loudness", floats((1, 60)), sample_rate=100),
    "flanger": effect("flanger", lambda: [(torch.rand(2, 24) - 0.5,)], sample_rate=16000),
    "overdrive": effect("overdrive", lambda: [(torch.rand(2, 24) - 0.5,)]),
    "contrast": effect("contrast", MANY_WAVES, dynamic=ANY_WAVES),
    "dc_shift": effect("dcshift", lambda: [(torch.rand(2, 200) - 0.5,)], shift=0.3, limiter_gain=0.05),
    "detect_pitch": effect("detect_pitch_frequency", floats((1, 4000)), sample_rate=16000),
    "frechet": effect("frechet_distance", lambda: [(torch.randn(5), torch.cov(torch.randn(5, 20)), torch.randn(5), torch.cov(torch.randn(5, 20)))]),
    "kaldi_mfcc": function("torchaudio.compliance.kaldi.mfcc", floats((1, 2000)), vtln_warp=1.1, dither=0.0, subtract_mean=True),
    "sudormrf": net("asteroid.models.SuDORMRFNet", floats((1, 1600)), 2, bn_chan=16, num_blocks=2, upsampling_depth=3, n_filters=32),
    "ecapa_tdnn": speech("lobes.models.ECAPA_TDNN.ECAPA_TDNN", lambda: [(torch.randn(2, 40, 20), torch.tensor([1.0, 0.6]))], 20, lin_neurons=16,
                         channels=[32, 32, 32, 32, 48], attention_channels=16, se_channels=16),
    "speaker_resnet": speech("lobes.models.ResNet.ResNet", floats((2, 40, 20)), 20, channels=[8, 8, 16, 16], block_sizes=[1, 1, 1, 1], lin_neurons=16),
    "branchformer": speech("lobes.models.transformer.Branchformer.BranchformerEncoder", floats((2, 20, 32), (1, 39, 32)), 2, 32, 4, kernel_size=7,
                           csgu_linear_units=64, call=lambda m, x, p: m(x, pos_embs=p)),
    "transformer_asr": speech("lobes.models.transformer.TransformerASR.TransformerASR",
                              lambda: [(torch.randn(2, 20, 16), torch.randint(1, 40, (2, 9)), torch.tensor([1.0, 0.6]))], 40, 16, 32, 4, 1, 1, 64,
                              encoder_module="conformer", attention_type="RelPosMHAXL", kernel_size=7, normalize_before=True),
    "speech_fbank": speech("lobes.features.Fbank", MANY_WAVES, dynamic=ANY_WAVES, n_mels=20, deltas=True, context=True),
    "speech_gabor": speech("nnet.CNN.GaborConv1d", floats((2, 400, 1)), 8, 41, stride=4, input_shape=(None, None, 1), padding="same"),
    "speech_sinc": speech("nnet.CNN.SincConv", floats((2, 400)), input_shape=(2, 400), out_channels=8, kernel_size=31),
    "speech_leaf": speech("lobes.features.Leaf", floats((2, 1600)), 8, input_shape=(2, 1600), window_len=5.0, window_stride=2.0),
    "complex_lstm": speech("nnet.complex_networks.c_RNN.CLSTM", floats((2, 9, 16)), 8, (2, 9, 16), bidirectional=True),
    "quaternion_lstm": speech("nnet.quaternion_networks.q_RNN.QLSTM", floats((2, 9, 16)), 4, (2, 9, 16), bidirectional=True),
    "li_gru": speech("nnet.RNN.LiGRU", floats((2, 9, 16)), 8, (2, 9, 16), bidirectional=True),
    "multi_mic_covariance": speech("processing.multi_mic.Covariance", floats((2, 10, 33, 2, 3))),
    "vocos_istft_center": (vocos, floats((2, 16, 20)), None),
    "bigvgan": (lambda: Call(load("bigvgan.bigvgan.BigVGAN")(load("bigvgan.env.AttrDict")(SNAKE))), floats((1, 16, 12)), None),
    "cqt_octaves": net("nnAudio.features.CQT2010v2", floats((1, 8000)), sr=8000, hop_length=256, fmin=60, n_bins=36, verbose=False),
    "vqt": net("nnAudio.features.VQT", floats((1, 8000)), sr=8000, hop_length=256, fmin=60, n_bins=36, gamma=5, verbose=False),
    "stft_phase": net("nnAudio.features.STFT", floats((1, 4000)), n_fft=256, hop_length=100, output_format="Phase", freq_scale="log", sr=8000, fmax=3000,
                      verbose=False),
    "demucs": net("demucs.demucs.Demucs", floats((1, 2, 4000)), ["a", "b"], channels=8, depth=3, lstm_layers=1, samplerate=8000),
    "open_unmix": net("openunmix.model.OpenUnmix", lambda: [(torch.rand(2, 2, 65, 12),)], nb_bins=65, hidden_size=32, max_bin=50),
    "torchlibrosa_istft": net("torchlibrosa.stft.ISTFT", floats((1, 1, 20, 65), (1, 1, 20, 65)), n_fft=128, hop_length=32, call=lambda m, a, b: m(a, b, 600)),
    "spectral_loss": net("auraloss.freq.MultiResolutionSTFTLoss", floats((1, 1, 3000), (1, 1, 3000)), w_phs=0.3, scale="mel", n_bins=32, sample_rate=8000,
                         w_lin_mag=1.0),
    "si_sdr": net("auraloss.time.SISDRLoss", floats((2, 1, 300), (2, 1, 300))),
    "permutation_loss": net("asteroid.losses.PITLossWrapper", floats((2, 3, 300), (2, 3, 300)), lambda a, b: load("asteroid.losses.pairwise_neg_sisdr")(a, b),
                            pit_from="pw_mtx", fixed=dict(return_est=True)),
    "crepe": (lambda: Call(load("torchcrepe.Crepe")("tiny")), floats((2, 1024)), None),
    "bs_roformer": net("bs_roformer.BSRoformer", floats((1, 4000)), dim=16, depth=1, time_transformer_depth=1, freq_transformer_depth=1, dim_head=8, heads=2,
                       stft_n_fft=128, stft_hop_length=64, stft_win_length=128, freqs_per_bands=(5, 10, 20, 30)),
    "mel_band_roformer": net("bs_roformer.MelBandRoformer", floats((1, 4000)), dim=16, depth=1, time_transformer_depth=1, freq_transformer_depth=1, dim_head=8,
                             heads=2, num_bands=6, stft_n_fft=128, stft_hop_length=64, stft_win_length=128, sample_rate=8000),
}


def neural(name, variates=0, exogenous=False, **options):
    """A model of neuralforecast: 24 steps in, 8 out. `variates`: it looks at that many series at once; `exogenous`: with columns known in the future."""
    def build():
        absent("ray", "ray.air", "ray.tune", "ray.tune.integration", "ray.tune.integration.pytorch_lightning", "ray.tune.search",
               "ray.tune.search.basic_variant", "optuna")
        given = dict(n_series=variates) if variates else {}
        if exogenous:
            given |= dict(futr_exog_list=["a", "b"], hist_exog_list=["c"], stat_exog_list=["d"])
        return Call(awaken(load("neuralforecast.models." + name)(h=8, input_size=24, **given, **options)), window)
    if not exogenous:
        return (build, floats((2, 24, max(variates, 1))), None)
    return (build, floats((2, 24, 1), (2, 32, 2), (2, 24, 3), (2, 1)), None)


def window(model, y, future=None, history=None, static=None):
    past = history[..., :1] if history is not None else None
    return model({"insample_y": y, "insample_mask": torch.ones_like(y), "futr_exog": future, "hist_exog": past, "stat_exog": static})


def spike(m, x):
    """A spiking cell over the steps of time."""
    state, out = (), []
    for step in x:
        emitted, *state = m(step, *state)
        out.append(emitted)
    return torch.stack(out), state


def liquid(name, **options):
    return lambda: Call(load("ncps.torch." + name)(8, load("ncps.wirings.AutoNCP")(12, 3, seed=1), **options))


def fla(name, sets, **options):
    """One of the plain references of flash-linear-attention."""
    return function("fla.ops." + name, sets, **options)


def heads(kinds, swapped=False):
    """Inputs of linear attention by letters: k a tensor of all heads' features, g their negative logarithms of decay, d such a decay for a head,
    b a rate for a head, n keys of unit length. `swapped`: heads come before steps."""
    full = (1, 2, 32) if swapped else (1, 32, 2)
    make = {"k": lambda: torch.randn(*full, 8), "g": lambda: -torch.rand(*full, 8), "d": lambda: -torch.rand(*full),
            "b": lambda: torch.rand(*full), "n": lambda: nn.functional.normalize(torch.randn(*full, 8), dim=-1)}
    return lambda: [tuple(make[k]() for k in kinds)]


def generator(name, block_size=128, **options):
    """A model of litgpt."""
    return awaken(load("litgpt.GPT")(load("litgpt.Config").from_name(name, n_layer=2, n_embd=32, n_head=4, vocab_size=256, padded_vocab_size=256,
                                                                     block_size=block_size, **options)))


def litgpt(name, sets=TEXTS, dynamic=ANY_TEXT, **options):
    return (lambda: Call(generator(name, **options)), sets, dynamic)


def litgpt_cached():
    model = generator("pythia-14m", block_size=32)
    model.set_kv_cache(batch_size=1, dtype=torch.float32)
    return Call(model)


def tune(path, **options):
    """A model of torchtune."""
    def build():
        absent("torchao.dtypes.nf4tensor")
        return Call(awaken(load("torchtune.models." + path)(**options)))
    return (build, TEXTS, ANY_TEXT)


def mamba(**options):
    config = load("mambapy.mamba.MambaConfig")(d_model=32, n_layers=2, d_state=8, **options)
    return Call(awaken(load("mambapy.mamba.Mamba")(config)))


def chronos_2():
    settings = load("chronos.chronos2.config.Chronos2CoreConfig")(d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)
    settings.chronos_config = dict(context_length=64, output_patch_size=8, input_patch_size=8, input_patch_stride=8, quantiles=[0.1, 0.5, 0.9],
                                   use_reg_token=True, use_arcsinh=True)
    return Call(awaken(load("chronos.chronos2.Chronos2Model")(settings)), lambda m, x, g: m(x, group_ids=g, num_output_patches=2).quantile_preds)


CELLS, MIXED = dict(encoder_hidden_size=16, decoder_hidden_size=16), dict(hidden_size=32, conv_hidden_size=16)
FORECASTERS = {
    "RNN": CELLS, "LSTM": CELLS, "TCN": CELLS, "xLSTM": CELLS, "DLinear": dict(moving_avg_window=5), "DeepNPTS": dict(hidden_size=16),
    "KAN": dict(hidden_size=16), "NHITS": dict(mlp_units=3 * [[32, 32]], exogenous=True), "NBEATSx": dict(mlp_units=3 * [[32, 32]], exogenous=True),
    "TFT": dict(hidden_size=16, exogenous=True), "VanillaTransformer": MIXED, "Autoformer": MIXED, "FEDformer": MIXED | dict(modes=6, n_head=8),
    "PatchTST": dict(hidden_size=16, patch_len=8, stride=4, encoder_layers=2), "BiTCN": dict(hidden_size=16, exogenous=True),
    "TiDE": dict(hidden_size=32, decoder_output_dim=8, exogenous=True), "StemGNN": dict(variates=3), "TSMixer": dict(variates=3),
    "iTransformer": dict(variates=3, hidden_size=32, d_ff=32), "SOFTS": dict(variates=3, hidden_size=32, d_core=16, d_ff=32),
    "TimeMixer": dict(variates=3, d_model=16, d_ff=16), "RMoK": dict(variates=3), "XLinear": dict(variates=3, hidden_size=16),
    "TimeXer": dict(variates=3, patch_len=8, hidden_size=16, d_ff=16),
}

SERIES = {"nf_" + name.lower(): neural(name, **options) for name, options in FORECASTERS.items()} | {
    "gluon_tft": net("gluonts.torch.model.tft.module.TemporalFusionTransformerModel",
                     lambda: [(torch.randn(2, 24), torch.ones(2, 24), torch.randn(2, 1), torch.randint(0, 3, (2, 1)), torch.randn(2, 32, 2))],
                     context_length=24, prediction_length=8, d_feat_static_real=[1], c_feat_static_cat=[3], d_feat_dynamic_real=[2], d_hidden=16),
    "gluon_lags": net("gluonts.torch.model.lag_tst.module.LagTSTModel", lambda: [(torch.randn(2, 31), (torch.rand(2, 31) > 0.2).float())], prediction_length=8,
                      context_length=24, freq="D", d_model=16, nhead=2, dim_feedforward=32, dropout=0.0, activation="relu", norm_first=False,
                      num_encoder_layers=2, scaling="mean", lags_seq=[1, 2, 7]),
    "piecewise_linear": function("gluonts.torch.distributions.piecewise_linear.PiecewiseLinear",
                                 lambda: [(torch.randn(4), torch.rand(4, 6) + 0.1, torch.rand(4, 6).softmax(-1), torch.rand(4))],
                                 call=lambda f, g, s, k, x: (f(g, s, k).crps(x), f(g, s, k).cdf(x), f(g, s, k).quantile(x))),
    "quantile_spline": function("gluonts.torch.distributions.isqf.ISQF",
                                lambda: [(torch.rand(4, 3, 5), torch.rand(4, 3, 5), torch.rand(4), torch.rand(4), torch.randn(4, 4).cumsum(-1),
                                          torch.tensor([0.1, 0.4, 0.6, 0.9]).expand(4, 4), torch.randn(4))],
                                call=lambda f, a, b, c, d, q, t, x: f(a, b, c, d, q, t, tol=1e-4).cdf(x)),
    "chronos_2": (chronos_2, lambda: [(torch.randn(3, 60), torch.tensor([0, 0, 1]))], None),
    "tcn_gated": net("pytorch_tcn.TCN", several((2, 8, 20), (1, 8, 33)), 8, [16, 16], kernel_size=3, use_skip_connections=True, use_gate=True,
                     dynamic=(({0: BATCH, 2: LENGTH},),)),
    "crf_scores": net("TorchCRF.CRF", lambda: [(torch.randn(2, 7, 5), torch.randint(0, 5, (2, 7)), torch.arange(7) < torch.tensor([[7], [3]]))], 5,
                      use_gpu=False),
    "cfc": (liquid("CfC"), floats((2, 9, 8)), None),
    "ltc": (liquid("LTC", mixed_memory=True), floats((2, 5, 8)), None),
    "spiking_lstm": (lambda: Call(load("snntorch.SLSTM")(16, 8), spike), floats((5, 3, 16)), None),
    "norse_lif": net("norse.torch.LIF", floats((6, 2, 8))),
    "norse_lsnn": net("norse.torch.LSNNRecurrent", floats((6, 2, 8)), 8, 12),
    "norse_adex": net("norse.torch.LIFAdExRecurrent", floats((6, 2, 8)), 8, 12),
    "mamba": (mamba, floats((2, 20, 32)), None),
    "mamba_steps": (lambda: mamba(pscan=False, inner_layernorms=True), floats((2, 12, 32)), None),
    "fla_gla": fla("gla.naive.naive_recurrent_gla", heads("kkkg")),
    "fla_simple_gla": fla("simple_gla.naive.naive_chunk_simple_gla", heads("kkkd"), chunk_size=16),
    "fla_delta": fla("delta_rule.naive.delta_rule_chunkwise", heads("nnkb", swapped=True), chunk_size=16),
    "fla_gated_delta": fla("gated_delta_rule.naive.naive_chunk_gated_delta_rule", heads("nnkdb"), chunk_size=16,
                           call=lambda f, q, k, v, g, b, **o: f(q, k, v, g=g, beta=b, **o)),
    "fla_kda": fla("kda.naive.naive_chunk_kda", heads("nnkgb"), chunk_size=16),
    "fla_dplr": fla("generalized_delta_rule.dplr.naive.dplr_chunkwise", heads("kkknng", swapped=True), chunk_size=16),
    "fla_retention": fla("retention.naive.naive_retention", heads("kkk", swapped=True)),
    "fla_based": fla("based.naive.naive_chunk_based", heads("kkk", swapped=True), chunk_size=16),
    "fla_rebased": fla("rebased.naive.naive_parallel_rebased", heads("kkk", swapped=True)),
    "fla_abc": fla("abc.naive.naive_cumsum_abc", heads("kkkk", swapped=True)),
    "fla_gsa": fla("gsa.naive.naive_recurrent_gsa", heads("kkkkg")),
    "fla_forgetting": fla("forgetting_attn.naive.naive_forgetting_attn", heads("kkkd")),
    "fla_stickbreaking": fla("stickbreaking_attn.naive.naive_stickbreaking_attn", heads("kkk")),
    "fla_path": fla("path_attn.naive.naive_path_attn", heads("kkknbd"), scale=0.3, chunk_size=16),
    "fla_log_linear": fla("log_linear_attn.naive.naive_log_linear_attn",
                          lambda: [(torch.randn(1, 32, 2, 8), torch.randn(1, 32, 2, 8), torch.randn(1, 32, 2, 8), -torch.rand(1, 32, 2),
                                    torch.rand(1, 32, 2, 6))]),
    "fla_deltaformer": fla("deltaformer.naive.naive_deltaformer_attn", heads("kkkb")),
    "fla_lightning_index": fla("dsa.naive.naive_dsa_indexer", lambda: [(torch.randn(1, 32, 2, 8), torch.randn(1, 32, 8), torch.randn(1, 32, 2))], topk=4),
    "fla_sinkhorn": fla("utils.sinkhorn.naive.naive_sinkhorn", floats((2, 5, 5))),
    "fla_parallax": fla("parallax.naive.naive_parallax", heads("kkkk"), window_size=8),
    "fla_mesa_step": fla("mesa_net.naive.naive_mesa_net_decoding_one_step",
                         lambda: [(torch.randn(1, 2, 8), nn.functional.normalize(torch.randn(1, 2, 8), dim=-1), torch.randn(1, 2, 8), -torch.rand(1, 2),
                                   torch.rand(2, 8) + 0.5, torch.rand(1, 2), torch.eye(8).expand(1, 2, 8, 8).clone(), torch.randn(1, 2, 8, 8))],
                         max_CG_iteration=6),
    "litgpt_pythia": litgpt("pythia-14m"),
    "litgpt_mixtral": litgpt("Mixtral-8x7B-v0.1", TEXT, None, n_query_groups=2, intermediate_size=32, n_expert=4, n_expert_per_token=2),
    "litgpt_falcon": litgpt("falcon-7b"),
    "litgpt_cached": (litgpt_cached, lambda: [(torch.randint(0, 256, (1, 1)), torch.tensor([3]))], None),
    "tune_gemma2": tune("gemma2.gemma2", vocab_size=256, num_layers=2, num_heads=4, head_dim=8, num_kv_heads=2, embed_dim=32, intermediate_dim=64,
                        max_seq_len=128, sliding_window_size=16),
    "tune_lora": tune("llama3.lora_llama3", lora_attn_modules=["q_proj", "v_proj"], apply_lora_to_mlp=True, vocab_size=256, num_layers=2, num_heads=4,
                      num_kv_heads=2, embed_dim=32, max_seq_len=128, intermediate_dim=64, lora_rank=4, lora_alpha=8.0, use_dora=True),
}

MODELS = X_TRANSFORMERS | LANGUAGE | SOUND | SERIES
