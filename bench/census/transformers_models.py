# SPDX-License-Identifier: Apache-2.0
"""transformers: small random configurations. Decoders build their masks without vmap (transformers' own function for export), since a vmap cannot be saved."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from .common import Case, Loss, model, register, without_randomness

BATCH, LENGTH, WORDS = 2, 9, 50
SMALL = dict(vocab_size=WORDS, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=32)
GROUPED = dict(SMALL, num_key_value_heads=2)
GPT = dict(vocab_size=WORDS, n_positions=32, n_embd=16, n_layer=2, n_head=2)
SEQUENCES = dict(vocab_size=WORDS, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=32, decoder_ffn_dim=32,
                 max_position_embeddings=32, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, forced_eos_token_id=None)
T5 = dict(vocab_size=WORDS, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0)


def configured(name, **options):
    """A configuration with every kind of dropout off."""
    import transformers
    from transformers import masking_utils
    from transformers.integrations.executorch import sdpa_mask_without_vmap
    masking_utils.ALL_MASK_ATTENTION_FUNCTIONS.register("sdpa", sdpa_mask_without_vmap)
    masking_utils.sdpa_mask = sdpa_mask_without_vmap  # which the mask function of eager attention calls
    config = getattr(transformers, name)(**options)
    for key, value in list(vars(config).items()):
        if ("drop" in key or key in ("layerdrop", "embd_pdrop", "resid_pdrop", "attn_pdrop", "summary_first_dropout")) and isinstance(value, float):
            setattr(config, key, 0.0)
    return config


def built(net, config, **options):
    import transformers
    return without_randomness(getattr(transformers, net)(config, **options))


class Labelled(Loss):
    def forward(self, ids, labels):
        return self.net(input_ids=ids, labels=labels, **self.options).loss


class Decoder(Loss):
    def forward(self, ids):
        return self.net(input_ids=ids, labels=ids, **self.options).loss


class Pixels(Loss):
    def forward(self, x, target):
        return self.net(pixel_values=x, labels=target, **self.options).loss


def ids(batch=BATCH, length=LENGTH):
    return torch.randint(3, WORDS, (batch, length))


def decoder(name, net, config, cache=True, refused="", **options):
    def build():
        return Case(Decoder(built(net, configured(config, **options)), **(dict(use_cache=False) if cache else {})), dict(ids=ids()), refused=refused)
    register("transformers_" + name, build)


def masked(name, net, config, refused="", **options):
    def build():
        labels = ids()
        labels[:, ::2] = -100
        return Case(Labelled(built(net, configured(config, **options))), dict(ids=ids(), labels=labels), refused=refused)
    register("transformers_" + name, build)


def classified(name, net, config, **options):
    def build():
        return Labelled(built(net, configured(config, pad_token_id=0, **options))), dict(ids=ids(), labels=torch.randint(0, 2, (BATCH,)))
    register("transformers_" + name, build)


def sequences(name, net, config, **options):
    def build():
        return Labelled(built(net, configured(config, **options)), use_cache=False), dict(ids=ids(), labels=ids(BATCH, 7))
    register("transformers_" + name, build)


def pixels(name, net, config, size=32, target=None, **options):
    def build():
        labels = torch.randint(0, 2, (BATCH,)) if target is None else target()
        return Pixels(built(net, configured(config, **options))), dict(x=torch.randn(BATCH, 3, size, size), target=labels)
    register("transformers_" + name, build)


for decoder_name, decoder_options in {
    "Llama": GROUPED, "Qwen2": dict(GROUPED, tie_word_embeddings=True), "Qwen3": dict(GROUPED, head_dim=8), "Mistral": dict(GROUPED, sliding_window=4), "Phi": SMALL,
    "Phi3": dict(GROUPED, pad_token_id=0), "Gemma": dict(GROUPED, head_dim=8), "Gemma2": dict(GROUPED, head_dim=8, sliding_window=4), "Falcon": SMALL, "StableLm": GROUPED,
    "Starcoder2": GROUPED, "Olmo": GROUPED, "Olmo2": GROUPED, "Cohere": GROUPED, "Granite": GROUPED, "GPTNeoX": SMALL, "Persimmon": SMALL, "Nemotron": GROUPED, "Helium": dict(GROUPED, head_dim=4),
    "Glm": dict(GROUPED, head_dim=4, pad_token_id=0), "SmolLM3": dict(GROUPED, pad_token_id=0), "Exaone4": GROUPED, "Ministral": dict(GROUPED, head_dim=4), "Seed_Oss": GROUPED, "Arcee": GROUPED,
    "OPT": dict(vocab_size=WORDS, hidden_size=16, ffn_dim=32, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=32, word_embed_proj_dim=8),
    "GPTNeo": dict(vocab_size=WORDS, hidden_size=16, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], window_size=4, max_position_embeddings=32),
    "GPTJ": dict(GPT, rotary_dim=4), "CodeGen": dict(vocab_size=WORDS, n_positions=32, n_embd=32, n_layer=2, n_head=4, rotary_dim=4, n_ctx=32),
    "Bloom": dict(vocab_size=WORDS, hidden_size=16, n_layer=2, n_head=4), "Mpt": dict(vocab_size=WORDS, d_model=16, n_layers=2, n_heads=4, expansion_ratio=2, max_seq_len=32),
    "XGLM": dict(vocab_size=WORDS, d_model=16, ffn_dim=32, num_layers=2, attention_heads=4, max_position_embeddings=32), "BioGpt": SMALL,
    "Gemma3Text": dict(GROUPED, head_dim=8, sliding_window=4, layer_types=["sliding_attention", "full_attention"]),
}.items():
    stem = decoder_name.replace("_", "")
    net_name = {"Gemma3Text": "Gemma3ForCausalLM", "SeedOss": "SeedOssForCausalLM"}.get(stem, stem + "ForCausalLM")
    decoder(decoder_name.lower(), net_name, stem + "Config", **decoder_options)
decoder("gpt2", "GPT2LMHeadModel", "GPT2Config", **GPT)
decoder("gpt2_eager", "GPT2LMHeadModel", "GPT2Config", attn_implementation="eager", scale_attn_by_inverse_layer_idx=True, **GPT)
decoder("llama_eager_scaled_rope", "LlamaForCausalLM", "LlamaConfig", attn_implementation="eager", attention_bias=True, mlp_bias=True,
        rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16), **GROUPED)
decoder("falcon_alibi", "FalconForCausalLM", "FalconConfig", alibi=True, **SMALL)
decoder("gpt_bigcode", "GPTBigCodeForCausalLM", "GPTBigCodeConfig", **GPT)
decoder("openai_gpt", "OpenAIGPTLMHeadModel", "OpenAIGPTConfig", cache=False, **GPT)
decoder("ctrl", "CTRLLMHeadModel", "CTRLConfig", vocab_size=WORDS, n_positions=32, n_embd=16, dff=32, n_layer=2, n_head=2)
decoder("mamba", "MambaForCausalLM", "MambaConfig", vocab_size=WORDS, hidden_size=16, state_size=4, num_hidden_layers=2, time_step_rank=2)
decoder("mamba2", "Mamba2ForCausalLM", "Mamba2Config", vocab_size=WORDS, hidden_size=16, state_size=4, num_hidden_layers=2, num_heads=4, head_dim=8, n_groups=1, chunk_size=4)
decoder("rwkv", "RwkvForCausalLM", "RwkvConfig", vocab_size=WORDS, hidden_size=16, num_hidden_layers=2, context_length=16)
decoder("recurrentgemma", "RecurrentGemmaForCausalLM", "RecurrentGemmaConfig", vocab_size=WORDS, hidden_size=16, intermediate_size=32, num_hidden_layers=3, num_attention_heads=4, lru_width=16,
        attention_window_size=4)
decoder("mixtral", "MixtralForCausalLM", "MixtralConfig", num_local_experts=4, **GROUPED)
decoder("qwen2_moe", "Qwen2MoeForCausalLM", "Qwen2MoeConfig", num_experts=4, moe_intermediate_size=16, shared_expert_intermediate_size=16, **GROUPED)
decoder("granite_moe", "GraniteMoeForCausalLM", "GraniteMoeConfig", refused="taken from data", num_local_experts=4, **GROUPED)
decoder("gpt_oss", "GptOssForCausalLM", "GptOssConfig", num_local_experts=4, head_dim=4, sliding_window=4, **GROUPED)
decoder("xlnet", "XLNetLMHeadModel", "XLNetConfig", cache=False, vocab_size=WORDS, d_model=16, n_layer=2, n_head=4, d_inner=32)

for masked_name, masked_options in {
    "Bert": SMALL, "Roberta": dict(SMALL, pad_token_id=0), "Electra": dict(SMALL, embedding_size=8), "Albert": dict(SMALL, embedding_size=8), "Camembert": dict(SMALL, pad_token_id=0),
    "MPNet": dict(SMALL, pad_token_id=0), "ConvBert": dict(SMALL, embedding_size=16, conv_kernel_size=3, head_ratio=2), "SqueezeBert": dict(SMALL, embedding_size=16), "RoFormer": dict(SMALL, embedding_size=16),
    "Nystromformer": dict(SMALL, num_landmarks=3, segment_means_seq_len=9), "BigBird": dict(SMALL, attention_type="original_full"), "FNet": dict(SMALL, refused="aten.fft_fftn.default"), "Ernie": SMALL, "RemBert": SMALL,
    "MegatronBert": SMALL, "XLMRoberta": dict(SMALL, pad_token_id=0), "ModernBert": dict(SMALL, pad_token_id=0, local_attention=4, global_attn_every_n_layers=2, reference_compile=False),
    "Deberta": dict(SMALL, relative_attention=True, pos_att_type=["c2p", "p2c"]), "DebertaV2": dict(SMALL, relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=4, share_att_key=True, conv_kernel_size=3, conv_act="gelu"),
    "MobileBert": dict(SMALL, embedding_size=16, intra_bottleneck_size=8, num_feedforward_networks=2), "LayoutLM": SMALL, "Data2VecText": dict(SMALL, pad_token_id=0), "Esm": dict(SMALL, pad_token_id=0, position_embedding_type="rotary"),
}.items():
    masked(masked_name.lower(), masked_name + "ForMaskedLM", masked_name + "Config", **masked_options)
masked("distilbert", "DistilBertForMaskedLM", "DistilBertConfig", vocab_size=WORDS, dim=16, hidden_dim=32, n_layers=2, n_heads=4, max_position_embeddings=32)
masked("bert_relative_eager", "BertForMaskedLM", "BertConfig", position_embedding_type="relative_key_query", attn_implementation="eager", **SMALL)
masked("flaubert", "FlaubertWithLMHeadModel", "FlaubertConfig", vocab_size=WORDS, emb_dim=16, n_layers=2, n_heads=4, max_position_embeddings=32)
classified("bert_classifier", "BertForSequenceClassification", "BertConfig", **SMALL)
classified("gpt2_classifier", "GPT2ForSequenceClassification", "GPT2Config", **GPT)
classified("llama_classifier", "LlamaForSequenceClassification", "LlamaConfig", **GROUPED)
classified("funnel", "FunnelForSequenceClassification", "FunnelConfig", vocab_size=WORDS, block_sizes=[1, 1], d_model=16, n_head=4, d_head=4, d_inner=32)
classified("canine", "CanineForSequenceClassification", "CanineConfig", hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32, max_position_embeddings=32, num_hash_buckets=64,
           local_transformer_stride=8, downsampling_rate=2)
classified("perceiver", "PerceiverForSequenceClassification", "PerceiverConfig", num_latents=4, d_latents=16, d_model=8, num_blocks=1, num_self_attends_per_block=1, num_self_attention_heads=2,
           num_cross_attention_heads=2, vocab_size=WORDS, max_position_embeddings=9)

for sequence_name, sequence_net in {"Bart": "BartForConditionalGeneration", "MBart": "MBartForConditionalGeneration", "Pegasus": "PegasusForConditionalGeneration", "Marian": "MarianMTModel",
                                    "Blenderbot": "BlenderbotForConditionalGeneration", "BlenderbotSmall": "BlenderbotSmallForConditionalGeneration", "M2M100": "M2M100ForConditionalGeneration",
                                    "PegasusX": "PegasusXForConditionalGeneration",}.items():
    sequences(sequence_name.lower(), sequence_net, sequence_name + "Config", **SEQUENCES)
sequences("t5", "T5ForConditionalGeneration", "T5Config", **T5)
sequences("mt5", "MT5ForConditionalGeneration", "MT5Config", **T5)
sequences("umt5", "UMT5ForConditionalGeneration", "UMT5Config", **T5)
sequences("t5_gated", "T5ForConditionalGeneration", "T5Config", feed_forward_proj="gated-gelu", tie_word_embeddings=False, **T5)
sequences("switch_transformers", "SwitchTransformersForConditionalGeneration", "SwitchTransformersConfig", num_experts=2, **T5)
sequences("prophetnet", "ProphetNetForConditionalGeneration", "ProphetNetConfig", vocab_size=WORDS, hidden_size=16, encoder_ffn_dim=32, num_encoder_layers=2, num_encoder_attention_heads=4, decoder_ffn_dim=32,
          num_decoder_layers=2, num_decoder_attention_heads=4, max_position_embeddings=32, ngram=2, num_buckets=8, relative_max_distance=16, decoder_start_token_id=1)

VIT = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8)
for pixel_name, pixel_options in {
    "ViT": VIT, "DeiT": VIT, "Beit": dict(VIT, use_relative_position_bias=True), "Dinov2": VIT, "PoolFormer": dict(hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1]),
    "Swin": dict(image_size=32, patch_size=4, embed_dim=12, depths=[2, 2], num_heads=[2, 4], window_size=4), "Swinv2": dict(image_size=32, patch_size=4, embed_dim=12, depths=[2, 2], num_heads=[2, 4], window_size=4),
    "ConvNext": dict(hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1], layer_scale_init_value=0.5), "ConvNextV2": dict(hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1]),
    "ResNet": dict(embedding_size=8, hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1]), "Segformer": dict(hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 4]),
    "RegNet": dict(embedding_size=8, hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1], groups_width=8), "Bit": dict(embedding_size=32, num_groups=4, hidden_sizes=[32, 32, 32, 32], depths=[1, 1, 1, 1]),
    "FocalNet": dict(image_size=32, embed_dim=8, depths=[1, 1], focal_levels=[2, 2], focal_windows=[3, 3], hidden_sizes=[8, 16]),
    "MobileNetV1": dict(depth_multiplier=0.25), "MobileNetV2": dict(depth_multiplier=0.35), "Pvt": dict(image_size=32, num_attention_heads=[1, 2, 2, 4], hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1]), "PvtV2": dict(num_attention_heads=[1, 2, 2, 4], hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1]),
    "ViTMSN": VIT, "SwiftFormer": dict(depths=[1, 1, 1, 1], embed_dims=[8, 16, 16, 32]), "Hiera": dict(image_size=[32, 32], patch_size=[7, 7], patch_stride=[4, 4], embed_dim=8, depths=[1, 1], num_heads=[1, 2], mlp_ratio=2.0, masked_unit_size=[4, 4], query_stride=[2, 2], num_query_pool=1),
    "IJepa": VIT,
}.items():
    pixels(pixel_name.lower(), pixel_name + "ForImageClassification", pixel_name + "Config", **({"size": 64} if "Mobile" in pixel_name or "Swift" in pixel_name else {}), **pixel_options)
pixels("levit", "LevitForImageClassification", "LevitConfig", size=64, image_size=64, hidden_sizes=[16, 32, 32], num_attention_heads=[2, 4, 4], depths=[1, 1, 1], key_dim=[8, 8, 8],
       down_ops=[["Subsample", 8, 2, 2, 2, 2], ["Subsample", 8, 4, 2, 2, 2]])
pixels("mobilevit", "MobileViTForImageClassification", "MobileViTConfig", size=64, image_size=64, hidden_sizes=[16, 16, 16], neck_hidden_sizes=[8, 8, 16, 16, 16, 16, 32])
pixels("segformer_masks", "SegformerForSemanticSegmentation", "SegformerConfig", hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 4], decoder_hidden_size=16, num_labels=5,
       target=lambda: torch.randint(0, 5, (BATCH, 32, 32)))
pixels("dpt", "DPTForSemanticSegmentation", "DPTConfig", hidden_size=16, intermediate_size=32, num_hidden_layers=4, num_attention_heads=4, image_size=32, patch_size=8, backbone_out_indices=[0, 1, 2, 3],
       neck_hidden_sizes=[8, 8, 16, 16], fusion_hidden_size=8, num_labels=5, target=lambda: torch.randint(0, 5, (BATCH, 32, 32)))


class Speech(Loss):
    def forward(self, x, target):
        return self.net(input_values=x, labels=target).loss


SPEECH = dict(SMALL, conv_dim=(8, 8), conv_stride=(4, 2), conv_kernel=(8, 3), num_feat_extract_layers=2, num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, classifier_proj_size=8,
              feat_extract_norm="group", apply_spec_augment=False)
for speech_name in ("Wav2Vec2", "Hubert", "WavLM", "UniSpeechSat", "SEW", "Data2VecAudio"):
    def build_speech(name=speech_name):
        return Speech(built(name + "ForSequenceClassification", configured(name + "Config", **SPEECH))), dict(x=torch.randn(BATCH, 200), target=torch.randint(0, 2, (BATCH,)))
    register("transformers_" + speech_name.lower(), build_speech)


@model
def transformers_ast():
    config = configured("ASTConfig", hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, patch_size=8, frequency_stride=4, time_stride=4, max_length=32, num_mel_bins=16)
    return Speech(built("ASTForAudioClassification", config)), dict(x=torch.randn(BATCH, 32, 16), target=torch.randint(0, 2, (BATCH,)))


@model
def transformers_whisper():
    config = configured("WhisperConfig", vocab_size=WORDS, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=32, decoder_ffn_dim=32,
                        num_mel_bins=8, max_source_positions=12, max_target_positions=16, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None)

    class Net(Loss):
        def forward(self, x, labels):
            return self.net(input_features=x, labels=labels, use_cache=False).loss
    return Net(built("WhisperForConditionalGeneration", config)), dict(x=torch.randn(BATCH, 8, 24), labels=ids(BATCH, 7))


class TwoTowers(Loss):
    def forward(self, ids, x):
        return self.net(input_ids=ids, pixel_values=x, return_loss=True).loss


TEXT_TOWER = dict(SMALL, bos_token_id=1, eos_token_id=2, pad_token_id=0)


@model
def transformers_clip():
    return Case(TwoTowers(built("CLIPModel", configured("CLIPConfig", text_config=dict(TEXT_TOWER, projection_dim=8), vision_config=dict(VIT, projection_dim=8), projection_dim=8))),
            dict(ids=ids(), x=torch.randn(BATCH, 3, 32, 32)), float64=False, loose=3)


@model
def transformers_siglip():
    return TwoTowers(built("SiglipModel", configured("SiglipConfig", text_config=TEXT_TOWER, vision_config=VIT))), dict(ids=ids(), x=torch.randn(BATCH, 3, 32, 32))


@model
def transformers_vilt():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = built("ViltForQuestionAnswering", configured("ViltConfig", num_labels=5, **{**SMALL, **VIT}))

        def forward(self, ids, x, target):
            return self.net(input_ids=ids, pixel_values=x, labels=target).loss
    return Net(), dict(ids=ids(), x=torch.randn(BATCH, 3, 32, 32), target=torch.rand(BATCH, 5))


@model
def transformers_vit_mae():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = built("ViTMAEForPreTraining", configured("ViTMAEConfig", decoder_hidden_size=16, decoder_num_attention_heads=4, decoder_num_hidden_layers=1, decoder_intermediate_size=32, **VIT))

        def forward(self, x, noise):
            return self.net(pixel_values=x, noise=noise).loss
    return Net(), dict(x=torch.randn(BATCH, 3, 32, 32), noise=torch.rand(BATCH, 16))


@model
def transformers_patchtst():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = built("PatchTSTForPrediction", configured("PatchTSTConfig", num_input_channels=2, context_length=16, patch_length=4, patch_stride=4, prediction_length=4, d_model=16, num_attention_heads=4,
                                                                 num_hidden_layers=2, ffn_dim=32))

        def forward(self, x, target):
            return self.net(past_values=x, future_values=target).loss
    return Net(), dict(x=torch.randn(4, 16, 2), target=torch.randn(4, 4, 2))


@model
def transformers_decision():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = built("DecisionTransformerModel", configured("DecisionTransformerConfig", state_dim=5, act_dim=3, hidden_size=16, max_ep_len=16, n_layer=2, n_head=2, n_positions=32))

        def forward(self, states, actions, rewards, timesteps, mask):
            found = self.net(states=states, actions=actions, rewards=rewards, returns_to_go=rewards, timesteps=timesteps, attention_mask=mask, return_dict=True)
            return F.mse_loss(found.action_preds, actions)
    return Net(), dict(states=torch.randn(2, 4, 5), actions=torch.randn(2, 4, 3), rewards=torch.randn(2, 4, 1), timesteps=torch.arange(4).repeat(2, 1), mask=torch.ones(2, 4))


@model
def transformers_bert_any_size():
    """Padding mask, and a batch and a length that are symbols."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = built("BertForMaskedLM", configured("BertConfig", **SMALL))

        def forward(self, ids, mask, labels):
            return self.net(input_ids=ids, attention_mask=mask, labels=labels).loss
    def batch(rows, length):
        mask = torch.ones(rows, length, dtype=torch.long)
        mask[0, length // 2:] = 0
        return dict(ids=ids(rows, length), mask=mask, labels=ids(rows, length))
    auto = torch.export.Dim.AUTO
    return Case(Net(), batch(3, 9), alt=batch(4, 6), dynamic={n: {0: auto, 1: auto} for n in ("ids", "mask", "labels")})


@model
def transformers_llama_any_size():
    auto = torch.export.Dim.AUTO
    net = Decoder(built("LlamaForCausalLM", configured("LlamaConfig", **GROUPED)), use_cache=False)
    return Case(net, dict(ids=ids(3, 9)), alt=dict(ids=ids(2, 12)), dynamic=dict(ids={0: auto, 1: auto}))
