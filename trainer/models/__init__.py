"""The table of models.  Torch-free: only building a model imports torch."""

OWN = {
    "resnet18": "trainer.models.resnet18:build",
    "vgg11": "trainer.models.vgg11:build",
    "cnn": "trainer.models.cnn:build",
}

# torchvision.models.list_models(module=torchvision.models), kept here so that a launcher can check a
# name without torch; a test compares the two.
TORCHVISION = """
alexnet convnext_base convnext_large convnext_small convnext_tiny densenet121 densenet161 densenet169
densenet201 efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3 efficientnet_b4
efficientnet_b5 efficientnet_b6 efficientnet_b7 efficientnet_v2_l efficientnet_v2_m efficientnet_v2_s
googlenet inception_v3 maxvit_t mnasnet0_5 mnasnet0_75 mnasnet1_0 mnasnet1_3 mobilenet_v2
mobilenet_v3_large mobilenet_v3_small regnet_x_16gf regnet_x_1_6gf regnet_x_32gf regnet_x_3_2gf
regnet_x_400mf regnet_x_800mf regnet_x_8gf regnet_y_128gf regnet_y_16gf regnet_y_1_6gf regnet_y_32gf
regnet_y_3_2gf regnet_y_400mf regnet_y_800mf regnet_y_8gf resnet101 resnet152 resnet34 resnet50
resnext101_32x8d resnext101_64x4d resnext50_32x4d shufflenet_v2_x0_5 shufflenet_v2_x1_0
shufflenet_v2_x1_5 shufflenet_v2_x2_0 squeezenet1_0 squeezenet1_1 swin_b swin_s swin_t swin_v2_b
swin_v2_s swin_v2_t vgg11_bn vgg13 vgg13_bn vgg16 vgg16_bn vgg19 vgg19_bn vit_b_16 vit_b_32 vit_h_14
vit_l_16 vit_l_32 wide_resnet101_2 wide_resnet50_2
""".split()  # noqa: SIM905 - a list of 80 strings would be 80 lines

# Families for which an optimizer's default rate is too high: those without normalisation layers, for which
# torchvision's recipes use a tenth of SGD's, and those with attention.  The trainer's vgg11 has batch norm at 32 px.
# https://github.com/pytorch/vision/tree/main/references/classification
SENSITIVE = ("alexnet", "vgg", "squeezenet", "vit_", "swin_", "maxvit_", "convnext_")

# Largest sides, in pixels, at which a batch of one image gives batch norm only one value per channel, which torch
# refuses to train on; by prefix of the model's name.
LARGEST_ALONE = {
    "resnet18": 8, "densenet": 60, "googlenet": 46, "inception_v3": 106,
    **dict.fromkeys(("efficientnet", "mnasnet", "mobilenet", "regnet", "resne", "shufflenet", "wide_resnet"), 32),
}  # fmt: skip

TABLE = OWN | dict.fromkeys(TORCHVISION, "trainer.models.from_torchvision:build")
NAMES = tuple(TABLE)


def largest_alone(model: str) -> int:
    """The largest side, in pixels, at which `model` cannot train on batches of one image; 0 if it always can."""
    return next((px for start, px in LARGEST_ALONE.items() if model.startswith(start)), 0)
