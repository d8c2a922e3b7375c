"""What several checks share."""

from launch.core.examination.case import Case
from launch.sagemaker.checks import Resolved

TrainingCase = Case[Resolved]
