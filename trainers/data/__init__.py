"""Records, how they are shared among nodes, and data sets."""

from trainers.data.cache import DataUnavailableError, data_folder
from trainers.data.catalogue import DATASETS, check_dataset, load_dataset
from trainers.data.digits import load_digits
from trainers.data.records import Dataset, PrivateData
from trainers.data.splits import (
    Partition,
    class_shares,
    split_by_class,
    split_by_dirichlet,
    split_by_file,
    split_evenly,
)

__all__ = [
    "DATASETS",
    "DataUnavailableError",
    "Dataset",
    "Partition",
    "PrivateData",
    "check_dataset",
    "class_shares",
    "data_folder",
    "load_dataset",
    "load_digits",
    "split_by_class",
    "split_by_dirichlet",
    "split_by_file",
    "split_evenly",
]
