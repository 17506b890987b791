# SPDX-License-Identifier: Apache-2.0
"""timm: a model of each architecture, narrow and short where its factory lets it be."""
from .common import Classifier, images, register, without_randomness

ONE_EACH = dict(layers=(1, 1, 1, 1))
CONFIGURATIONS = [  # name, image size, batch, options
    ("mixer_s32_224", 64, 2, dict(img_size=64)),
    ("resmlp_12_224", 32, 2, dict(img_size=32)),
    ("gmlp_ti16_224", 32, 2, dict(img_size=32)),
    ("convnextv2_atto", 64, 2, dict(depths=(1, 1, 1, 1))),
    ("convnext_atto", 64, 2, dict(depths=(1, 1, 2, 1))),
    ("resnet10t", 64, 4, {}),
    ("resnet14t", 64, 4, dict(**ONE_EACH)),
    ("resnext50_32x4d", 64, 4, dict(**ONE_EACH, cardinality=8, base_width=4)),
    ("seresnet50", 64, 4, dict(**ONE_EACH, base_width=16)),
    ("ecaresnet50t", 64, 4, dict(**ONE_EACH, base_width=16)),
    ("skresnet18", 64, 4, ONE_EACH),
    ("resnest14d", 64, 4, dict(**ONE_EACH, base_width=16)),
    ("res2net50_26w_4s", 64, 4, dict(**ONE_EACH, base_width=8)),
    ("resnetv2_50", 64, 2, dict(layers=[1, 1, 1, 1], channels=(16, 32, 64, 64))),
    ("efficientnet_b0", 64, 4, {}),
    ("tf_efficientnetv2_b0", 64, 4, {}),
    ("mobilenetv3_small_050", 64, 4, {}),
    ("mobilenetv4_conv_small", 64, 4, {}),
    ("mobilenetv4_hybrid_medium", 64, 2, {}),
    ("lcnet_050", 64, 4, {}), ("tinynet_e", 64, 4, {}), ("ghostnet_050", 64, 4, {}), ("ghostnetv2_100", 64, 4, {}), ("mnasnet_small", 64, 4, {}),
    ("levit_128s", 64, 8, dict(img_size=64, depth=(1, 1, 1))),
    ("deit_tiny_patch16_224", 32, 2, dict(img_size=32, patch_size=8, depth=2, embed_dim=32, num_heads=4)),
    ("deit_tiny_distilled_patch16_224", 32, 2, dict(img_size=32, patch_size=8, depth=2, embed_dim=32, num_heads=4)),
    ("vit_tiny_patch16_224", 32, 2, dict(img_size=32, patch_size=8, depth=2, embed_dim=32, num_heads=4)),
    ("vit_small_patch16_18x2_224", 32, 2, dict(img_size=32, patch_size=8, depth=2, embed_dim=32, num_heads=4)),
    ("vit_relpos_small_patch16_224", 32, 2, dict(img_size=32, patch_size=8, depth=2, embed_dim=32, num_heads=4)),
    ("vit_base_patch16_siglip_224", 32, 2, dict(img_size=32, patch_size=8, depth=2, embed_dim=32, num_heads=4)),
    ("eva02_tiny_patch14_224", 28, 2, dict(img_size=28, depth=2, embed_dim=32, num_heads=4)),
    ("beit_base_patch16_224", 32, 2, dict(img_size=32, patch_size=8, depth=2, embed_dim=32, num_heads=4)),
    ("cait_xxs24_224", 32, 2, dict(img_size=32, patch_size=8, depth=2, embed_dim=32, num_heads=4)),
    ("xcit_nano_12_p16_224", 32, 2, dict(img_size=32, depth=2, embed_dim=32, num_heads=4)),
    ("coat_lite_tiny", 64, 2, dict(img_size=64)),
    ("convit_tiny", 32, 2, dict(img_size=32, patch_size=8, depth=3, local_up_to_layer=2, embed_dim=32)),
    ("crossvit_tiny_240", 240, 1, dict(embed_dim=[16, 32], depth=[[1, 1, 0]], num_heads=[2, 2])),
    ("pit_ti_224", 64, 2, dict(img_size=64)),
    ("tnt_s_patch16_224", 32, 2, dict(img_size=32, depth=2)),
    ("twins_svt_small", 64, 2, dict(img_size=64, embed_dims=[16, 32, 32, 32], depths=[1, 1, 1, 1])),
    ("visformer_tiny", 64, 2, dict(img_size=64, init_channels=8, embed_dim=48, depth=(1, 1, 1))),
    ("volo_d1_224", 64, 2, dict(img_size=64)),
    ("poolformer_s12", 32, 2, {}),
    ("poolformerv2_s12", 32, 2, {}),
    ("convformer_s18", 32, 2, {}),
    ("caformer_s18", 32, 2, {}),
    ("edgenext_xx_small", 64, 2, dict(depths=(1, 1, 1, 1), dims=(8, 16, 16, 32))),
    ("mobilevit_xxs", 64, 2, {}), ("mobilevitv2_050", 64, 2, {}), ("mobileone_s0", 64, 4, {}),
    ("coatnet_nano_rw_224", 64, 2, dict(img_size=64)),
    ("nf_resnet26", 64, 2, {}),
    ("regnetx_002", 64, 4, {}), ("regnety_002", 64, 4, {}), ("regnetz_005", 64, 4, {}),
    ("dla46_c", 64, 4, {}), ("dla60x_c", 64, 4, {}), ("hrnet_w18_small", 64, 4, {}), ("repvgg_a0", 64, 4, {}), ("fastvit_t8", 64, 4, {}), ("repvit_m0_9", 64, 4, {}),
    ("efficientvit_b0", 64, 4, {}),
    ("efficientvit_m0", 64, 4, dict(img_size=64)), ("focalnet_tiny_srf", 32, 2, {}),
    ("gcvit_xxtiny", 64, 2, dict(img_size=64)), ("hiera_tiny_224", 64, 2, dict(img_size=(64, 64), embed_dim=16, stages=(1, 1, 1, 1))),
    ("inception_next_atto", 64, 2, dict(depths=(1, 1, 1, 1))), ("mambaout_femto", 64, 2, dict(depths=(1, 1, 1, 1), dims=(8, 16, 16, 32))),
    ("nest_tiny", 112, 1, dict(img_size=112)),
    ("pvt_v2_b0", 64, 2, dict(depths=(1, 1, 1, 1))), ("rdnet_tiny", 64, 2, {}), ("sequencer2d_s", 64, 2, dict(img_size=64, layers=(1, 1, 1, 1), embed_dims=(16, 32, 32, 32))),
    ("shvit_s1", 64, 4, {}), ("starnet_s1", 64, 4, {}), ("swiftformer_xs", 64, 4, {}), ("swin_tiny_patch4_window7_224", 32, 2, dict(img_size=32, window_size=4, embed_dim=24, depths=(2, 2))),
    ("swinv2_tiny_window8_256", 32, 2, dict(img_size=32, window_size=4, embed_dim=24, depths=(2, 2), num_heads=(3, 6))),
    ("ese_vovnet19b_slim", 64, 4, {}),
    ("selecsls42b", 64, 4, {}), ("cs3darknet_s", 64, 4, {}), ("cspresnet50", 64, 4, {}), ("hardcorenas_a", 64, 4, {}),
    ("mixnet_s", 64, 4, {}), ("rexnet_100", 64, 4, {}), ("semnasnet_075", 64, 4, {}), ("spnasnet_100", 64, 4, {}), ("fbnetc_100", 64, 4, {}), ("botnet26t_256", 64, 4, dict(img_size=64)),
    ("davit_tiny", 64, 2, dict(depths=(1, 1, 1, 1), embed_dims=(24, 48, 48, 48))),
    ("nf_regnet_b0", 64, 2, {}), ("halonet26t", 256, 1, {}), ("lambda_resnet26t", 64, 4, dict(img_size=64)), ("gernet_s", 64, 4, {}),
    ("xception41", 64, 2, {}), ("vovnet39a", 64, 2, {}), ("dm_nfnet_f0", 32, 2, {}), ("naflexvit_base_patch16_gap", 32, 2, dict(depth=2, embed_dim=32, num_heads=4)),
]


def add(name, size, batch, options):
    def build():
        import timm
        return Classifier(without_randomness(timm.create_model(name, num_classes=10, **options))), images(batch, size)
    register("timm_" + name, build)


for entry in CONFIGURATIONS:
    add(*entry)
