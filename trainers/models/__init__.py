"""The models of the papers, as plain modules; any other module serves as well."""

from trainers.models.registry import MODELS as MODELS
from trainers.models.registry import check_options as check_options
from trainers.models.registry import make_model as make_model
from trainers.models.registry import model_named as model_named
from trainers.models.small import small_cnn as small_cnn
from trainers.models.start import cross_entropy as cross_entropy
from trainers.models.start import hollow_out as hollow_out
from trainers.models.start import initial_parameters as initial_parameters
from trainers.models.start import initial_parts as initial_parts
