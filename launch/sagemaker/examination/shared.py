"""What several checks share."""

from launch.aws.examination.case import Case
from launch.sagemaker.checks import Resolved

TrainingCase = Case[Resolved]
