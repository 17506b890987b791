# SPDX-License-Identifier: Apache-2.0
"""torchvision: classification, segmentation, video. Sizes are small, and the deep ones are shortened."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from .common import Case, Classifier, Loss, images, model, register, without_randomness


def classification(name, size, batch=4, **options):
    def build():
        import torchvision
        return Classifier(without_randomness(getattr(torchvision.models, name)(weights=None, num_classes=10, **options))), images(batch, size)
    register("torchvision_" + name, build)


for vision_name, vision_size in [("resnet18", 64), ("resnet50", 64), ("mobilenet_v2", 64), ("mobilenet_v3_small", 64), ("mobilenet_v3_large", 64), ("efficientnet_b0", 64),
                                 ("efficientnet_v2_s", 32), ("regnet_y_400mf", 64), ("regnet_x_400mf", 64), ("convnext_tiny", 32), ("swin_t", 32), ("swin_v2_t", 32),
                                 ("densenet121", 64), ("squeezenet1_0", 64), ("squeezenet1_1", 64), ("shufflenet_v2_x0_5", 64), ("vgg11", 32), ("vgg11_bn", 32),
                                 ("mnasnet0_5", 64), ("alexnet", 64)]:
    classification(vision_name, vision_size)


@model
def torchvision_vit():
    import torchvision
    return Classifier(torchvision.models.VisionTransformer(image_size=32, patch_size=8, num_layers=3, num_heads=4, hidden_dim=32, mlp_dim=64, num_classes=10)), images(4, 32)


@model
def torchvision_maxvit():
    import torchvision
    net = torchvision.models.MaxVit(input_size=(32, 32), stem_channels=8, partition_size=2, block_channels=[8, 16], block_layers=[1, 1], head_dim=4, stochastic_depth_prob=0.0,
                                    num_classes=10)
    return Classifier(net), images(2, 32)


@model
def torchvision_resnext_wide():
    import torchvision
    net = torchvision.models.ResNet(torchvision.models.resnet.Bottleneck, [1, 1, 1, 1], num_classes=10, groups=4, width_per_group=8, zero_init_residual=True,
                                    replace_stride_with_dilation=[False, True, True])
    return Classifier(net), images(4, 32)


@model
def torchvision_resnet_channels_last():
    import torchvision
    net = torchvision.models.ResNet(torchvision.models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=10).to(memory_format=torch.channels_last)
    batch = images(4, 32)
    batch["x"] = batch["x"].to(memory_format=torch.channels_last)
    return Classifier(net), batch


class WithAuxiliary(Loss):
    def forward(self, x, target):
        found = self.net(x)
        return F.cross_entropy(found.logits, target) + 0.3 * sum(F.cross_entropy(v, target) for n, v in found._asdict().items() if n.startswith("aux") and v is not None)


@model
def torchvision_googlenet_auxiliary():
    import torchvision
    return WithAuxiliary(without_randomness(torchvision.models.GoogLeNet(num_classes=10, aux_logits=True, init_weights=False))), images(2, 64)


@model
def torchvision_inception_auxiliary():
    import torchvision
    return WithAuxiliary(without_randomness(torchvision.models.Inception3(num_classes=10, aux_logits=True, init_weights=False))), images(2, 299)


class Segmentation(Loss):
    def forward(self, x, target):
        found = self.net(x)
        loss = F.cross_entropy(found["out"], target, ignore_index=255)
        return loss + 0.5 * F.cross_entropy(found["aux"], target, ignore_index=255) if "aux" in found else loss


def masks(batch, size, classes=5):
    target = torch.randint(0, classes, (batch, size, size))
    target[:, :2] = 255
    return dict(x=torch.randn(batch, 3, size, size), target=target)


def short_backbone(layers):
    import torchvision
    from torchvision.models._utils import IntermediateLayerGetter
    net = torchvision.models.ResNet(torchvision.models.resnet.Bottleneck, [1, 1, 1, 1], width_per_group=8, replace_stride_with_dilation=[False, True, True])
    return IntermediateLayerGetter(net, return_layers=layers)


@model
def torchvision_fcn():
    from torchvision.models.segmentation.fcn import FCN, FCNHead
    net = FCN(short_backbone({"layer4": "out", "layer3": "aux"}), FCNHead(2048, 5), FCNHead(1024, 5))
    return Segmentation(without_randomness(net)), masks(2, 32)


@model
def torchvision_deeplab():
    from torchvision.models.segmentation.deeplabv3 import DeepLabHead, DeepLabV3
    return Segmentation(without_randomness(DeepLabV3(short_backbone({"layer4": "out"}), DeepLabHead(2048, 5, (2, 3, 4))))), masks(2, 32)


@model
def torchvision_lraspp():
    import torchvision
    return Segmentation(without_randomness(torchvision.models.segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5))), masks(2, 64)


def clips(batch, frames, size):
    return dict(x=torch.randn(batch, 3, frames, size, size), target=torch.randint(0, 10, (batch,)))


@model
def torchvision_r2plus1d():
    from torchvision.models.video import resnet
    return Classifier(resnet.VideoResNet(resnet.BasicBlock, [resnet.Conv2Plus1D] * 4, [1, 1, 1, 1], resnet.R2Plus1dStem, num_classes=10)), clips(2, 4, 16)


@model
def torchvision_mvit():
    from torchvision.models.video.mvit import MSBlockConfig, MViT
    blocks = [MSBlockConfig(1, 8, 16, [3, 3, 3], [1, 2, 2], [1, 1, 1], [1, 1, 1]), MSBlockConfig(2, 16, 16, [3, 3, 3], [1, 1, 1], [3, 3, 3], [1, 2, 2])]
    net = MViT((16, 16), 4, blocks, residual_pool=True, residual_with_cls_embed=False, rel_pos_embed=True, proj_after_attn=True, attention_dropout=0.0, dropout=0.0,
               stochastic_depth_prob=0.0, num_classes=10)
    return Classifier(net), clips(2, 4, 16)


@model
def torchvision_swin3d():
    import torchvision
    net = torchvision.models.video.swin_transformer.SwinTransformer3d([2, 4, 4], 8, [2, 2], [2, 2], [2, 2, 2], stochastic_depth_prob=0.0, num_classes=10)
    return Classifier(net), clips(2, 4, 16)


@model
def torchvision_fpn_losses():
    """A feature pyramid with focal and box losses, as detectors have them. (torchvision's own box losses pick by masks: sizes that depend on data.)"""
    from torchvision.ops import FeaturePyramidNetwork, sigmoid_focal_loss

    def box_loss(a, b):
        inside = (torch.min(a[:, 2:], b[:, 2:]) - torch.max(a[:, :2], b[:, :2])).clamp(min=0).prod(1)
        around = (torch.max(a[:, 2:], b[:, 2:]) - torch.min(a[:, :2], b[:, :2])).prod(1)
        both = (a[:, 2:] - a[:, :2]).prod(1) + (b[:, 2:] - b[:, :2]).prod(1) - inside
        return (1 - inside / both + (around - both) / around).mean()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 16, 3, 2, 1)
            self.pyramid = FeaturePyramidNetwork([8, 16], 8)
            self.classes, self.boxes = nn.Conv2d(8, 3, 3, padding=1), nn.Conv2d(8, 4, 3, padding=1)

        def forward(self, x, target):
            a = F.relu(self.first(x))
            levels = self.pyramid({"a": a, "b": F.relu(self.second(a))})
            loss = 0.0
            for level in levels.values():
                wanted = F.one_hot(target, 3).float()[:, :, None, None].expand(-1, -1, *level.shape[-2:])
                loss = loss + sigmoid_focal_loss(self.classes(level), wanted, reduction="mean")
                sides = self.boxes(level).exp().flatten(2).transpose(1, 2).reshape(-1, 4)
                corners = torch.cat([-sides[:, :2], sides[:, 2:]], 1)
                loss = loss + box_loss(corners, torch.tensor([-1.0, -1.0, 1.0, 1.5]).expand_as(corners))
            return loss
    return Net(), dict(x=torch.randn(2, 3, 16, 16), target=torch.randint(0, 3, (2,)))


@model
def torchvision_resnet_any_size():
    import torchvision
    net = torchvision.models.ResNet(torchvision.models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=10)
    auto = torch.export.Dim.AUTO
    return Case(Classifier(net), images(4, 48), alt=dict(x=torch.randn(3, 3, 64, 40), target=torch.randint(0, 10, (3,))),
                dynamic=dict(x={0: auto, 2: auto, 3: auto}, target={0: auto}))


@model
def torchvision_box_loss_by_masks():
    from torchvision.ops import generalized_box_iou_loss

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.boxes = nn.Linear(4, 4)

        def forward(self, x, target):
            sides = self.boxes(x).exp()
            return generalized_box_iou_loss(torch.cat([-sides[:, :2], sides[:, 2:]], 1), target, reduction="mean")
    return Case(Net(), dict(x=torch.randn(5, 4), target=torch.tensor([[-1.0, -1.0, 1.0, 1.5]] * 5)), refused="a bool mask gives a size that depends on data")
